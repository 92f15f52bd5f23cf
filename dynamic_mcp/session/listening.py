"""One `subscriptions/listen` of a modern client: its filter, and the channel for its notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import ModernChannel

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
# The notification for each member of the filter.
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
RESOURCES = "resourceSubscriptions"
_UPDATED = "notifications/resources/updated"


class Listening:
    """A stream of notifications. `id` is that of the request, by which the client tells its streams apart.

    `uris` are the resources in its filter.
    """

    def __init__(self, id: Raw, channel: ModernChannel) -> None:
        self.ended = asyncio.Event()
        self.uris: frozenset[str] = frozenset()
        self._id = id
        self._channel = channel
        self._methods: frozenset[str] = frozenset()

    def acknowledge(self, lists: Mapping[str, bool], uris: Sequence[str]) -> None:
        """Confirm the lists and resources that notifications will be sent for; nothing is sent before this."""
        accepted: dict[str, object] = {**lists, RESOURCES: uris} if uris else {**lists}
        self._channel.notify(Frame(method=ACKNOWLEDGED, params=self._mark({"notifications": accepted})))
        methods = {method for name, method in LISTS.items() if lists.get(name)}
        self._methods = frozenset(methods | ({_UPDATED} if uris else set()))
        self.uris = frozenset(uris)

    def notify(self, frame: Frame) -> None:
        """Send a notification if it matches the filter."""
        if frame.method in self._methods:
            params = wire.members(frame.params) if len(frame.params) else {}
            meta = {**envelope.meta_of(params), envelope.SUBSCRIPTION_ID: self._id}
            self._channel.notify(Frame(method=frame.method, params=Raw(wire.encode({**params, "_meta": meta}))))

    def end_result(self) -> Frame:
        """Return the answer that ends the stream."""
        return wire.result_frame({"resultType": envelope.COMPLETE, "_meta": {envelope.SUBSCRIPTION_ID: self._id}})

    def close(self) -> None:
        self.ended.set()

    def _mark(self, members: dict[str, object]) -> Raw:
        return Raw(wire.encode({"_meta": {envelope.SUBSCRIPTION_ID: self._id}, **members}))


def streams_for(frame: Frame, streams: Iterable[Listening]) -> list[Listening]:
    """Return the streams of a client that a notification may go to.

    An updated resource goes to streams with its URI in the filter, else to those with the beginning of its URI, else
    to all streams.
    """
    candidates = [*streams]
    if frame.method != _UPDATED:
        return candidates
    uri = wire.text(wire.member(frame.params, "uri")) or ""
    exact = [each for each in candidates if uri in each.uris]
    return exact or [each for each in candidates if any(map(uri.startswith, each.uris))] or candidates
