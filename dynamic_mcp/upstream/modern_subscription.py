"""The one `subscriptions/listen` of a link, which reports changes at a modern upstream to the owner of the link.

It is reopened when its resources change, and when it breaks, with growing delays. The new stream is acknowledged
before the old one ends, so that no change is missed. It does not count as a call: an idle link may close.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.errors import (
    DynamicMcpError,
    ErrorAnswer,
    HttpError,
    LinkLost,
    LoginNeeded,
    ProtocolViolation,
    TimedOut,
)
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import delays
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.handshake import ServerInfo, error_code
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.modern_stamp import Stamp

log = logging.getLogger(__name__)

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
# Time for the upstream to acknowledge.
_ACKNOWLEDGE_WITHIN_S = 10.0
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
# After a stream that lived this long, the delays restart; a server that ends one sooner does not want it.
_LONG_LIVED_S = 10.0
_LISTS = ("tools", "prompts", "resources")


class _Stream:
    """One request to listen; `id` and `honoured`, the reported resources, are set when it is acknowledged."""

    def __init__(self, request: asyncio.Task[Frame], uris: frozenset[str], began: float) -> None:
        self.request = request
        self.uris = uris
        self.began = began
        self.id = b""
        self.honoured: frozenset[str] = frozenset()
        self.acknowledged = asyncio.Event()


class ModernSubscription:
    """The subscription of one link to lists and resources; `pass_on` receives each notification."""

    def __init__(
        self,
        link: Link,
        stamp: Stamp,
        server: ServerInfo,
        pass_on: Callable[[Frame], None],
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._link = link
        self._stamp = stamp
        self._pass_on = pass_on
        self._jitter = jitter
        self._logger = group_logger(log, link.group)
        self._lists = tuple(name for name in _LISTS if _declares(server, name, "listChanged"))
        self._uris: dict[str, None] = {}
        self._current: _Stream | None = None
        self._opening: _Stream | None = None
        self._changing = asyncio.Lock()
        self._tasks = TaskSet(self._logger)
        self._delays_s = delays(FIRST_DELAY_S, LONGEST_DELAY_S, jitter)
        self._is_closed = False

    def start(self) -> None:
        """Start to listen if the upstream reports changes of its lists."""
        if self._lists:
            self._tasks.create(self._open_or_retry(), name=f"listening to {self._link.group}")

    async def add(self, uri: str, within_s: float) -> bool:
        """Subscribe to a resource; return whether the upstream reports its changes. Raises DynamicMcpError."""
        self._uris[uri] = None
        try:
            await self._renew(within_s)
        except BaseException:
            self._uris.pop(uri, None)
            raise
        is_honoured = self._current is not None and uri in self._current.honoured
        if not is_honoured:
            self._uris.pop(uri, None)
        return is_honoured

    async def remove(self, uri: str, within_s: float) -> None:
        """Unsubscribe from a resource. Raises DynamicMcpError."""
        self._uris.pop(uri, None)
        await self._renew(within_s)

    async def close(self) -> None:
        self._is_closed = True
        self._tasks.cancel_all()
        await self._tasks.wait()

    # --- from the upstream -----------------------------------------------------------------------------

    def take(self, frame: Frame) -> bool:
        """Pass on a notification of the current stream; return whether it belongs to any stream."""
        id = bytes(wire.member(frame.params, "_meta", envelope.SUBSCRIPTION_ID))
        if frame.method == ACKNOWLEDGED:
            self._acknowledge(id, frame.params)
            return True
        if not id:
            return False
        if self._current is not None and id == self._current.id:
            self._pass_on(_without_id(frame))
        return True

    def end(self, id: bytes) -> None:
        """Called when the upstream cancels a stream."""
        if self._opening is not None or (self._current is not None and id == self._current.id):
            self._link.fail_request(id, LinkLost(self._link.group, "the server ended the subscription"))

    def _acknowledge(self, id: bytes, params: Raw) -> None:
        stream, before = self._opening, self._current
        if self._is_closed or stream is None or stream.acknowledged.is_set():
            return
        if not id or (before is not None and before.id == id):
            return
        uris = wire.value(wire.member(params, "notifications", "resourceSubscriptions"))
        stream.id = id
        stream.honoured = (
            frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()
        )
        stream.acknowledged.set()
        self._current = stream
        self._tasks.create(self._watch(stream), name=f"listening to {self._link.group}")
        if before is not None:
            before.request.cancel("replaced by another subscription")

    # --- streams ---------------------------------------------------------------------------------------

    async def _renew(self, within_s: float) -> None:
        """Replace the stream if other resources are wanted than it has."""
        async with self._changing:
            wanted = frozenset(self._uris)
            current = self._current
            if self._is_closed or (current is not None and current.uris == wanted):
                return
            if not wanted and not self._lists:
                self._current = None
                if current is not None:
                    current.request.cancel("nothing is subscribed to")
                return
            await self._open(wanted, within_s)

    async def _open(self, wanted: frozenset[str], within_s: float) -> None:
        loop = asyncio.get_running_loop()
        notifications: dict[str, object] = {f"{name}ListChanged": True for name in self._lists}
        if wanted:
            notifications["resourceSubscriptions"] = sorted(wanted)
        params = self._stamp.params({"notifications": Raw(wire.encode(notifications))})
        request = loop.create_task(self._link.request("subscriptions/listen", params, timeout_s=math.inf))
        request.add_done_callback(lambda each: each.cancelled() or each.exception())
        stream = self._opening = _Stream(request, wanted, loop.time())
        acknowledging = loop.create_task(stream.acknowledged.wait())
        try:
            within_s = min(within_s, _ACKNOWLEDGE_WITHIN_S)
            await asyncio.wait((request, acknowledging), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if not stream.acknowledged.is_set():
                self._raise_failure(request, within_s)
        finally:
            acknowledging.cancel()
            self._opening = None
            if not stream.acknowledged.is_set():
                request.cancel()

    def _raise_failure(self, request: asyncio.Task[Frame], within_s: float) -> None:
        group, what = self._link.group, "subscriptions/listen"
        if not request.done():
            raise TimedOut(group, f"did not acknowledge {what} within {within_s:g} s")
        answer = request.result()
        if len(answer.error):
            message = wire.text(wire.member(answer.error, "message")) or "an error"
            raise ErrorAnswer(group, f"answered {what} with the error: {message}", code=error_code(answer))
        raise ProtocolViolation(group, f"answered {what} without acknowledging it")

    async def _watch(self, stream: _Stream) -> None:
        """Wait for the end of a stream, and open another one unless it was replaced."""
        try:
            await asyncio.wait([stream.request])
        except asyncio.CancelledError:
            stream.request.cancel()
            await asyncio.wait([stream.request])  # it tells the upstream
            raise
        if self._current is not stream or self._is_closed:
            return
        self._current = None
        is_long_lived = asyncio.get_running_loop().time() - stream.began >= _LONG_LIVED_S
        if is_long_lived:
            self._delays_s = delays(FIRST_DELAY_S, LONGEST_DELAY_S, self._jitter)
        elif _has_result(stream.request):
            self._logger.debug("group %s: the server ended the subscription", self._link.group)
            return
        await asyncio.sleep(next(self._delays_s))
        await self._open_or_retry(is_again=True)

    async def _open_or_retry(self, *, is_again: bool = False) -> None:
        """Open a stream; retry while the link is live and the upstream does not refuse."""
        while self._link.loss is None:
            try:
                await self._renew(_ACKNOWLEDGE_WITHIN_S)
            except DynamicMcpError as exc:
                self._logger.debug("group %s: no subscription: %s", self._link.group, exc.message)
                if _is_final(exc):
                    return
                await asyncio.sleep(next(self._delays_s))
                is_again = True
            else:
                if is_again:  # they may have changed in between
                    self._announce_all()
                return

    def _announce_all(self) -> None:
        for name in self._lists:
            self._pass_on(Frame(method=f"notifications/{name}/list_changed"))


def _declares(server: ServerInfo, capability: str, part: str) -> bool:
    declared = wire.member(server.capabilities.get(capability, wire.EMPTY_OBJECT), part)
    return bytes(declared) not in (b"", b"null", b"false")


def _is_final(error: DynamicMcpError) -> bool:
    """Return whether another attempt would fail too."""
    if isinstance(error, HttpError):
        return error.status < 500 and error.status != 429
    return isinstance(error, ErrorAnswer | ProtocolViolation | LoginNeeded)


def _has_result(request: asyncio.Task[Frame]) -> bool:
    return not request.cancelled() and request.exception() is None and len(request.result().result) > 0


def _without_id(frame: Frame) -> Frame:
    """Return a notification in the form of a legacy server."""
    members = wire.members(frame.params)
    meta = envelope.meta_of(members)
    del meta[envelope.SUBSCRIPTION_ID]
    if meta:
        members["_meta"] = Raw(wire.encode(meta))
    else:
        del members["_meta"]
    return replace(frame, params=Raw(wire.encode(members)) if members else wire.ABSENT)
