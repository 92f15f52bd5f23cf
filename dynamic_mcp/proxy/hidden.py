"""Reports to observers what access rules or a profile hide from a client, in lists and when it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.errors import NotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Event, Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.proxy.views import Views
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.tools import meta_tools

Answer = Callable[[Request], Awaitable[Frame]]

_KINDS = {kind.method: kind for kind in ListKind}
# Groups whose overridden tools are counted once.
_MAX_GROUPS = 1000
_USES = frozenset(("tools/call", "resources/read", "prompts/get"))


class HiddenThings:
    """Tells of each list from which something was hidden, and of each use of something that is."""

    def __init__(self, views: Views, note: Callable[[Event], None]) -> None:
        self._views = views
        self._note = note
        self._counts: BoundedDict[str, tuple[Catalog, Presentation, int]] = BoundedDict(_MAX_GROUPS)

    def answer(self, answer: Answer, request: Request) -> Awaitable[Frame]:
        """Have a request answered, and tell what of it was hidden."""
        if request.client.is_command:  # a command has chosen itself what it sees
            return answer(request)
        kind = _kind_of(request)
        if kind is not None:
            return self._answer_list(answer, request, kind)
        return self._answer_use(answer, request) if request.method in _USES else answer(request)

    async def _answer_use(self, answer: Answer, request: Request) -> Frame:
        try:
            frame = await answer(request)
        except NotFound:
            self._note_denial(request)
            raise
        observation = request.observation
        if (
            len(frame.error)
            and request.client.only is not None
            and observation is not None
            and observation.sent is None
        ):
            self._note_denial(request)  # as a separate server would say it
        return frame

    def _note_denial(self, request: Request) -> None:
        rules, observation = self._views.rules_for(request.client), request.observation
        if rules is not None and observation is not None:
            from dynamic_mcp.proxy.denials import find_denial

            observation.denial = find_denial(observation, rules, self._views.presented_to(request.client))

    async def _answer_list(self, answer: Answer, request: Request, kind: ListKind) -> Frame:
        frame = await answer(request)
        if not len(frame.error):
            self._note_hidden(request, kind, _chosen_group(request))
        return frame

    def _note_hidden(self, request: Request, kind: ListKind, wanted: str | None) -> None:
        """Report hidden entries, if there are any, and groups whose entries may be unknown."""
        client, view = request.client, request.view
        presented = [
            (group, presentation)
            for group, presentation in self._views.presented_to(client)
            if wanted in (None, group.name) and client.only in (None, group.name)
        ]
        shown = _count_shown(view, kind, wanted)
        hidden = sum(self._count_presented(group, presentation, kind) for group, presentation in presented) - shown
        hidden_groups = sum(view.get(group.name) is None for group, _ in presented)
        if hidden > 0 or hidden_groups:
            counts = {"shown": shown, "hidden": hidden, "hidden_groups": hidden_groups}
            if request.method == "tools/call" and request.observation is not None:
                request.observation.hidden = counts  # it is observed itself
            else:
                self._note(Event("list", {"method": request.method, **counts}, client))

    def _count_presented(self, group: Group, presentation: Presentation, kind: ListKind) -> int:
        """Count what the config presents of a group, before any rule or profile."""
        if group.catalog is None or not presentation.features.allows(kind.capability):
            return 0
        entries = group.catalog.entries(kind)
        if kind is not ListKind.TOOLS:
            return len(entries)
        if presentation.rules and _shows_tools(presentation):
            return self._count_overridden(group, presentation, group.catalog)
        tools = presentation.tools
        return len(entries) if (tools.include, tools.exclude) == (("*",), ()) else sum(map(tools.allows, entries))

    def _count_overridden(self, group: Group, presentation: Presentation, catalog: Catalog) -> int:
        entry = self._counts.get(group.name)
        if entry is None or entry[0] is not catalog or entry[1] is not presentation:
            shown = GroupView(group, presentation).catalog
            entry = catalog, presentation, 0 if shown is None else len(shown.tools)
            self._counts[group.name] = entry
        return entry[2]


def _shows_tools(presentation: Presentation) -> bool:
    from dynamic_mcp.policy.call_rules import shows_tools

    return shows_tools(presentation)


def _kind_of(request: Request) -> ListKind | None:
    """Return what a request lists; None if it lists nothing."""
    if request.method != "tools/call":
        return _KINDS.get(request.method)
    is_ours = request.client.only is None and wire.text(wire.member(request.params, "name")) == meta_tools.GET
    return ListKind.TOOLS if is_ours else None


def _chosen_group(request: Request) -> str | None:
    """Return the group that a list is to be of; None if of all."""
    path = ("arguments", "group") if request.method == "tools/call" else ("group",)
    return wire.text(wire.member(request.params, *path))


def _count_shown(view: View, kind: ListKind, wanted: str | None) -> int:
    groups = (group for group in view.offering(kind.capability) if wanted in (None, group.name))
    return sum(len(group.catalog.entries(kind)) for group in groups if group.catalog is not None)
