"""The two tools that a model sees: their names, texts and schemas. The same input gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GET = "get_dynamic_tools"
CALL = "call_dynamic_tool"


@dataclass(frozen=True)
class Row:
    """A group as a model sees it; `reason` says why it is down, and is empty while it is not."""

    name: str
    description: str
    reason: str = ""


def tools(rows: Sequence[Row], *, with_tasks: bool = False) -> dict[str, object]:
    """Return the result of `tools/list`; `with_tasks` where a call may be made as a task of MCP 2025-11-25."""
    call = _call(rows)
    return {"tools": [_get(rows), {**call, "execution": {"taskSupport": "optional"}} if with_tasks else call]}


def instructions(rows: Sequence[Row]) -> str:
    """Tell a model how to use the two tools, and which groups there are."""
    if not rows:
        return "No MCP server is configured here yet, so there are no tools to call."
    names = ", ".join(row.name for row in rows)
    return (
        f"The tools of several MCP servers are here in groups: {names}. "
        f"Before you say that something cannot be done, look for a tool: `{GET}` finds tools by a `query` for "
        f"one step (`create issue`), or shows a `group`; `{CALL}` runs one."
    )


def _get(rows: Sequence[Row]) -> dict[str, object]:
    properties: dict[str, object] = {
        "group": _group(rows),
        "query": {"type": "string", "description": "One step, as `create issue`; not the whole task"},
        "detail": {"type": "string", "enum": ["names", "brief", "full"], "description": "full: with input schemas"},
    }
    return {
        "name": GET,
        "description": "Find tools by `query`, in one group (an MCP server) or in all, or list a `group`. Search for "
        f"each step of a task by itself: verb and object, best first. Run a tool with {CALL}.{_listed(rows)}",
        "inputSchema": _schema(properties, []),
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _call(rows: Sequence[Row]) -> dict[str, object]:
    properties: dict[str, object] = {
        "group": _group(rows),
        "name": {"type": "string", "description": "The tool's name, without the group"},
        "args": {
            "type": "object",
            "additionalProperties": True,
            "description": "The tool's arguments, as its input schema asks for",
        },
    }
    return {
        "name": CALL,
        "description": f"Run a tool of a group and return its result. Its input schema comes from {GET}: "
        "look there first.",
        "inputSchema": _schema(properties, ["group", "name"]),
    }


def _schema(properties: dict[str, object], required: list[str]) -> dict[str, object]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _group(rows: Sequence[Row]) -> dict[str, object]:
    names = [row.name for row in rows]
    return {"type": "string", "enum": names} if names else {"type": "string"}


def _listed(rows: Sequence[Row]) -> str:
    up = [f"\n- {row.name}: {row.description}" for row in rows if not row.reason]
    down = [f"\n- {row.name}: {row.description} (Error: {row.reason})" for row in rows if row.reason]
    listed = "\n\nAvailable groups:" + "".join(up) if up else ""
    # a group that is down stays in the schema: using it is what tries it again at once
    return listed + ("\n\nUnavailable groups (connection failed):" + "".join(down) if down else "")
