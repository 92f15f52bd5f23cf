"""`tools/list` and `tools/call`: our own tools, and beside them or instead of them those that stand by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Raw

from dynamic_mcp.client import Client, ClientInfo
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.lists import MISSING, offset, page
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View
from dynamic_mcp.tools import meta_tools
from dynamic_mcp.tools.meta_tools import CALL, CALL_READ, CALL_WRITE, CALLS, GET, GroupRow

if TYPE_CHECKING:  # loaded with the first call, or the first client that is listed tools by themselves
    from dynamic_mcp.mcp.mirrored_headers import HeaderParameters
    from dynamic_mcp.proxy.apps import OpenApps
    from dynamic_mcp.proxy.calls import Calls
    from dynamic_mcp.proxy.direct_listing import DirectListing, ListedTools, ToolUses
    from dynamic_mcp.proxy.listed_names import Named
    from dynamic_mcp.proxy.own_tools import FindTool, OwnTool
    from dynamic_mcp.proxy.result_store import ResultStore
    from dynamic_mcp.proxy.search import ToolSearch
    from dynamic_mcp.proxy.surface import Surface
    from dynamic_mcp.proxy.tasks import Tasks

_OWN = frozenset((GET, *CALLS))


class Tools:
    """The tools of all groups behind ours."""

    def __init__(
        self,
        chains: Chains,
        tasks: Callable[[], Tasks],
        search: Callable[[], ToolSearch],
        results: Callable[[], ResultStore],
        open_apps: Callable[[], OpenApps],
        uses: Callable[[], ToolUses],
    ) -> None:
        self._search = search
        self._listed_tools: WeakKeyDictionary[View, ListedTools] = WeakKeyDictionary()
        self._surfaces: WeakKeyDictionary[Client, tuple[ClientInfo, Surface]] = WeakKeyDictionary()
        self._chains, self._tasks, self._results, self._open_apps = chains, tasks, results, open_apps
        self._uses = uses
        self.own_tools: dict[str, OwnTool] = {}  # of features, by their names

    @cached_property
    def _calls(self) -> Calls:
        from dynamic_mcp.proxy.calls import Calls

        return Calls(
            self._chains, self._tasks(), self.listed_tools, self.direct_listing, self._results(), self._open_apps
        )

    def surface_for(self, view: View, client: Client) -> Surface | None:
        """Return what decides which tools a client is listed; None where this view lists every client the same."""
        if not view.differs_by_surface and (view.scope.is_single or not _may_render(client)):
            return None
        hello = client.hello
        found = self._surfaces.get(client)
        if found is None or found[0] is not hello:  # it may introduce itself after a request
            from dynamic_mcp.proxy.surface import surface_of

            found = self._surfaces[client] = hello, surface_of(hello)
        return found[1]

    def listed_tools(self, view: View) -> ListedTools:
        """Return the tools of a view that are listed by themselves to some client."""
        found = self._listed_tools.get(view)
        if found is None:
            from dynamic_mcp.proxy.direct_listing import ListedTools

            found = self._listed_tools[view] = ListedTools(view, self._uses)
        return found

    def direct_listing(self, view: View, client: Client) -> DirectListing:
        """Return the tools of a view that a client is listed by themselves."""
        from dynamic_mcp.proxy.surface import PLAIN

        return self.listed_tools(view).listing(self.surface_for(view, client) or PLAIN)

    def _find_direct_listing(self, view: View, client: Client) -> DirectListing | None:
        """Return the tools that a client is listed by themselves; None where the config lists none so."""
        lists_some = any(group.presentation.direct.shows_some for group in view.offering("tools"))
        return self.direct_listing(view, client) if lists_some or self._renders_apps(view, client) else None

    def _renders_apps(self, view: View, client: Client) -> bool:
        surface = self.surface_for(view, client)
        return surface is not None and surface.renders_apps

    def header_parameters(self, view: View, name: str) -> HeaderParameters:
        """Return which parameters of a tool, by the name that it is listed with, are repeated in headers."""
        from dynamic_mcp.mcp.mirrored_headers import NONE_MIRRORED

        found: Named | None = None
        if view.scope.is_single:
            found = next(((group, name) for group in view), None)
        elif name not in _OWN:
            found = self.listed_tools(view).find(name)
        if found is None:
            return NONE_MIRRORED
        group, tool = found
        return NONE_MIRRORED if group.catalog is None else group.catalog.mirrored.get(tool, NONE_MIRRORED)

    # --- tools/list ------------------------------------------------------------------------------------

    async def list_tools(self, request: Request) -> Frame:
        """Answer `tools/list`."""
        params = wire.members(request.params) if len(request.params) else {}
        start = offset(params.get("cursor", wire.NULL))
        rest: dict[str, object] = {}
        direct = self._find_direct_listing(request.view, request.client)
        if direct is not None:
            await direct.learn(request.client)
            missing = direct.missing()
            rest = {"_meta": {MISSING: missing}} if missing else {}
        entries = _entries(request.view, direct, self._own_tools_for(request.view, request.client))
        return wire.result_frame(page(ListKind.TOOLS, entries, start, rest))

    def snapshot(self, view: View, client: Client) -> list[object]:
        """Return objects that are the same as long as `tools/list` answers a client the same."""
        direct = self._find_direct_listing(view, client)
        own_tools: list[object] = []
        if direct is None or not direct.is_all():
            own_tools = [view.scope.split_calls, _has_tasks(view), *_rows(view, direct)]
        added = (tool.describe(view) for tool in self.own_tools.values())
        return [*own_tools, *added, *(() if direct is None else direct.entries())]

    def instructions(self, view: View, client: Client) -> str:
        """Return the instructions for the model of a client about the tools."""
        direct = self._find_direct_listing(view, client)
        about_direct = "" if direct is None else meta_tools.build_direct_instructions(direct.instructions())
        about_ours = ""
        if direct is None or not direct.is_all():
            about_ours = meta_tools.build_instructions(_rows(view, direct), split=view.scope.split_calls)
        return "\n\n".join(filter(None, [view.scope.instructions, about_ours, about_direct]))

    def _own_tools_for(self, view: View, client: Client) -> list[Raw]:
        """Return the tools that features add to ours for a client."""
        found = ((tool, tool.describe(view)) for tool in self.own_tools.values())
        return [entry for tool, entry in found if entry is not None and tool.is_for(client)]

    def differ_by_client(self, view: View) -> bool:
        """Return whether features add tools for some clients of a view only."""
        return any(not tool.is_for_all and tool.describe(view) is not None for tool in self.own_tools.values())

    # --- tools/call ------------------------------------------------------------------------------------

    def call(self, request: Request) -> Awaitable[Frame]:
        """Answer `tools/call`."""
        params = wire.members(request.params)
        name = wire.text(params.get("name"))
        if name == CALL and not request.view.scope.split_calls:
            return self._calls.call_dynamic(request, CALL, params)
        if name == GET:
            return self._search().answer(request, params)
        if name in CALLS:
            return self._call_split(request, name, params)
        if name is None:
            raise wire.Malformed("`name` of the tool is missing")
        own = self.own_tools.get(name)
        if own is not None and own.describe(request.view) is not None and own.is_for(request.client):
            return own.answer(request, params)
        return self._calls.call_by_name(request, name, params)

    def finder_for(self, request: Request) -> FindTool:
        """Return what finds tools as calls of the client of a request would."""
        return partial(self._calls.find_tool, request)

    def _call_split(self, request: Request, verb: str, params: Mapping[str, Raw]) -> Awaitable[Frame]:
        """Answer a call tool of a config with split calls; the other config has the other tools."""
        is_split = request.view.scope.split_calls
        if request.parent is not None:
            return self._calls.call_dynamic(request, CALL, params)
        if is_split and verb != CALL:
            return self._calls.call_dynamic(request, verb, params)
        offered = f"`{CALL_READ}` or `{CALL_WRITE}`" if is_split else f"`{CALL}`"
        raise InvalidArguments(f"`{verb}` is not offered here", hint=f"use {offered} with the same arguments")


def _may_render(client: Client) -> bool:
    """Return whether a client may declare that it shows UIs, without what reads that exactly."""
    return b"io.modelcontextprotocol" in bytes(client.hello.capabilities)


def _entries(view: View, direct: DirectListing | None, added: list[Raw]) -> list[Raw]:
    """Return every listed tool: ours, unless all others are listed by themselves, what features add, and those."""
    if direct is not None and direct.is_all():
        return [*added, *direct.entries()]
    rows = _rows(view, direct)
    own_tools = meta_tools.build_tools(rows, with_tasks=_has_tasks(view), split=view.scope.split_calls)
    listed = (Raw(wire.encode(tool)) for tool in own_tools)
    return [*listed, *added, *(() if direct is None else direct.entries())]


def _rows(view: View, direct: DirectListing | None) -> list[GroupRow]:
    """Return the groups as a model sees them, without those whose tools it sees by themselves."""
    groups = view.offering("tools") if direct is None else direct.rest()
    return [GroupRow(group.name, group.description, group.reason) for group in groups]


def _has_tasks(view: View) -> bool:
    return any(group.catalog and group.catalog.may("tasks", "requests", "tools", "call") for group in view)
