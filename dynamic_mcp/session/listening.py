"""One `subscriptions/listen` of a modern client: what it wants to hear, and the channel that it hears it on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import Channel

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
# Which notification each member of the filter asks for.
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
RESOURCES = "resourceSubscriptions"
_UPDATED = "notifications/resources/updated"


class Listening:
    """A stream of notifications. `id` is that of the request; it tells the streams of one client apart.

    `uris` are the resources that it is for.
    """

    def __init__(self, id: Raw, channel: Channel) -> None:
        self.ended = asyncio.Event()
        self.uris: frozenset[str] = frozenset()
        self._id = id
        self._channel = channel
        self._methods: frozenset[str] = frozenset()

    def acknowledge(self, lists: Mapping[str, bool], uris: Sequence[str]) -> None:
        """Tell the client which lists and resources it will hear of; nothing goes out before this."""
        honoured: dict[str, object] = {**lists, RESOURCES: uris} if uris else {**lists}
        self._channel.notify(Frame(method=ACKNOWLEDGED, params=self._mark({"notifications": honoured})))
        methods = {method for name, method in LISTS.items() if lists.get(name)}
        self._methods = frozenset(methods | ({_UPDATED} if uris else set()))
        self.uris = frozenset(uris)

    def notify(self, frame: Frame) -> None:
        """Send a notification, if it is of a kind that this stream is for."""
        if frame.method in self._methods:
            params = wire.members(frame.params) if len(frame.params) else {}
            meta = {**envelope.meta_of(params), envelope.SUBSCRIPTION_ID: self._id}
            self._channel.notify(Frame(method=frame.method, params=Raw(wire.encode({**params, "_meta": meta}))))

    def end_result(self) -> Frame:
        """Return the answer that ends the stream in good order."""
        return wire.result_frame({"resultType": envelope.COMPLETE, "_meta": {envelope.SUBSCRIPTION_ID: self._id}})

    def close(self) -> None:
        """End the stream."""
        self.ended.set()

    def _mark(self, members: dict[str, object]) -> Raw:
        return Raw(wire.encode({"_meta": {envelope.SUBSCRIPTION_ID: self._id}, **members}))


def streams_for(frame: Frame, streams: Iterable[Listening]) -> list[Listening]:
    """Return the streams of a client that a notification may go to.

    An updated resource goes to those that are for it, else to those that are for what it is a part of by its URI,
    else to all that are for resources.
    """
    everyone = [*streams]
    if frame.method != _UPDATED:
        return everyone
    uri = wire.text(wire.member(frame.params, "uri")) or ""
    exact = [each for each in everyone if uri in each.uris]
    return exact or [each for each in everyone if any(map(uri.startswith, each.uris))] or everyone
