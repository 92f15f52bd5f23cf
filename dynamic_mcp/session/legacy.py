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

from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    DynamicMcpError,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.lines import Oversized, find_request_id, find_response_id
from dynamic_mcp.mcp.wire import NULL, Frame

log = logging.getLogger(__name__)

BATCHES = "2025-03-26"  # the one protocol version that has batches
# What a client must have declared to be asked this: by the first word of the method.
_NEEDS = {"sampling": {"sampling"}, "elicitation": {"elicitation"}, "roots": {"roots"}, "tasks": {"tasks"}}
# What it must have declared, one or the other, to be asked what the protocol does not know.
_EXTENDED = {"experimental", "extensions"}

# A flood of these must not fill the memory when a client has stopped reading.
_MAY_BE_MISSED = {"notifications/message", "notifications/progress"}
# Tasks of the client whose askers are remembered.
_MAX_TASKS = 1000


class Server(Protocol):
    """Whoever answers: the proxy."""

    async def answer(self, session: Session, frame: Frame) -> Frame:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def hear(self, session: Session, frame: Frame) -> None:
        """Take a notification."""
        ...


class _Question:
    """A request to the client that waits for its answer."""

    __slots__ = ("future", "heard", "token")

    def __init__(self, future: asyncio.Future[Frame], token: Raw, heard: Callable[[Frame], None]) -> None:
        self.future = future
        self.token = token
        self.heard = heard


class Session:
    """A client that writes to `receive` and is written to with `send`, a line at a time."""

    def __init__(
        self, send: Callable[[bytes], None], server: Server, is_congested: Callable[[], bool] = lambda: False
    ) -> None:
        self.version = ""
        self.client = ""
        self.capabilities: dict[str, Raw] = {}
        self.dropped = 0
        self._send = send
        self._is_congested = is_congested
        self._server = server
        self._serving: dict[bytes, asyncio.Task[bytes]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._asked: dict[bytes, _Question] = {}
        self._tasks: dict[bytes, _Question] = {}
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
            self._heard(frame, self._send)

    async def finish(self, within_s: float) -> None:
        """Let what is in flight end, within a bound; then cancel it."""
        tasks = [*self._serving.values(), *self._batches]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        for question in self._asked.values():
            question.future.cancel()

    def _receive_odd(self, line: bytes, exc: wire.Malformed) -> None:
        if not line.strip():
            return
        if isinstance(line, Oversized):
            why = f"a message of {line.size} bytes is over `max_message_bytes`"
            self._refuse_oversized(line, why)
        elif wire.is_batch(line) and exc.code == INVALID_REQUEST:
            self._receive_batch(wire.elements(line))
        else:
            self._fail(exc.id, exc.code, str(exc))

    def _refuse_oversized(self, line: bytes, why: str) -> None:
        """Answer a request that is too long, and fail the question that an answer which is too long was for."""
        answered = find_response_id(line)
        question = self._asked.get(bytes(answered)) if answered is not None else None
        if question is not None:
            question.future.set_result(wire.error_frame(INVALID_REQUEST, why))
        else:
            self._fail(find_request_id(line) or NULL, INVALID_REQUEST, why)

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
                self._heard(frame, lines.append)
        batch = self._loop.create_task(self._answer_batch(tasks, lines))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _answer_batch(self, tasks: list[asyncio.Task[bytes]], lines: list[bytes]) -> None:
        if tasks:
            await asyncio.wait(tasks)
        if lines:
            self._send(wire.join_batch(lines))

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
            if self._serving.get(key) is asyncio.current_task():
                del self._serving[key]
        line = wire.answer_line(frame.id, answer)
        reply(line)
        return line

    def _heard(self, frame: Frame, reply: Callable[[bytes], None]) -> None:
        """Take a notification, or the answer to a request that was made to the client."""
        if frame.method == "notifications/cancelled":
            task = self._serving.pop(_member(frame.params, "requestId"), None)
            if task is not None:
                task.cancel(wire.text(wire.member(frame.params, "reason")))
        elif frame.method == "notifications/progress":
            self._progressed(frame)
        elif frame.method == "notifications/tasks/status" and _member(frame.params, "taskId") in self._tasks:
            self._tasks[_member(frame.params, "taskId")].heard(frame)
        elif frame.method:
            self._server.hear(self, frame)
        elif len(frame.result) or len(frame.error):
            self._answered(frame)
        else:
            why = "neither a request, a notification nor an answer"
            reply(wire.answer_line(NULL, wire.error_frame(INVALID_REQUEST, why)))

    def _answered(self, frame: Frame) -> None:
        question = self._asked.pop(bytes(frame.id), None)
        if question is None or question.future.done():
            self.dropped += 1
            log.debug("dropped an unexpected answer (%d so far)", self.dropped)
            return
        question.future.set_result(frame)
        if task := bytes(wire.member(frame.result, "task", "taskId")):
            # by its id for its status, and by the token for its progress: a string and a number
            self._tasks |= {task: question, bytes(frame.id): question}
            while len(self._tasks) > 2 * _MAX_TASKS:
                del self._tasks[next(iter(self._tasks))]

    def _fail(self, id: Raw, code: int, why: str) -> None:
        self._send(wire.answer_line(id, wire.error_frame(code, why)))

    # --- to the client ---------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification; one that may be missed is dropped while the client does not read."""
        if self.takes(frame):
            self._send(wire.notification_line(frame.method, frame.params))
        else:
            self.dropped += 1

    def takes(self, frame: Frame) -> bool:
        """Tell whether a notification would be sent now."""
        return frame.method not in _MAY_BE_MISSED or not self._is_congested()

    async def ask(self, frame: Frame, heard: Callable[[Frame], None]) -> Frame:
        """Send a request and return the client's answer; one that it cannot take is refused at once.

        `heard` takes the client's progress on it, and the status of a task that it becomes.
        """
        if _NEEDS.get(frame.method.partition("/")[0], _EXTENDED).isdisjoint(self.capabilities):
            return wire.error_frame(METHOD_NOT_FOUND, f"the client does not support `{frame.method}`")
        number = next(self._ids)
        key = b"%d" % number
        token = wire.member(frame.params, "_meta", "progressToken")
        params = wire.with_member(frame.params, number, "_meta", "progressToken") if len(token) else frame.params
        question = self._asked[key] = _Question(self._loop.create_future(), token, heard)
        self._send(wire.request_line(number, frame.method, params))
        try:
            return await question.future
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else "the server no longer needs the answer"
            body = wire.encode({"requestId": number, "reason": reason})
            self._send(wire.notification_line("notifications/cancelled", body))
            raise
        finally:
            self._asked.pop(key, None)

    def _progressed(self, frame: Frame) -> None:
        """Pass the client's progress on to the upstream that asked, with the token that it asked with."""
        token = _member(frame.params, "progressToken")
        question = self._asked.get(token) or self._tasks.get(token)
        if question is not None and len(question.token):
            params = wire.with_member(frame.params, question.token, "progressToken")
            question.heard(Frame(method=frame.method, params=params))


def _member(params: Raw, name: str) -> bytes:
    return bytes(wire.member(params, name))


def _failure(frame: Frame, exc: DynamicMcpError) -> Frame:
    """Give an error its MCP form: on `tools/call` a result that the model can read, else a JSON-RPC error."""
    if frame.method == "tools/call":
        return wire.result_frame({"content": [{"type": "text", "text": str(exc)}], "isError": True})
    return wire.error_frame(exc.rpc_code, str(exc))
