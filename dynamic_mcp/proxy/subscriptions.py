"""Sends each client its notifications: changed lists, log messages, updates of resources.

Each client has its own subscription from its greeting to its end. Nothing else here walks over clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from msgspec import Raw

from dynamic_mcp.client import Client, User
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.view import View

if TYPE_CHECKING:  # loaded with the first view that lists clients different tools
    from dynamic_mcp.proxy.surface import Surface

log = logging.getLogger(__name__)

# Changes that come together are announced together.
SETTLE_S = 0.05
# Within this time, other replicas too are thought to answer a list as it has changed.
REPLICAS_SETTLE_S = 1.0
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")  # RFC 5424
# What a client hears that has named no level, of an upstream that was told another client's.
_UNNAMED = LEVELS.index("info")

# What a list answers now, by the feature that it belongs to: objects that are the same as long as the answer is.
# None is a list that is not known yet: callers that asked for it wait, and need no notification of a change.
Snapshot = Mapping[str, Sequence[object] | None]


class Subscriptions:
    """The connected clients, what each was told of the lists, and the log level that each asked for.

    `have_been_several` tells that there was more than one client so far. `has_replicas` tells that a client without
    a session may list elsewhere, where a change is known later: it is told of each again.
    """

    def __init__(
        self,
        view_for: Callable[[Client], View],
        surface_for: Callable[[View, Client], Surface | None],
        snapshot: Callable[[View, Client], Snapshot],
    ) -> None:
        self.have_been_several = False
        self.has_replicas = False
        self._last: ref[Client] | None = None
        self._view_for = view_for
        self._surface_for = surface_for
        self._snapshot = snapshot
        self._announced: dict[Client, Snapshot] = {}
        self._waiting: set[Client] = set()
        self._levels: dict[Client, int] = {}
        self._with_level: WeakSet[Instance] = WeakSet()
        self._announcing: asyncio.TimerHandle | None = None
        self._changed: set[Group] = set()
        self._is_any_changed = False

    def __iter__(self) -> Iterator[Client]:
        return iter(self._announced)

    def __contains__(self, client: object) -> bool:
        return client in self._announced

    def add(self, client: Client) -> None:
        """Remember what the lists answer at the greeting of a client; later changes are announced to it."""
        self._announced[client] = found = self._snapshot(self._view_for(client), client)
        if None in found.values():
            self._waiting.add(client)
        self.have_been_several |= self._last is not None and self._last() is not client
        self._last = ref(client)

    def remove(self, client: Client) -> None:
        self._announced.pop(client, None)
        self._waiting.discard(client)
        self._levels.pop(client, None)

    def close(self) -> None:
        """Stop sending notifications."""
        if self._announcing is not None:
            self._announcing.cancel()
        self._announced.clear()
        self._waiting.clear()

    # --- lists -----------------------------------------------------------------------------------------

    def announce_soon(self, changed: Group | None = None) -> None:
        """Soon notify the clients whose lists have changed; None means that any list may have changed.

        Only clients that see a changed group are notified: of a thousand users, the one whose login it has.
        """
        for client in [*self._waiting]:
            self._note_first(client)
        if changed is None:
            self._is_any_changed = True
        elif self._announced:
            self._changed.add(changed)
        if self._announcing is None and self._announced:
            self._announcing = asyncio.get_running_loop().call_later(SETTLE_S, self._announce)

    def _note_first(self, client: Client) -> None:
        """Remember what a list answers that has just come to be known: what it answers a moment later may be news."""
        before, now = self._announced[client], self._snapshot(self._view_for(client), client)
        for name, each in before.items():
            if each is None and now[name] is not None:
                self._announce_again(client, name)
        self._announced[client] = {name: now[name] if each is None else each for name, each in before.items()}
        if None not in self._announced[client].values():
            self._waiting.discard(client)

    def _announce(self) -> None:
        self._announcing = None
        changed, self._changed = self._changed, set()
        concerns_all, self._is_any_changed = self._is_any_changed, False
        snapshots: dict[tuple[View, Surface | None], Snapshot] = {}
        for client, before in list(self._announced.items()):
            view = self._view_for(client)
            if not concerns_all and not any(map(view.has_group, changed)):
                continue
            key = view, self._surface_for(view, client)
            after = snapshots.get(key) or snapshots.setdefault(key, self._snapshot(view, client))
            self._announced[client] = {name: before[name] if each is None else each for name, each in after.items()}
            for feature, each in after.items():
                if not _is_same(before[feature], each):
                    client.notify(_changed(feature))
                    self._announce_again(client, feature)

    def _announce_again(self, client: Client, feature: str) -> None:
        """Announce a change once more when other replicas too know of it, to a client that may list there."""
        if self.has_replicas and client.hello.revision.is_stateless:
            asyncio.get_running_loop().call_later(REPLICAS_SETTLE_S, self._notify, client, feature)

    def _notify(self, client: Client, feature: str) -> None:
        if client in self._announced:
            client.notify(_changed(feature))

    # --- log messages ----------------------------------------------------------------------------------

    def set_level(self, client: Client, level: Raw) -> None:
        """Send a client messages of this level and above from now on. Raises Malformed."""
        name = wire.text(level)
        if name not in LEVELS:
            raise wire.Malformed(f"`level` must be one of {', '.join(LEVELS)}")
        self._levels[client] = LEVELS.index(name)

    def level_of(self, client: Client) -> str:
        """Return the level that a client has asked for; empty if it has not."""
        level = self._levels.get(client)
        return "" if level is None else LEVELS[level]

    def want_level(self, client: Client, level: str) -> bool:
        """Have this level sent for a client too, which names one in each request; return whether it is a new one."""
        wanted = LEVELS.index(level)
        if wanted >= self._levels.get(client, len(LEVELS)):
            return False
        self._levels[client] = wanted
        return True

    def level_for(self, instance: Instance) -> str | None:
        """Return the most verbose level that a client of an instance asks for; None if its link was told none either.

        A level cannot be taken back: once those who asked are gone, it is the one for clients that named none.
        """
        levels = [self._levels[client] for client in instance.users if client in self._levels]
        if not levels and instance not in self._with_level:
            return None
        return LEVELS[min(levels, default=_UNNAMED)]

    def note_level(self, instance: Instance) -> None:
        """Record the level that an instance's upstream was sent."""
        self._with_level.add(instance)

    def forget_level(self, instance: Instance) -> None:
        """Record that an instance has a new link, which was sent no level."""
        self._with_level.discard(instance)

    def log(self, group: Group, instance: Instance, frame: Frame, recipients: Sequence[User]) -> None:
        """Send a log message of an upstream to those whom it concerns and who want it."""
        if not recipients and instance.users:
            group_logger(log, group.name).debug(
                "group %s: withheld a log message that may concern several clients", group.name
            )
        level = _level_of(frame)
        has_level = self.level_for(instance) is not None
        for caller in recipients:
            client = caller.client
            lowest = self._levels.get(client, _UNNAMED if has_level else 0)
            if level >= lowest and client.has_room(frame):
                caller.notify(_with_group_in_logger(group.name, frame) if client.only is None else frame)

    def complain(self, text: str, level: str) -> None:
        """Send every client a log message of the proxy itself, unless it asked for worse only, or sees no proxy."""
        params = {"level": level, "logger": "dynamic-mcp", "data": text}
        frame = Frame(method="notifications/message", params=Raw(wire.encode(params)))
        for client in self._announced:
            if client.only is None and self._levels.get(client, 0) <= LEVELS.index(level):
                client.notify(frame)


