"""Transports of servers that are no process and no URL: this process answers the link itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dynamic_mcp.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, DynamicMcpError, LinkLost, NotSent
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.task_set import TaskSet

LOOK_EVERY_S = 2.0
"""How often folders are compared with what was read of them."""
# Large ones are compared less often: after so many times as long as it took.
_TIMES_AS_LONG = 20


class OwnTransport:
    """Answers each request of one link in a task, which the link may cancel.

    Set `receive`, which receives each line, `lost`, `fail`, which fails a request by its id, and `left_s`, which
    returns the seconds that a request has left, before `start`.
    """

    def __init__(self, group: str, log: logging.Logger) -> None:
        self.group = group
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self.fail: Callable[[bytes, DynamicMcpError], None]
        self.left_s: Callable[[bytes], float]
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

    def _introduce(self) -> Mapping[str, object]:
        """Return the result of `initialize`, without the version of the protocol: that of the link is spoken."""
        raise NotImplementedError

    async def _handle(self, frame: Frame) -> Frame | None:
        """Return the answer to a request; None if there is no such method."""
        raise NotImplementedError

    async def _find_answer(self, frame: Frame) -> Frame:
        match frame.method:
            case "initialize":
                version = wire.member(frame.params, "protocolVersion")
                return wire.result_frame({"protocolVersion": version, **self._introduce()})
            case "ping":
                return wire.result_frame(b"{}")
        answer = await self._handle(frame)
        return answer or wire.error_frame(METHOD_NOT_FOUND, f"there is no method `{frame.method[:100]}`")

    async def _answer(self, frame: Frame) -> None:
        try:
            answer = await self._find_answer(frame)
        except DynamicMcpError as exc:
            self.fail(bytes(frame.id), exc)
            return
        except Exception:
            self._logger.exception("group %s: a bug: %s fails", self.group, frame.method)
            answer = wire.error_frame(INTERNAL_ERROR, "internal error of the proxy")
        self._deliver(wire.answer_line(frame.id, answer))

    def _deliver(self, line: bytes) -> None:
        """Deliver a line to the link, unless it is closed."""
        if not self._is_closed:
            self.receive(line.rstrip(b"\n"))


class FolderTransport(OwnTransport):
    """One that answers from folders, which it reads again when they have changed, until the link is closed."""

    list_changed: ClassVar[str]
    """The notification for clients when the folders have changed."""

    def __init__(self, group: str, log: logging.Logger) -> None:
        super().__init__(group, log)
        self._stamps: object = None
        self._complaints: Sequence[str] = ()

    def _stamp(self) -> object:
        """Return what differs as soon as a file is changed, added or removed. Raises OSError. Blocks."""
        raise NotImplementedError

    def _read(self) -> Sequence[str]:
        """Read the folders; return what is wrong with files that are left out. Raises OSError. Blocks."""
        raise NotImplementedError

    def _start_watch(self) -> None:
        self._tasks.create(self._watch(), name=f"folders of {self.group}")

    async def _watch(self) -> None:
        took_s = 0.0
        while True:
            await asyncio.sleep(max(LOOK_EVERY_S, _TIMES_AS_LONG * took_s))
            began = time.monotonic()
            with contextlib.suppress(OSError):
                if await self._reread_if_changed():
                    self._deliver(wire.notification_line(self.list_changed))
            took_s = time.monotonic() - began

    async def _reread_if_changed(self) -> bool:
        """Read the folders again if they have changed; return whether they had. Raises OSError."""
        has_changed = await asyncio.to_thread(self._stamp) != self._stamps
        if has_changed:
            await self._reread()
        return has_changed

    async def _reread(self) -> None:
        """Read the folders. Raises OSError."""
        before = self._complaints
        self._stamps = await asyncio.to_thread(self._stamp)  # what changes now is read again
        self._complaints = await asyncio.to_thread(self._read)
        for complaint in self._complaints:
            if complaint not in before:
                self._logger.warning("group %s: %s", self.group, complaint)
