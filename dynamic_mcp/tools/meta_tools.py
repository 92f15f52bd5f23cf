"""Our own tools that a model sees: their names, texts and schemas. The same input always gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw, Struct

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import EMPTY_OBJECT

GET = "get_dynamic_tools"
CALL = "call_dynamic_tool"
# These replace CALL so that the client can approve reads separately.
CALL_READ = "call_dynamic_tool_read"
CALL_WRITE = "call_dynamic_tool_write"
CALLS = (CALL, CALL_READ, CALL_WRITE)
# The parameters of the call tools. Any others that a model adds may be arguments of the tool itself.
OWN_ARGUMENTS = frozenset(("group", "name", "args", "select"))
# Stops Claude Code from hiding these tools behind its own tool search (seen with 2.1.330).
_ALWAYS_LOADED = {"_meta": {"anthropic/alwaysLoad": True}}


class GroupRow(Struct, frozen=True):
    """A group as a model sees it; `reason` says why it is down, and is empty if it is up."""

    name: str
    description: str
    reason: str = ""


def build_tools(
    rows: Sequence[GroupRow], *, with_tasks: bool = False, split: bool = False
) -> list[dict[str, object]]:
    """Return our own tools for `tools/list`.

    `with_tasks` allows calls as tasks of MCP 2025-11-25; `split` gives one call tool for reads and one for writes.
    """
    calls = [_build_call_read(rows), _build_call_write(rows)] if split else [_build_call(rows)]
    execution = {"execution": {"taskSupport": "optional"}} if with_tasks else {}
    return [
        {**tool, **_ALWAYS_LOADED}
        for tool in (_build_get(rows, split=split), *({**call, **execution} for call in calls))
    ]


def build_instructions(rows: Sequence[GroupRow], *, split: bool = False) -> str:
    """Return the instructions for a model: the use of the two tools, and the list of groups."""
    if not rows:
        return "No MCP server is configured here yet, so there are no tools to call."
    names = ", ".join(row.name for row in rows)
    return (
        f"The tools of several MCP servers are here in groups: {names}. "
        f"Before you say that something cannot be done, look for a tool: `{GET}` finds tools by a `query` for "
        f"one step (`create issue`), or shows a `group`; {_call_tool_names(split=split)} runs one."
    )


def build_direct_instructions(instructions: Mapping[str, str]) -> str:
    """Return the instructions of the servers, by group, whose tools are listed directly."""
    return "\n\n".join(f"Tools that begin with `{group}__`: {text}" for group, text in instructions.items())


def own_arguments(params: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the arguments of one of our own tools, including those sent as JSON in a text.

    Raises InvalidArguments.
    """
    sent = params.get("arguments", EMPTY_OBJECT)
    try:
        found = wire.members(sent)
    except wire.Malformed:
        sent = Raw((wire.text(sent) or "").strip().encode())
        try:
            found = wire.members(sent)
        except wire.Malformed:
            raise InvalidArguments("`arguments` is not an object") from None
    if not wire.has_unique_names(found, sent):
        from dynamic_mcp.tools import arguments

        arguments.refuse_duplicates(sent, is_flat=True)
    return found


def _call_tool_names(*, split: bool) -> str:
    return f"`{CALL_READ}` or `{CALL_WRITE}`" if split else f"`{CALL}`"


def _build_get(rows: Sequence[GroupRow], *, split: bool) -> dict[str, object]:
    properties: dict[str, object] = {
        "group": _group_schema(rows),
        "query": {"type": "string", "description": "One step, as `create issue`; not the whole task"},
        "detail": {"type": "string", "enum": ["names", "brief", "full"], "description": "full: with input schemas"},
    }
    return {
        "name": GET,
        "description": "Find tools by `query`, in one group (an MCP server) or in all, or list a `group`. Search for "
        f"each step of a task by itself: verb and object, best first. "
        f"Run a tool with {_call_tool_names(split=split)}."
        f"{_format_groups(rows)}",
        "inputSchema": _object_schema(properties, []),
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _build_call(rows: Sequence[GroupRow]) -> dict[str, object]:
    properties: dict[str, object] = {
        "group": _group_schema(rows),
        "name": {"type": "string"},
        "args": {
            "type": "object",
            "additionalProperties": True,
            "description": "As its input schema asks for",
        },
        "select": {"type": "string", "description": "JSONPath: the part of a JSON result to return"},
    }
    return {
        "name": CALL,
        "description": f"Run a tool and return its result. Look up its input schema with {GET} first.",
        "inputSchema": _object_schema(properties, ["group", "name"]),
    }


def _build_call_read(rows: Sequence[GroupRow]) -> dict[str, object]:
    words = f"Run a tool whose annotations say readOnlyHint, as {GET} shows."
    return {**_build_call(rows), "name": CALL_READ, "description": words, "annotations": {"readOnlyHint": True}}


def _build_call_write(rows: Sequence[GroupRow]) -> dict[str, object]:
    words = "Run any other tool: one that may change something."
    annotations = {"readOnlyHint": False, "destructiveHint": True}
    return {**_build_call(rows), "name": CALL_WRITE, "description": words, "annotations": annotations}


def _object_schema(properties: dict[str, object], required: list[str]) -> dict[str, object]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _group_schema(rows: Sequence[GroupRow]) -> dict[str, object]:
    names = [row.name for row in rows]
    return {"type": "string", "enum": names} if names else {"type": "string"}


def _format_groups(rows: Sequence[GroupRow]) -> str:
    up = [f"\n- {row.name}: {row.description}" for row in rows if not row.reason]
    down = [f"\n- {row.name}: {row.description} (Error: {row.reason})" for row in rows if row.reason]
    listed = "\n\nAvailable groups:" + "".join(up) if up else ""
    # a group that is down stays in the schema, since using it triggers an immediate retry
    return listed + ("\n\nUnavailable groups (connection failed):" + "".join(down) if down else "")
