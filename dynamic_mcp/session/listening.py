"""One `subscriptions/listen` of a modern client: what it wants to hear, and the channel that it hears it on."""

from __future__ import annotations

import asyncio

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
    """A stream of notifications. `id` is that of the request; it tells the streams of one client apart."""

    def __init__(self, id: Raw, channel: Channel) -> None:
        self.ended = asyncio.Event()
        self._id = id
        self._channel = channel
        self._methods: frozenset[str] = frozenset()

    def acknowledge(self, honoured: dict[str, object]) -> None:
        """Tell the client what it will hear; nothing goes out before this."""
        self._channel.notify(Frame(method=ACKNOWLEDGED, params=self._mark({"notifications": honoured})))
        methods = {method for name, method in LISTS.items() if honoured.get(name)}
        self._methods = frozenset(methods | ({_UPDATED} if honoured.get(RESOURCES) else set()))

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
