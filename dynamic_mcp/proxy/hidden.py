"""Counts what a list keeps from a client, because of access rules or a profile, for whoever observes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.observation import Event
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View
from dynamic_mcp.tools import meta_tools

Answer = Callable[[Request], Awaitable[Frame]]

_KINDS = {
    "tools/list": ListKind.TOOLS,
    "resources/list": ListKind.RESOURCES,
    "resources/templates/list": ListKind.TEMPLATES,
    "prompts/list": ListKind.PROMPTS,
}


class HiddenEntries:
    """Tells of each list from which something was hidden.

    `presented_to` returns the groups that there are where a client is, with what the config presents of them.
    """

    def __init__(
        self,
        presented_to: Callable[[Client], Iterable[tuple[Group, Presentation]]],
        note: Callable[[Event], None],
    ) -> None:
        self._presented_to = presented_to
        self._note = note

    def answer(self, answer: Answer, request: Request) -> Awaitable[Frame]:
        """Have a request answered; if it is one for a list, tell how much of it was hidden."""
        kind = _kind_of(request)
        if kind is None or request.client.is_command:  # a command has chosen itself what it sees
            return answer(request)
        return self._answer_list(answer, request, kind)

    async def _answer_list(self, answer: Answer, request: Request, kind: ListKind) -> Frame:
        frame = await answer(request)
        if not len(frame.error):
            self._note_hidden(request, kind, _chosen_group(request))
        return frame

    def _note_hidden(self, request: Request, kind: ListKind, wanted: str | None) -> None:
        """Tell of what is hidden, if anything is: entries, and groups whose entries perhaps nobody knows."""
        client, view = request.client, request.view
        presented = [
            (group, presentation)
            for group, presentation in self._presented_to(client)
            if wanted in (None, group.name) and client.only in (None, group.name)
        ]
        shown = _count_shown(view, kind, wanted)
        hidden = sum(_count_presented(group, presentation, kind) for group, presentation in presented) - shown
        hidden_groups = sum(view.get(group.name) is None for group, _ in presented)
        if hidden > 0 or hidden_groups:
            method = meta_tools.GET if request.method == "tools/call" else request.method
            counts = {"shown": shown, "hidden": hidden, "hidden_groups": hidden_groups}
            self._note(Event("list", {"method": method, **counts}, client))


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
    return sum(len(group.known.entries(kind)) for group in groups if group.known is not None)


def _count_presented(group: Group, presentation: Presentation, kind: ListKind) -> int:
    """Count what the config presents of a group, before any rule or profile."""
    if group.known is None or not presentation.features.allows(kind.capability):
        return 0
    entries = group.known.entries(kind)
    tools = presentation.tools
    if kind is not ListKind.TOOLS or (tools.include, tools.exclude) == (("*",), ()):
        return len(entries)
    return sum(map(tools.allows, entries))
