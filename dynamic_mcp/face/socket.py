"""The socket face: one window at the other end of a Unix socket, from its hello until either side closes.

The window forwards its client's lines and keeps each until the daemon reports its number as handled.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Protocol, cast

from msgspec import Struct

from dynamic_mcp.face import frames, limits
from dynamic_mcp.mcp import lines
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.continuation import Continuation, Resumption, SessionJournal
from dynamic_mcp.session.server import LineSession
from dynamic_mcp.system.private_socket import is_own_peer

log = logging.getLogger(__name__)

# Lines of one window that are taken in one turn.
_LINES_A_TURN = 64
# Close the connection of a window that has not read for this long while its queue is full.
UNREAD_FOR_S = 60.0
# How long a hello may take, and its size limit: it has the environment, and all unanswered lines.
HELLO_WITHIN_S = 10.0
_MAX_HELLO_BYTES = 1 << 30
# How long a window may take to read the last output.
_FLUSH_WITHIN_S = 0.5


class Hello(Struct, frozen=True):
    """The first message of a window: its purpose (`session`, `command` or `stop`), and where it was started."""

    purpose: str
    config: str
    version: str
    directory: str
    environment: Mapping[str, str]
    continuation: Continuation
    only: str | None = None
    profile: str | None = None

    def __repr__(self) -> str:
        return f"<Hello {self.purpose} from {self.directory}>"


class Reception(Protocol):
    """Accepts windows; implemented by the daemon."""

    async def admit(self, face: SocketFace, hello: Hello) -> LineSession | None:
        """Return the session of a window; None if it is refused or needs none."""
        ...

    def dismiss(self, face: SocketFace) -> None:
        """Called when a window disconnects."""
        ...


class SocketFace(asyncio.Protocol):
    """Passes lines from a window to its session, and frames from the session to the window."""

    def __init__(self, reception: Reception, max_message_bytes: int) -> None:
        self.session: LineSession | None = None
        self.lines_taken = 0
        self.ended = asyncio.Event()
        self._reception = reception
        self._journal = SessionJournal(self._keep)
        self._lines = lines.Lines(max_message_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._hello = bytearray()
        self._queue = deque[bytes]()
        self._notes = b""
        self._is_full = self._is_taking = self._is_stopping = False
        self._resumption: Resumption | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the hello, then of the end
        self._unread_timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._admission: asyncio.Task[None] | None = None

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class has the methods, but is no subclass
        try:
            is_own = is_own_peer(transport.get_extra_info("socket"))
        except OSError:  # already disconnected
            self._transport.abort()
            return
        if not is_own:
            log.warning("refused a connection of another user")
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=limits.UNREAD_BYTES)
        self._timer = self._loop.call_later(HELLO_WITHIN_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._admission is not None:
            self._receive(data)
        else:
            self._hello += data
            self._take_hello()

    def eof_received(self) -> bool:
        """Close the connection too: a window never closes only one direction."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_unread_timer()
        self._queue.clear()
        for task in (self._admission, self._ending):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._resumption is not None:
            self._resumption.tasks.cancel_all()
        if self.session is not None:
            self.session.close()
        self.ended.set()
        self._reception.dismiss(self)

    def pause_writing(self) -> None:
        """Stop reading from a window that does not read, and close its connection after a while."""
        self._is_full = True
        self._unread_timer = self._loop.call_later(UNREAD_FOR_S, self._end_unread)
        self._watch()

    def resume_writing(self) -> None:
        self._is_full = False
        self._cancel_unread_timer()
        if self.session is not None:
            self._watch()

    # --- the session -----------------------------------------------------------------------------------

    def connection(
        self, origin: ClientOrigin, continuation: Continuation, *, is_command: bool = False
    ) -> ClientConnection:
        """Return the connection for a session that writes to this window."""
        return ClientConnection(
            self._send,
            self._is_congested,
            origin,
            is_command=is_command,
            journal=self._journal,
            first_id=continuation.first_id,
        )

    async def drain(self, within_s: float, *, hands_over: bool = False) -> None:
        """Wait for requests in flight, then report that the daemon stops, and how many lines it has taken.

        If the daemon hands over, the window continues with another daemon at once.
        """
        if not self._transport.is_closing():
            self._is_stopping = True
            self._transport.pause_reading()
            self._queue.clear()  # the window sends these lines to another daemon
            if self.session is not None:
                await self.session.drain(within_s)
            self._write(frames.STOP, self.lines_taken, frames.RECONNECT if hands_over else b"")
            self._close()

    def end(self, why: str, code: int = 1) -> None:
        """Report that the session is over, and why, and close the connection."""
        self._write(frames.END, code, why.encode())
        self._close()

    def refuse(self) -> None:
        """Ask the window to serve without a daemon."""
        self._write(frames.REFUSE, 0)
        self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _close(self) -> None:
        """Close once everything is written; a window that does not read delays that by half a second at most."""
        self._transport.close()
        self._cancel_timer()
        self._timer = self._loop.call_later(_FLUSH_WITHIN_S, self._transport.abort)

    # --- hello -----------------------------------------------------------------------------------------

    def _take_hello(self) -> None:
        if len(self._hello) < 4:
            return
        end = 4 + int.from_bytes(self._hello[:4])
        if end > _MAX_HELLO_BYTES:
            self._transport.abort()
        elif len(self._hello) >= end:
            self._cancel_timer()
            self._transport.pause_reading()
            body, early = bytes(self._hello[4:end]), bytes(self._hello[end:])
            self._hello.clear()
            self._admission = self._loop.create_task(self._admit(body, early), name="admission of a window")

    async def _admit(self, body: bytes, early: bytes) -> None:
        try:
            hello = decode_hello(body)
            self.session = await self._reception.admit(self, hello)
            if self.session is None:
                return
            await self._begin(self.session, hello.continuation)
        except (ValueError, KeyError) as exc:
            log.warning("refused a window: invalid hello (%s)", exc)
            self._transport.abort()
        except Exception:
            log.exception("a bug: serving a window failed")
            self._transport.abort()
        else:
            self._receive(early)
            self._watch()

    async def _begin(self, session: LineSession, continuation: Continuation) -> None:
        self._write(frames.WELCOME, 0)
        self._resumption = Resumption(session, self._send, self._journal)
        await self._resumption.resume(continuation, self._reply)
        self.lines_taken = len(continuation.interrupted)

    # --- from the window -------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        if not self._is_stopping:
            self._queue.extend(self._lines.feed(data))
            if not self._is_taking:
                self._take_lines()

    def _take_lines(self) -> None:
        """Process some lines; the rest follows after the other clients have had their turn."""
        session = self.session
        assert session is not None
        for _ in range(min(len(self._queue), _LINES_A_TURN)):
            line = self._queue.popleft()
            if line == frames.END_OF_INPUT:
                self._end_input()
                self._queue.clear()
                return
            self.lines_taken = number = self.lines_taken + 1
            session.receive(line, partial(self._reply, number))
        was_taking, self._is_taking = self._is_taking, bool(self._queue)
        if self._is_taking:
            self._loop.call_soon(self._take_lines)
        if was_taking != self._is_taking:
            self._watch()

    def _watch(self) -> None:
        """Read from the window, unless it does not read itself or has sent more than fits into a turn."""
        if self._transport.is_closing() or self._is_stopping:
            return
        if self._is_full or self._is_taking:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end_input(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._finish(), name="end of a session")

    async def _finish(self) -> None:
        assert self.session is not None
        await self.session.finish(limits.FINISH_WITHIN_S)
        self.session.close()
        self.end("", 0)

    # --- to the window ---------------------------------------------------------------------------------

    def _send(self, line: bytes) -> None:
        self._write(frames.OUTPUT, 0, line)

    def _reply(self, number: int, line: bytes) -> None:
        self._write(frames.OUTPUT, number, line)

    def _keep(self, name: bytes, note: bytes) -> None:
        if note:  # written together with its line, so that a daemon that is killed has written both or neither
            self._notes += frames.frame(frames.KEEP, 0, name + b"\0" + note)
        else:
            self._write(frames.KEEP, 0, name)

    def _write(self, kind: int, number: int, payload: bytes = b"") -> None:
        if not self._transport.is_closing():
            notes, self._notes = self._notes, b""
            self._transport.write(notes + frames.frame(kind, number, payload))

    def _is_congested(self) -> bool:
        return self._transport.get_write_buffer_size() > limits.FLOOD_BYTES

    def _end_unread(self) -> None:
        log.warning("closed a session: its client has not read for %g s", UNREAD_FOR_S)
        self._transport.abort()

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def decode_hello(body: bytes) -> Hello:
    """Return a window's hello. Raises ValueError and KeyError."""
    members = frames.unpack_pairs(body)
    if members[b"protocol"] != frames.PROTOCOL:
        raise ValueError("unsupported protocol")
    return Hello(
        purpose=members[b"purpose"].decode(),
        config=os.fsdecode(members[b"config"]),
        version=members[b"version"].decode(),
        directory=os.fsdecode(members[b"directory"]),
        environment={os.fsdecode(k): os.fsdecode(v) for k, v in frames.unpack_pairs(members[b"environment"]).items()},
        continuation=Continuation(
            generation=int(members[b"generation"]),
            notes=frames.unpack_pairs(members[b"notes"]),
            interrupted=tuple(frames.unpack(members[b"interrupted"])),
        ),
        only=members.get(b"only", b"").decode() or None,
        profile=members.get(b"profile", b"").decode(errors="replace") or None,
    )
