"""`groups/list` and `groups/get`: the groups of a view one to one, each with the tools that no list shows.

Draft of 2026-09-28: https://github.com/modelcontextprotocol/progressive-disclosure-wg,
seps/0000-progressive-disclosure-groups.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.errors import MISSING_CAPABILITY, RESOURCE_NOT_FOUND
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.own_meta import GROUP
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.direct_listing import DirectListing
from dynamic_mcp.proxy.listed_names import listed_names
from dynamic_mcp.proxy.lists import MISSING, PAGE_ENTRIES, cursor_after, offset
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View

EXTENSION = "io.modelcontextprotocol/groups"
_REQUIRED: dict[str, object] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST = 60  # with room for a number


async def list_groups(request: Request, direct: DirectListing) -> Frame:
    """Answer `groups/list`."""
    if (refused := _refuse(request)) is not None:
        return refused
    params = wire.members(request.params) if len(request.params) else {}
    start = offset(params.get("cursor", wire.NULL))
    named = name_groups(_with_tools(direct))
    groups = [_describe(name, group) for name, group in named.items()]
    result: dict[str, object] = {"groups": groups[start : start + PAGE_ENTRIES]}
    if start + PAGE_ENTRIES < len(groups):
        result["nextCursor"] = cursor_after(start)
    return wire.result_frame(result)


async def get_group(request: Request, direct: DirectListing) -> Frame:
    """Answer `groups/get`, connecting to learn the tools if need be. Raises UpstreamError."""
    if (refused := _refuse(request)) is not None:
        return refused
    name = wire.text(wire.member(request.params, "name"))
    if not name:
        raise wire.Malformed("`name` of the group is missing")
    group = name_groups(_with_tools(direct)).get(name)
    if group is None:
        return wire.error_frame(RESOURCE_NOT_FOUND, f"no group is named `{name[:100]}`")
    catalog = await group.learn_catalog(request.client)
    missing = group.complaint([ListKind.TOOLS]) if catalog.may_have_more(ListKind.TOOLS) else ""
    return wire.result_frame(
        {
            **({"instructions": catalog.instructions} if catalog.instructions else {}),
            "contents": {"tools": _tools(request.view, direct, group, catalog)},
            **({"_meta": {MISSING: {group.name: missing}}} if missing else {}),
        }
    )


def _with_tools(direct: DirectListing) -> list[GroupView]:
    """Return the groups that have tools which are not listed by themselves, or may have some: not skills alone."""
    return [group for group in direct.rest() if group.catalog is None or group.catalog.may("tools")]


def name_groups(groups: Sequence[GroupView]) -> Mapping[str, GroupView]:
    """Return groups by names that the draft allows.

    A name that fits is kept. Any other is made to fit, with a number where that is the name of an earlier group.
    """
    kept = {group.name for group in groups if _NAME.fullmatch(group.name)}
    named: dict[str, GroupView] = {}
    for group in groups:
        name = group.name if group.name in kept else _fit(group.name, kept | named.keys())
        named[name] = group
    return named


def _fit(name: str, taken: Iterable[str]) -> str:
    base = _NOT_IN_NAMES.sub("-", name.lower())[:_LONGEST].strip("-") or "group"
    fitting, number = base, 1
    while fitting in taken:
        number += 1
        fitting = f"{base[: _LONGEST - 3].rstrip('-')}-{number}"
    return fitting


def _describe(name: str, group: GroupView) -> dict[str, object]:
    title = group.catalog.title if group.catalog else ""
    return {
        "name": name,
        **({"title": title} if title else {}),
        "description": group.description,
        **({"_meta": {GROUP: group.name}} if name != group.name else {}),
    }


def _tools(view: View, direct: DirectListing, group: GroupView, catalog: Catalog) -> list[Raw]:
    """Return the tools that are not listed by themselves, under the names by which they are called."""
    listed = {wire.text(wire.member(entry, "name")) for entry in direct.entries()}
    names = listed_names(((group, tool) for tool in catalog.model_tools), view.offering("tools"))
    return [direct.define(tool, name, catalog) for name, tool in names.items() if name not in listed]


def _refuse(request: Request) -> Frame | None:
    """Return the refusal of a client that has not said that it knows the extension."""
    if len(wire.member(request.client.hello.capabilities, "extensions", EXTENSION)):
        return None
    why = f"`{request.method}` needs a client that declares the extension `{EXTENSION}`"
    return wire.error_frame(MISSING_CAPABILITY, why, _REQUIRED)
