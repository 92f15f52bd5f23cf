"""Messages on their way to a remote server, each by a separate POST.

A request waits only for the messages that set up the session, notifications are sent one after another, and a failure
affects only its own message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.link import Link

log = logging.getLogger(__name__)

# Time for the server to accept a notification or an answer.
ACCEPT_WITHIN_S = 30.0
# Time for parallel requests to fail as not sent, after one has found the server gone.
SETTLE_S = 1.0
# Later requests wait until these are done, as they would on a pipe, but no longer than `_SETUP_WITHIN_S`.
_SETUP_METHODS = frozenset(["logging/setLevel", "resources/subscribe"])
_SETUP_WITHIN_S = 5.0
_MAX_MESSAGES = 1000
# More requests than can be in flight: some have been answered elsewhere, and their streams are still open.
_MAX_REQUESTS = 256


class MessagePoster(Protocol):
    """A transport that posts messages."""

    async def post_request(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request and hand over the response. Raises DynamicMcpError if no answer will arrive."""
        ...

    async def post_message(self, body: bytes) -> None:
        """Post a notification or an answer. Raises DynamicMcpError."""
        ...

    def start_listening(self) -> None:
        """Open the stream for notifications, now that the session is initialized."""
        ...


class Outbox:
    """The outgoing messages of one link; failed requests are reported to the link."""

    def __init__(self, group: str, poster: MessagePoster) -> None:
        self.group = group
        self._logger = group_logger(log, group)
        self.link: Link
        self._poster = poster
        self._requests: dict[bytes, asyncio.Task[None]] = {}
        self._messages = TaskSet(group_logger(log, group))
        self._latest_notification: asyncio.Task[None] | None = None
        self._setup: asyncio.Task[None] | None = None
        self._end: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, line: bytes) -> None:
        """Send one message. Raises NotSent if the link is ending."""
        if self._is_closed:
            raise NotSent(self.group, "the link is being closed")
        if len(self._messages) >= _MAX_MESSAGES:
            raise NotSent(self.group, "the server does not accept messages")
        frame, body = wire.parse(line), line.rstrip(b"\n")
        if not frame.method:
            self._start_message(self._post_message(body))
        elif len(frame.id):
            self._start_request(bytes(frame.id), frame.method, body)
        elif frame.method == "notifications/cancelled":
            self._start_message(self._post_cancellation(bytes(wire.member(frame.params, "requestId")), body))
        else:
            self._latest_notification = self._start_message(self._post_message(body, self._latest_notification))
            if frame.method == "notifications/initialized":
                self._setup = self._latest_notification
                self._setup.add_done_callback(self._start_listening)

    def end_link(self, error: NotSent) -> None:
        """End the link in a moment, because the server is gone or rejects the session."""
        if self._end is None and not self._is_closed:
            self._end = asyncio.create_task(self._end_link(error), name=f"end of the link of {self.group}")

    async def close(self) -> None:
        self._is_closed = True
        if self._end is not None:
            await asyncio.wait([self._end])
        tasks = [*self._requests.values(), *self._messages]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- requests ----------------------------------------------------------------------------------------

    def _start_request(self, id: bytes, method: str, body: bytes) -> None:
        if len(self._requests) > _MAX_REQUESTS:
            for other, task in self._requests.items():
                if not self.link.is_awaiting(other):
                    task.cancel()
        posting = self._post_request(id, method, body, self._setup)
        task = self._requests[id] = asyncio.create_task(posting, name=f"request to {self.group}")
        if method in _SETUP_METHODS:
            self._setup = task
        task.add_done_callback(lambda _: self._requests.pop(id))

    async def _post_request(self, id: bytes, method: str, body: bytes, after: asyncio.Task[None] | None) -> None:
        try:
            if after is not None and not after.done():
                await asyncio.wait([after], timeout=_SETUP_WITHIN_S)
            await self._poster.post_request(id, method, body)
        except NotSent as exc:
            self.link.fail_request(id, exc)
            self.end_link(exc)
        except DynamicMcpError as exc:
            self.link.fail_request(id, exc)
        except Exception:
            self._logger.exception("a bug: group %s: a request fails", self.group)
            self.link.fail_request(id, LinkLost(self.group, "internal error of the proxy"))

    async def _end_link(self, error: NotSent) -> None:
        if self._requests:
            await asyncio.wait([*self._requests.values()], timeout=SETTLE_S)
        self.link.lose(error)

    # --- notifications and answers -------------------------------------------------------------------------

    def _start_message(
        self, posting: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:  # Any: as Coroutine is declared
        return self._messages.create(posting, name=f"message to {self.group}")

    async def _post_message(self, body: bytes, after: asyncio.Task[None] | None = None) -> None:
        if after is not None and not after.done():
            await asyncio.wait([after])
        try:
            async with asyncio.timeout(ACCEPT_WITHIN_S):
                await self._poster.post_message(body)
        except TimeoutError:
            group_logger(log, self.group).warning(
                "group %s: the server did not accept a message within %g s", self.group, ACCEPT_WITHIN_S
            )
        except DynamicMcpError as exc:
            group_logger(log, self.group).warning(
                "group %s: the server did not accept a message: %s", self.group, exc.message
            )
        except Exception:
            self._logger.exception("a bug: group %s: a message fails", self.group)

    async def _post_cancellation(self, id: bytes, body: bytes) -> None:
        """Cancel a request at the server while its stream is still open, then close the stream."""
        try:
            await self._post_message(body)
        finally:
            if id in self._requests:
                self._requests[id].cancel()

    def _start_listening(self, _: asyncio.Task[None]) -> None:
        if not self._is_closed:
            self._poster.start_listening()
