"""MCP Apps: what tools say of their user interface, by the extension and by its forerunners.

`_meta.ui`, and its former key `ui/resourceUri`: SEP-1865, https://github.com/modelcontextprotocol/ext-apps.
`openai/…`: the Apps SDK of OpenAI, whose keys mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Raw, Struct

from dynamic_mcp.mcp import names, wire

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"

# Where `_meta` of a tool names the resource that shows its results.
_LINKS: tuple[tuple[str, ...], ...] = (("ui", "resourceUri"), ("ui/resourceUri",), ("openai/outputTemplate",))


class AppTool(Struct, frozen=True):
    """What a tool says of its UI: the URIs of the resource, by their paths in `_meta`, and who may call the tool."""

    links: Mapping[tuple[str, ...], str]
    is_for_model: bool = True
    is_for_app: bool = True


def may_render(capabilities: Raw) -> bool:
    """Return whether a client declares that it shows the UIs of tools."""
    declared = wire.member(capabilities, "extensions", EXTENSION)
    if not bytes(declared).startswith(b"{"):
        return False
    types = wire.member(declared, "mimeTypes")
    if not len(types):  # which is required, and has one value only
        return True
    listed = wire.value(types)
    return isinstance(listed, list) and MIME_TYPE in listed


def read_app_tools(tools: Mapping[str, Raw]) -> dict[str, AppTool]:
    """Return what tools say of their UI, by name, without those that say nothing of one."""
    found = ((name, _read(wire.member(tool, "_meta"))) for name, tool in tools.items())
    return {name: app for name, app in found if app is not None}


def with_links(tool: Raw, app: AppTool, change: Callable[[str], str | None]) -> Raw:
    """Return a tool with its links changed; None removes one. A tool with the same links keeps its bytes."""
    changed = {path: change(uri) for path, uri in app.links.items()}
    for path, uri in changed.items():
        if uri is None:
            tool = _without(tool, "_meta", *path)
        elif uri != app.links[path]:
            tool = wire.with_member(tool, uri, "_meta", *path)
    return tool


def with_links_in_meta(result: Raw, links: Mapping[tuple[str, ...], str]) -> Raw:
    """Return a tool's result with these links in its `_meta`; where it has one itself, that stays."""
    try:
        for path, uri in links.items():
            if not len(wire.member(result, "_meta", *path)):
                result = wire.with_member(result, uri, "_meta", *path)
    except wire.Malformed:  # a `_meta`, or a member of it, that is no object stays unchanged
        return result
    return result


def with_uris(result: Raw, change: Callable[[str], str]) -> Raw:
    """Return the result of `resources/read` with the URIs of its contents changed."""
    contents = wire.elements(wire.member(result, "contents"))
    return wire.with_member(result, [_with_uri(each, change) for each in contents], "contents")


def _with_uri(content: Raw, change: Callable[[str], str]) -> Raw:
    uri = wire.text(wire.member(content, "uri"))
    if uri is None or not names.is_ui(uri) or (changed := change(uri)) == uri:
        return content
    return wire.with_member(content, changed, "uri")


def _read(meta: Raw) -> AppTool | None:
    links = {path: uri for path in _LINKS if (uri := wire.text(wire.member(meta, *path)))}
    is_for_model, is_for_app = _read_visibility(meta)
    return AppTool(links, is_for_model, is_for_app) if links or not is_for_model else None


def _read_visibility(meta: Raw) -> tuple[bool, bool]:
    """Return whether a tool is for the model, and for the app: both if nothing is said of it."""
    visibility = wire.value(wire.member(meta, "ui", "visibility"))
    if isinstance(visibility, list):
        return "model" in visibility, "app" in visibility
    is_private = wire.text(wire.member(meta, "openai/visibility")) == "private"
    return not is_private, bytes(wire.member(meta, "openai/widgetAccessible")) != b"false"


def _without(data: Raw, *path: str) -> Raw:
    members = wire.members(data)
    name, *deeper = path
    if deeper:
        return Raw(wire.encode({**members, name: _without(members[name], *deeper)}))
    del members[name]
    return Raw(wire.encode(members))
