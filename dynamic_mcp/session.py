"""One connected client: its protocol version, its requests in flight, and the requests made to it.

Every request gets exactly one answer, unless the client cancels it. Garbage gets the error that JSON-RPC
has for it, and the session lives on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from dynamic_mcp import wire
from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    DynamicMcpError,
)
from dynamic_mcp.wire import ABSENT, NULL, Frame

log = logging.getLogger(__name__)

BATCHES = "2025-03-26"  # the one protocol version that has batches
# What a client must have declared to be asked this.
_NEEDS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


class Server(Protocol):
    """Whoever answers: the proxy."""

    async def answer(self, session: Session, frame: Frame) -> Frame:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def hear(self, session: Session, frame: Frame) -> None:
        """Take a notification."""
        ...


class Session:
    """A client that writes to `receive` and is written to with `send`, a line at a time."""

    def __init__(self, send: Callable[[bytes], None], server: Server) -> None:
        self.version = ""
        self.capabilities: dict[str, Raw] = {}
        self.dropped = 0
        self._send = send
        self._server = server
        self._serving: dict[bytes, asyncio.Task[bytes]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._asked: dict[bytes, asyncio.Future[Frame]] = {}
        self._ids = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    # --- from the client -------------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """Take one line, whatever it holds."""
        try:
            frame = wire.parse(line)
        except wire.Malformed as exc:
            self._receive_odd(line, exc)
            return
        if frame.method and len(frame.id):
            self._begin(frame, self._send)
        else:
            self._heard(frame)

    async def finish(self, within_s: float) -> None:
        """Let what is in flight end, within a bound; then cancel it."""
        tasks = [*self._serving.values(), *self._batches]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        for future in self._asked.values():
            future.cancel()

    def _receive_odd(self, line: bytes, exc: wire.Malformed) -> None:
        if not line.strip():
            return
        if isinstance(line, wire.Oversized):
            why = f"a message of {line.size} bytes is over `max_message_bytes`"
            self._fail(wire.guess_id(line) or NULL, INVALID_REQUEST, why)
        elif wire.is_batch(line) and exc.code == INVALID_REQUEST:
            self._receive_batch(wire.elements(line))
        else:
            self._fail(exc.id, exc.code, str(exc))

    def _receive_batch(self, items: list[Raw]) -> None:
        if self.version != BATCHES or not items:
            why = "a batch must not be empty" if not items else f"batches are part of protocol {BATCHES} only"
            self._fail(NULL, INVALID_REQUEST, why)
            return
        lines: list[bytes] = []
        tasks: list[asyncio.Task[bytes]] = []
        for item in items:
            try:
                frame = wire.parse(bytes(item))
            except wire.Malformed as exc:
                lines.append(wire.answer_line(exc.id, wire.error_frame(INVALID_REQUEST, str(exc))))
                continue
            if frame.method and len(frame.id):
                task = self._begin(frame, lines.append)
                tasks += [task] if task else []
            else:
                self._heard(frame)
        batch = self._loop.create_task(self._answer_batch(tasks, lines))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _answer_batch(self, tasks: list[asyncio.Task[bytes]], lines: list[bytes]) -> None:
        if tasks:
            await asyncio.wait(tasks)
        if lines:
            self._send(wire.joined(lines))

    def _begin(self, frame: Frame, reply: Callable[[bytes], None]) -> asyncio.Task[bytes] | None:
        """Start to answer a request, unless it cannot be one."""
        key = bytes(frame.id)
        wrong = self._wrong(frame, key)
        if wrong is not None:
            id = frame.id if wire.is_request_id(frame.id) else NULL
            reply(wire.answer_line(id, wrong))
            return None
        task = self._loop.create_task(self._serve(frame, key, reply))
        self._serving[key] = task
        return task

    def _wrong(self, frame: Frame, key: bytes) -> Frame | None:
        if frame.jsonrpc != "2.0":
            return wire.error_frame(INVALID_REQUEST, '`jsonrpc` is not "2.0"')
        if not wire.is_request_id(frame.id):
            return wire.error_frame(INVALID_REQUEST, "`id` is neither a string nor a number")
        if key in self._serving:
            return wire.error_frame(INVALID_REQUEST, "a request with this `id` is in flight")
        return None

    async def _serve(self, frame: Frame, key: bytes, reply: Callable[[bytes], None]) -> bytes:
        try:
            answer = await self._server.answer(self, frame)
        except wire.Malformed as exc:
            answer = wire.error_frame(INVALID_PARAMS, str(exc))
        except DynamicMcpError as exc:
            answer = _failure(frame, exc)
        except Exception:
            log.exception("a bug: answering %s failed", frame.method)
            answer = wire.error_frame(INTERNAL_ERROR, "internal error of dynamic-mcp; its log says more")
        finally:
            self._serving.pop(key, None)
        line = wire.answer_line(frame.id, answer)
        reply(line)
        return line

    def _heard(self, frame: Frame) -> None:
        """Take a notification, or the answer to a request that was made to the client."""
        if frame.method == "notifications/cancelled":
            task = self._serving.get(_member(frame.params, "requestId"))
            if task is not None:
                task.cancel()
        elif frame.method:
            self._server.hear(self, frame)
        elif len(frame.result) or len(frame.error):
            future = self._asked.pop(bytes(frame.id), None)
            if future is None or future.done():
                self.dropped += 1
                log.debug("dropped an answer that nobody waits for (%d so far)", self.dropped)
            else:
                future.set_result(frame)
        else:
            self._fail(NULL, INVALID_REQUEST, "neither a request, a notification nor an answer")

    def _fail(self, id: Raw, code: int, why: str) -> None:
        self._send(wire.answer_line(id, wire.error_frame(code, why)))

    # --- to the client ---------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification."""
        self._send(wire.notification_line(frame.method, frame.params))

    async def ask(self, frame: Frame) -> Frame:
        """Send a request and return the client's answer; one that it cannot take is refused at once."""
        if _NEEDS.get(frame.method) not in self.capabilities:
            return wire.error_frame(METHOD_NOT_FOUND, f"the client does not take `{frame.method}`")
        number = next(self._ids)
        key = b"%d" % number
        future: asyncio.Future[Frame] = self._loop.create_future()
        self._asked[key] = future
        self._send(wire.request_line(number, frame.method, frame.params))
        try:
            return await future
        except asyncio.CancelledError:
            body = wire.encode({"requestId": number, "reason": "the server no longer needs the answer"})
            self._send(wire.notification_line("notifications/cancelled", body))
            raise
        finally:
            self._asked.pop(key, None)


def _member(params: Raw, name: str) -> bytes:
    try:
        return bytes(wire.members(params).get(name, ABSENT))
    except wire.Malformed:
        return b""


def _failure(frame: Frame, exc: DynamicMcpError) -> Frame:
    """Give an error its MCP form: on `tools/call` a result that the model can read, else a JSON-RPC error."""
    if frame.method == "tools/call":
        return wire.result_frame({"content": [{"type": "text", "text": str(exc)}], "isError": True})
    return wire.error_frame(exc.rpc_code, str(exc))
