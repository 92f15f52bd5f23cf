"""Prints the catalogs of groups. Groups are queried concurrently; a failure does not affect the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.cli.client import CommandClient, for_each_group
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools import meta_tools

_SUMMARY = 200


@dataclass(frozen=True)
class GroupListing:
    """A group with its catalog, or the error that prevented reading it."""

    group: str
    description: str
    catalog: Catalog | None
    error: DynamicMcpError | None = None
    missing: str = ""


def list_tools(context: Invocation, group: str | None, detail: str, *, is_partial: bool) -> int:
    """Print tools; return the exit code."""
    listings = run(_list_groups(context, context.read_groups(group), [ListKind.TOOLS]))
    if context.out.is_json:
        context.out.print_json(
            [_select_members(each, tool, detail) for each in listings for tool in _entries(each, ListKind.TOOLS)]
        )
    for each in listings if not context.out.is_json else ():
        rows = [_tool_row(tool, detail, _remark(each, tool)) for tool in _entries(each, ListKind.TOOLS)]
        if each.catalog is not None:
            columns = ["TOOL"] if detail == "names" else ["TOOL", "DESCRIPTION"]
            _show_group(context.out, each, columns, rows, "tools")
    return _report_problems(context.out, listings, is_partial=is_partial)


def list_entries(context: Invocation, group: str | None, kinds: Sequence[ListKind], *, is_partial: bool) -> int:
    """Print resources or prompts; return the exit code. Without a group, URIs are those that AI tools see."""
    renamed = kinds if group is None and ListKind.RESOURCES in kinds else ()
    listings = run(_list_groups(context, context.read_groups(group), kinds, renamed))
    if context.out.is_json:
        context.out.print_json(
            [{"group": each.group, **entry} for each in listings for kind in kinds for entry in _entries(each, kind)]
        )
    for each in listings if not context.out.is_json else ():
        rows = [_row(entry) for kind in kinds for entry in _entries(each, kind)]
        if each.catalog is not None:
            name = "PROMPT" if ListKind.PROMPTS in kinds else "URI"
            _show_group(context.out, each, [name, "DESCRIPTION"], rows, kinds[0].member)
    return _report_problems(context.out, listings, is_partial=is_partial)


def search_tools(context: Invocation, group: str | None, query: str, detail: str | None) -> int:
    """Print the tools that a model finds with this query; return the exit code."""
    arguments = {"group": group, "query": query, "detail": detail}
    parameters = {name: value for name, value in arguments.items() if value is not None}
    result = run(_search(context, context.read_groups(group), parameters))
    blocks = [wire.text(wire.member(block, "text")) or "" for block in wire.elements(wire.member(result, "content"))]
    tools, *remarks = blocks or ['{"tools": []}']
    if bytes(wire.member(result, "isError")) == b"true":
        raise UpstreamError("", tools)
    rows = [_match_row(tool, group, detail) for tool in wire.elements(wire.member(Raw(tools.encode()), "tools"))]
    columns = ["GROUP", "TOOL", "DESCRIPTION"]
    context.out.print_rows(tools.encode(), columns, rows, if_none=f"no tool matches `{query}`")
    for remark in remarks:
        context.out.say(remark)
    return 0


async def _list_groups(
    context: Invocation, config: Config, kinds: Sequence[ListKind], renamed: Sequence[ListKind] = ()
) -> list[GroupListing]:
    """Return what each group lists; the entries of `renamed` lists as they are in the list of all groups."""
    with context.out.progress("asking", [group.name for group in config.groups]) as progress:
        async with open_client(context, config) as client:
            listings = await for_each_group(client, progress, lambda group: _list_group(group, kinds))
            # only now are all groups known, some of which may have the same URIs
            return [await _rename(client, each, renamed) for each in listings] if renamed else listings


async def _rename(client: CommandClient, listing: GroupListing, kinds: Sequence[ListKind]) -> GroupListing:
    if listing.catalog is None:
        return listing
    lists = {
        kind: replace(listing.catalog.lists[kind], entries=await _ask_for_entries(client, listing.group, kind))
        for kind in kinds
        if listing.catalog.entries(kind)
    }
    return dataclasses.replace(listing, catalog=listing.catalog.with_lists(lists))


async def _ask_for_entries(client: CommandClient, group: str, kind: ListKind) -> dict[str, Raw]:
    entries: dict[str, Raw] = {}
    params: dict[str, object] = {"group": group}
    while True:
        page = wire.members(await client.ask(kind.method, params))
        for entry in wire.elements(page[kind.member]):
            entries[wire.text(wire.member(entry, kind.key)) or ""] = entry
        if "nextCursor" not in page:
            return entries
        params["cursor"] = page["nextCursor"]


async def _list_group(group: ClientGroup, kinds: Sequence[ListKind]) -> GroupListing:
    allowed = [kind for kind in kinds if group.offers(kind.capability)]
    try:
        catalog = await group.read_catalog(ListKind)  # the whole catalog, so that it can be cached
    except DynamicMcpError as exc:
        return GroupListing(group.name, group.description, None, exc)
    missing = group.complaint(allowed)
    listings = [catalog.lists[kind] for kind in allowed if kind in catalog.lists]
    if listings and all(each.has_failed and not each.entries for each in listings):
        return GroupListing(group.name, group.description, None, UpstreamError(group.name, missing))
    return GroupListing(group.name, group.description, catalog, missing=missing)


async def _search(context: Invocation, config: Config, arguments: Mapping[str, object]) -> Raw:
    with context.out.progress("asking", [group.name for group in config.groups]) as progress:
        async with open_client(context, config) as client:
            # a search only looks at known catalogs, so they are fetched first
            await for_each_group(client, progress, lambda group: _list_group(group, [ListKind.TOOLS]))
            return await client.ask("tools/call", {"name": meta_tools.GET, "arguments": arguments})


def _entries(listing: GroupListing, kind: ListKind) -> list[dict[str, Raw]]:
    return [wire.members(entry) for entry in listing.catalog.entries(kind).values()] if listing.catalog else []


def _select_members(listing: GroupListing, tool: Mapping[str, Raw], detail: str) -> dict[str, object]:
    members = {"names": ("name",), "brief": ("name", "title", "description")}.get(detail, tuple(tool))
    return {"group": listing.group, **{name: tool[name] for name in members if name in tool}}


def _remark(listing: GroupListing, tool: Mapping[str, Raw]) -> str:
    name = wire.text(tool.get("name")) or ""
    is_hidden = listing.catalog is not None and name not in listing.catalog.model_tools
    return "(for apps only) " if is_hidden else ""


def _tool_row(tool: Mapping[str, Raw], detail: str, remark: str) -> list[str]:
    name = wire.text(tool.get("name")) or ""
    text = remark + (wire.text(tool.get("description")) or wire.text(tool.get("title")) or "")
    match detail:
        case "names":
            return [name]
        case "brief":
            return [name, one_line(text, _SUMMARY)]
    return [name, "\n".join(filter(None, [text.strip(), *_parameters(tool)]))]


def _parameters(tool: Mapping[str, Raw]) -> list[str]:
    """Return a line for each parameter of a tool: name, `?` if optional, type, description."""
    try:
        schema = json.loads(bytes(tool.get("inputSchema", wire.EMPTY_OBJECT)))
        required = schema.get("required") or ()
        return [
            f"  {name}{'' if name in required else '?'}: {_type_of(member)}  {member.get('description', '')}".rstrip()
            for name, member in (schema.get("properties") or {}).items()
        ]
    except (ValueError, AttributeError, TypeError, RecursionError):  # `doctor` reports invalid schemas
        return []


def _type_of(schema: Mapping[str, object]) -> str:
    kind = schema.get("enum") or schema.get("type") or "any"
    return "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _row(entry: Mapping[str, Raw]) -> list[str]:
    key = next(filter(None, (wire.text(entry.get(name)) for name in ("uri", "uriTemplate", "name"))), "")
    text = wire.text(entry.get("description")) or wire.text(entry.get("title")) or wire.text(entry.get("name")) or ""
    arguments = [_argument(each) for each in wire.elements(entry.get("arguments", wire.EMPTY_ARRAY))]
    return [" ".join([key, *arguments]), one_line(text, _SUMMARY)]


def _argument(data: Raw) -> str:
    name = wire.text(wire.member(data, "name")) or "?"
    return f"{name}=…" if bytes(wire.member(data, "required")) == b"true" else f"[{name}=…]"


def _match_row(found: Raw, group: str | None, detail: str | None) -> list[str]:
    tool = wire.members(found)
    name, *others = _tool_row(tool, "full" if detail == "full" else "brief", "")
    return [wire.text(tool.get("group")) or group or "", name, *others]


def _show_group(out: Output, listing: GroupListing, columns: Sequence[str], rows: list[list[str]], what: str) -> None:
    out.print_line(f"{listing.group}: {one_line(listing.description)}", "bold")
    if rows:
        out.print_table(columns, rows)
    else:
        out.print_line(f"no {what}", indent=2)
    out.print_line("")


def _report_problems(out: Output, listings: Sequence[GroupListing], *, is_partial: bool) -> int:
    """Print the errors of groups; return the exit code of the first, or 0 if a partial result is accepted."""
    for each in listings:
        if each.error is not None:
            out.print_error(str(each.error))
        elif each.missing:
            out.say(f"group `{each.group}`: {each.missing}")
    if is_partial and any(each.error is None for each in listings):
        return 0
    return next((each.error.exit_code for each in listings if each.error is not None), 0)
