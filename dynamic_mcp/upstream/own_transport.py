"""The transport of a server that is no process and no URL: this process answers the link itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dynamic_mcp.errors import INTERNAL_ERROR, LinkLost, NotSent
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.task_set import TaskSet


class OwnTransport:
    """Answers each request of one link in a task, which the link may cancel.

    Set `receive`, which receives each line, and `lost`, before `start`.
    """

    def __init__(self, group: str, log: logging.Logger) -> None:
        self.group = group
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self._logger = group_logger(log, group)
        self._tasks = TaskSet(self._logger)
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._is_closed = False

    async def start(self) -> None:
        """Get ready to answer. Raises Unreachable."""
        raise NotImplementedError

    def send(self, line: bytes) -> None:
        """Handle one message of the link; an answer is delivered later. Raises NotSent once this is closed."""
        if self._is_closed:
            raise NotSent(self.group, "the link was closed")
        frame = wire.parse(line)
        if frame.method == "notifications/cancelled":
            if task := self._running.get(bytes(wire.member(frame.params, "requestId"))):
                task.cancel()
        elif frame.method and len(frame.id):
            key = bytes(frame.id)
            task = self._running[key] = self._tasks.create(
                self._answer(frame), name=f"{frame.method} of {self.group}"
            )
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def close(self) -> None:
        """Cancel everything that runs, and wait for its end."""
        self._is_closed = True
        self._tasks.cancel_all()
        await self._tasks.wait()

    async def _handle(self, frame: Frame) -> Frame:
        """Return the answer to a request."""
        raise NotImplementedError

    async def _answer(self, frame: Frame) -> None:
        try:
            answer = await self._handle(frame)
        except Exception:
            self._logger.exception("group %s: a bug: %s fails", self.group, frame.method)
            answer = wire.error_frame(INTERNAL_ERROR, "internal error of the proxy")
        self._deliver(wire.answer_line(frame.id, answer))

    def _deliver(self, line: bytes) -> None:
        """Deliver a line to the link, unless it is closed."""
        if not self._is_closed:
            self.receive(line.rstrip(b"\n"))
