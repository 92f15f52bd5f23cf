"""Lists of what groups offer: all groups are asked at once, and one that fails costs the others nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Raw

from dynamic_mcp.cli.client import client, each_group
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.groups.catalog import Catalog, ListKind, one_line
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.tools import meta_tools

_SUMMARY = 200


@dataclass(frozen=True)
class Offered:
    """What came of asking a group: its catalog, or why there is none."""

    group: str
    description: str
    catalog: Catalog | None
    error: DynamicMcpError | None = None
    missing: str = ""


def list_tools(this: Invocation, group: str | None, detail: str, *, is_partial: bool) -> int:
    """Print tools; returns the exit code."""
    found = run(_asked(this.listed(group), [ListKind.TOOLS], this.out))
    if this.out.is_json:
        this.out.json([_detailed(each, tool, detail) for each in found for tool in _entries(each, ListKind.TOOLS)])
    for each in found if not this.out.is_json else ():
        rows = [_tool_row(tool, detail) for tool in _entries(each, ListKind.TOOLS)]
        if each.catalog is not None:
            columns = ["TOOL"] if detail == "names" else ["TOOL", "DESCRIPTION"]
            _show_group(this.out, each, columns, rows, "tools")
    return _complain(this.out, found, is_partial=is_partial)


def list_entries(this: Invocation, group: str | None, kinds: Sequence[ListKind], *, is_partial: bool) -> int:
    """Print resources or prompts; returns the exit code."""
    found = run(_asked(this.listed(group), kinds, this.out))
    if this.out.is_json:
        this.out.json(
            [{"group": each.group, **entry} for each in found for kind in kinds for entry in _entries(each, kind)]
        )
    for each in found if not this.out.is_json else ():
        rows = [_row(entry) for kind in kinds for entry in _entries(each, kind)]
        if each.catalog is not None:
            name = "PROMPT" if ListKind.PROMPTS in kinds else "URI"
            _show_group(this.out, each, [name, "DESCRIPTION"], rows, kinds[0].member)
    return _complain(this.out, found, is_partial=is_partial)


def search_tools(this: Invocation, group: str | None, query: str, detail: str | None) -> int:
    """Print what a model finds with these words; returns the exit code."""
    arguments = {"group": group, "query": query, "detail": detail}
    given = {name: value for name, value in arguments.items() if value is not None}
    result = run(_searched(this.listed(group), given, this.out))
    blocks = [wire.text(wire.member(block, "text")) or "" for block in wire.elements(wire.member(result, "content"))]
    tools, *remarks = blocks or ["[]"]
    if bytes(wire.member(result, "isError")) == b"true":
        raise UpstreamError("", tools)
    if this.out.is_json:
        this.out.json(tools.encode())
    else:
        rows = [_found_row(tool, group) for tool in json.loads(tools)]
        this.out.table(["GROUP", "TOOL", "DESCRIPTION"], rows) if rows else this.out.words(
            f"no tool matches `{query}`"
        )
    for remark in remarks:
        this.out.words(remark)
    return 0


async def _asked(config: Config, kinds: Sequence[ListKind], out: Output) -> list[Offered]:
    with out.waiting("asking", [group.name for group in config.groups]) as waiting:
        async with client(config, out) as made:
            return await each_group(made, waiting, lambda group: _offered(group, kinds))


async def _offered(group: Group, kinds: Sequence[ListKind]) -> Offered:
    allowed = [kind for kind in kinds if group.config.features.allows(kind.capability)]
    try:
        catalog = await group.catalog(ListKind)  # all of it, so that it can be kept
    except DynamicMcpError as exc:
        return Offered(group.name, group.description, None, exc)
    return Offered(group.name, group.description, catalog, missing=group.complaint(allowed))


async def _searched(config: Config, arguments: Mapping[str, object], out: Output) -> Raw:
    with out.waiting("asking", [group.name for group in config.groups]) as waiting:
        async with client(config, out) as made:
            # a search answers from catalogs, so they are learnt first
            await each_group(made, waiting, lambda group: _offered(group, [ListKind.TOOLS]))
            return await made.ask("tools/call", {"name": meta_tools.GET, "arguments": arguments})


def _entries(offered: Offered, kind: ListKind) -> list[dict[str, Raw]]:
    return [wire.members(entry) for entry in offered.catalog.entries(kind).values()] if offered.catalog else []


def _detailed(offered: Offered, tool: Mapping[str, Raw], detail: str) -> dict[str, object]:
    shown = {"names": ("name",), "brief": ("name", "title", "description")}.get(detail, tuple(tool))
    return {"group": offered.group, **{name: tool[name] for name in shown if name in tool}}


def _tool_row(tool: Mapping[str, Raw], detail: str) -> list[str]:
    name = wire.text(tool.get("name")) or ""
    text = wire.text(tool.get("description")) or wire.text(tool.get("title")) or ""
    match detail:
        case "names":
            return [name]
        case "brief":
            return [name, one_line(text, _SUMMARY)]
    return [name, "\n".join(filter(None, [text.strip(), *_parameters(tool)]))]


def _parameters(tool: Mapping[str, Raw]) -> list[str]:
    """Return a line for each parameter of a tool: name, `?` if it may be left out, type, description."""
    try:
        schema = json.loads(bytes(tool.get("inputSchema", wire.EMPTY_OBJECT)))
        required = schema.get("required") or ()
        return [
            f"  {name}{'' if name in required else '?'}: {_type(made)}  {made.get('description', '')}".rstrip()
            for name, made in (schema.get("properties") or {}).items()
        ]
    except (ValueError, AttributeError, TypeError, RecursionError):  # `doctor` says what is wrong with the schema
        return []


def _type(schema: Mapping[str, object]) -> str:
    found = schema.get("enum") or schema.get("type") or "any"
    return "|".join(map(str, found)) if isinstance(found, list) else str(found)


def _row(entry: Mapping[str, Raw]) -> list[str]:
    key = next(filter(None, (wire.text(entry.get(name)) for name in ("uri", "uriTemplate", "name"))), "")
    text = wire.text(entry.get("description")) or wire.text(entry.get("title")) or wire.text(entry.get("name")) or ""
    arguments = [_argument(each) for each in wire.elements(entry.get("arguments", wire.EMPTY_ARRAY))]
    return [" ".join([key, *arguments]), one_line(text, _SUMMARY)]


def _argument(data: Raw) -> str:
    name = wire.text(wire.member(data, "name")) or "?"
    return f"{name}=…" if bytes(wire.member(data, "required")) == b"true" else f"[{name}=…]"


def _found_row(tool: Mapping[str, object], group: str | None) -> list[str]:
    name, text = str(tool.get("name", "")), str(tool.get("description") or tool.get("title") or "")
    return [str(tool.get("group") or group or ""), name, one_line(text, _SUMMARY)]


def _show_group(out: Output, offered: Offered, columns: Sequence[str], rows: list[list[str]], what: str) -> None:
    out.line(f"{offered.group}: {one_line(offered.description)}", "bold")
    if rows:
        out.table(columns, rows)
    else:
        out.line(f"no {what}", indent=2)
    out.line("")


def _complain(out: Output, found: Sequence[Offered], *, is_partial: bool) -> int:
    """Say which groups could not be asked; returns the exit code: that of the first, unless a part is enough."""
    for each in found:
        if each.error is not None:
            out.error(str(each.error))
        elif each.missing:
            out.words(f"group `{each.group}`: {each.missing}")
    if is_partial and any(each.error is None for each in found):
        return 0
    return next((each.error.exit_code for each in found if each.error is not None), 0)