def _changed(feature: str) -> Frame:
    return Frame(method=f"notifications/{feature}/list_changed")


def _is_same(before: Sequence[object] | None, after: Sequence[object] | None) -> bool:
    if before is None or after is None:
        return True
    return len(before) == len(after) and all(a is b or a == b for a, b in zip(before, after, strict=True))


def _level_of(frame: Frame) -> int:
    """Return the severity of a log message; one of an unknown level goes to all clients."""
    name = wire.text(wire.member(frame.params, "level"))
    return LEVELS.index(name) if name in LEVELS else len(LEVELS)


def _with_group_in_logger(group: str, frame: Frame) -> Frame:
    """Put the group in front of the logger's name, so that a client can tell whose words these are."""
    logger = wire.text(wire.member(frame.params, "logger"))
    try:
        params = wire.with_member(frame.params, f"{group}/{logger}" if logger else group, "logger")
    except wire.Malformed:
        return frame
    return Frame(method=frame.method, params=params)


def take_snapshot(view: View, client: Client, tools: Callable[[View, Client], Sequence[object]]) -> Snapshot:
    """Return what the lists of a view answer a client now; `tools` returns what `tools/list` does."""
    if view.scope.is_single:
        return _take_of_one(view)
    return {
        "tools": tools(view, client),
        "resources": _entries(view, ListKind.RESOURCES, ListKind.TEMPLATES, ListKind.SKILLS),
        "prompts": _entries(view, ListKind.PROMPTS),
    }


def _entries(view: View, *kinds: ListKind) -> Sequence[object]:
    found = ((group, kind, group.catalog.entries(kind)) for group in view if group.catalog for kind in kinds)
    return [part for group, kind, each in found if each for part in (group.name, kind, each)]


def _take_of_one(view: View) -> Snapshot:
    """Return what the lists of a group answer that is shown alone."""
    kinds: dict[str, list[ListKind]] = {}
    for kind in ListKind:
        kinds.setdefault(kind.capability, []).append(kind)
    return {feature: _listings(view, each) for feature, each in kinds.items()}


def _listings(view: View, kinds: Sequence[ListKind]) -> Sequence[object] | None:
    """Return these lists as far as they are known; None if they are still to be read, empty without a group."""
    found: list[object] = []
    for group in view:
        if group.catalog is None or not group.catalog.knows(kinds):
            return None
        found += [group.catalog.lists[kind] for kind in kinds]
    return found
