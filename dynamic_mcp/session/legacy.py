"""A client of the revisions with `initialize`: its session, its requests in flight, and those made to it.

Every request gets exactly one answer, unless the client cancels it. Invalid input gets the error that JSON-RPC
defines for it, and the session continues.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from dynamic_mcp.client import ID_BYTES, ClientInfo, Transport
from dynamic_mcp.errors import INVALID_REQUEST, METHOD_NOT_FOUND, Interrupted
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import revisions, wire
from dynamic_mcp.mcp.lines import Oversized, find_response_id
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.proxy.request import Channel, Request
from dynamic_mcp.session.answers import (
    MAX_IN_FLIGHT,
    answer_request,
    disconnected,
    error_line,
    refuse_line,
    refuse_request,
    to_answer,
    too_long,
)
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.questions import Questions, may_be_asked
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.handshake import complete_info

if TYPE_CHECKING:  # the first is loaded where a daemon serves windows, the second is a type
    from dynamic_mcp.session.continuation import SessionJournal
    from dynamic_mcp.session.server import Server

log = logging.getLogger(__name__)

# How long batches may take to send the answers of cancelled requests.
_CANCEL_WITHIN_S = 1.0

_OWN_METHODS = frozenset(("initialize", "ping"))

# Dropped when a client does not read, so that they do not fill the memory.
MAY_BE_MISSED = {"notifications/message", "notifications/progress"}


class _Exchange:
    """A request of the client in flight. The code that removes it from those in flight sends the answer."""

    __slots__ = ("_in_flight", "_journal", "_key", "reply", "request", "task")

    task: asyncio.Task[None]

    def __init__(
        self,
        request: Request,
        key: bytes,
        reply: Callable[[bytes], None],
        in_flight: dict[bytes, _Exchange],
        journal: SessionJournal | None,
    ) -> None:
        self.request = request
        self.reply = reply
        self._key = key
        self._in_flight = in_flight
        self._journal = journal

    def finish(self, request: Request, answer: Frame) -> None:
        """Reply with the answer, unless the request was already answered or cancelled."""
        if self._journal is not None:
            self._journal.record_answer(request, answer)
        if self._in_flight.get(self._key) is self:
            del self._in_flight[self._key]
            self.reply(wire.answer_line(request.id, answer))


class Session:
    """A client whose lines are passed to `receive`, and which receives lines over its connection."""

    log_level = ""  # set for the whole session
    is_parked = False

    __slots__ = (
        "__weakref__",
        "_batches",
        "_capabilities",
        "_is_congested",
        "_journal",
        "_loop",
        "_questions",
        "_send",
        "_server",
        "_serving",
        "address",
        "authentication",
        "calls",
        "hello",
        "id",
        "is_closed",
        "is_command",
        "is_initialized",
        "only",
        "profile",
        "requests",
        "shared_id",
        "since",
        "transport",
        "workspace",
    )

    def __init__(self, connection: ClientConnection, server: Server, *, now: Callable[[], float] = time.time) -> None:
        origin = connection.origin
        self.id = secrets.token_hex(ID_BYTES)
        self.address = connection.address
        self.shared_id = connection.shared_id
        self.authentication = origin.authentication
        self.is_command = connection.is_command
        self.workspace = origin.workspace
        self.only = origin.only
        self.profile = origin.profile
        self.transport: Transport = origin.transport
        self.since = now()
        self.requests = 0
        self.calls = 0
        self.hello = ClientInfo()
        self.is_initialized = False
        self.is_closed = False
        self._send = connection.send
        self._is_congested = connection.is_congested
        self._server = server
        self._capabilities: Mapping[str, Raw] = {}
        self._serving: dict[bytes, _Exchange] = {}
        self._batches = TaskSet(log)
        self._journal = connection.journal
        self._questions = Questions(connection.journal, connection.first_id)
        self._loop = asyncio.get_running_loop()

    @property
    def principal(self) -> Principal:
        return self.authentication.principal

    @property
    def is_being_asked(self) -> bool:
        """True if a request to the client is in flight."""
        return self._questions.are_open

    @property
    def client(self) -> Session:
        return self

    @property
    def recipient(self) -> Session:
        return self

    @property
    def stream(self) -> Session:
        return self

    # --- from the client -------------------------------------------------------------------------------

    @property
    def requests_in_flight(self) -> int:
        """The number of requests that are being answered, including the members of batches."""
        return len(self._serving)

    def receive(self, line: bytes, reply: Callable[[bytes], None] | None = None) -> None:
        """Handle one line; a closed session ignores it.

        `reply` is called exactly once for each line, with its answer or, if it gets none, with an empty line.
        """
        if self.is_closed:
            return
        reply = reply or self._send_answer
        try:
            frame = wire.parse(line)
        except wire.Malformed as exc:
            self._receive_malformed(line, exc, reply)
        else:
            if frame.method and len(frame.id):
                self._begin(frame, reply, None)
            else:
                reply(self._take_notification(frame))

    def receive_frame(self, frame: Frame, reply: Callable[[bytes], None], channel: Channel | None = None) -> None:
        """Handle one message that is not a batch. Messages that a request causes go over its `channel`, if given.

        `reply` is called during this call only if the message is refused, or is not a request.
        """
        if frame.method and len(frame.id):
            self._begin(frame, reply, channel)
        else:
            reply(self._take_notification(frame))

    async def finish(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound; then cancel them."""
        for task in await self._wait_for_tasks(within_s):
            task.cancel()

    async def drain(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound, and answer the rest with an error: they may have run."""
        await self._wait_for_tasks(within_s)
        for key in [*self._serving]:
            exchange = self._serving.pop(key)
            exchange.task.cancel()
            id, method = exchange.request.id, exchange.request.method
            exchange.reply(wire.answer_line(id, to_answer(method, Interrupted(method))))
        if batches := [*self._batches]:  # their requests are answered
            await asyncio.wait(batches, timeout=_CANCEL_WITHIN_S)

    def close(self) -> None:
        """End the session: cancel its requests, fail requests to the client, and release it in the server."""
        if self.is_closed:
            return
        self.is_closed = True
        for task in self._tasks():
            task.cancel("the client has disconnected")
        self._serving.clear()
        self._questions.close()
        self._server.release(self)

    def _tasks(self) -> list[asyncio.Task[Any]]:  # Any: of requests and of batches
        return [*(each.task for each in self._serving.values()), *self._batches]

    async def _wait_for_tasks(self, within_s: float) -> list[asyncio.Task[Any]]:
        """Wait for the current tasks, within a bound, and return them."""
        tasks = self._tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        return tasks

    def _receive_malformed(self, line: bytes, exc: wire.Malformed, reply: Callable[[bytes], None]) -> None:
        if isinstance(line, Oversized):
            answered = find_response_id(line)
            if answered is not None and self._questions.refuse_answer(bytes(answered), too_long(line)):
                reply(b"")
                return
        elif wire.is_batch(line) and exc.code == INVALID_REQUEST:
            self.receive_batch(line, reply)
            return
        reply(refuse_line(line, exc))

    def receive_batch(self, line: bytes, reply: Callable[[bytes], None], channel: Channel | None = None) -> None:
        """Handle several messages, which get one answer; only some revisions support this.

        `reply` is called during this call only if the batch is refused.
        """
        from dynamic_mcp.session.batches import answer_batch, split_batch  # only one revision has them

        try:
            items = split_batch(line, self.hello.revision)
        except wire.Malformed as exc:
            reply(error_line(NULL, exc.code, str(exc)))
            return
        lines: list[bytes] = []
        tasks: list[asyncio.Task[None]] = []
        for item in items:
            try:
                frame = wire.parse(bytes(item))
            except wire.Malformed as exc:
                lines.append(wire.answer_line(exc.id, wire.error_frame(INVALID_REQUEST, str(exc))))
                continue
            if frame.method and len(frame.id):
                task = self._begin(frame, lines.append, channel)
                tasks += [task] if task else []
            else:
                lines.append(self._take_notification(frame))
        self._batches.create(answer_batch(tasks, lines, reply), name="batch")

    def _begin(
        self, frame: Frame, reply: Callable[[bytes], None], channel: Channel | None
    ) -> asyncio.Task[None] | None:
        """Start answering a request, unless it is refused."""
        key = bytes(frame.id)
        refusal = refuse_request(frame, key, self._serving, MAX_IN_FLIGHT)
        if refusal is not None:
            reply(wire.answer_line(wire.id_for_answer(frame), refusal))
            return None
        self.requests += 1
        view = self._server.view_for(self)  # the current one: the next request may have other rights
        request = Request(frame.method, frame.params, self, view, channel, frame.id)
        exchange = self._serving[key] = _Exchange(request, key, reply, self._serving, self._journal)
        exchange.task = self._loop.create_task(answer_request(request, self.serve, exchange.finish))
        return exchange.task

    def _take_notification(self, frame: Frame) -> bytes:
        """Handle a notification, or an answer of the client; return the error for anything else."""
        if frame.method == "notifications/cancelled":
            exchange = self._serving.pop(bytes(wire.member(frame.params, "requestId")), None)
            if exchange is not None:
                exchange.task.cancel(wire.text(wire.member(frame.params, "reason")))
                exchange.reply(b"")
        elif frame.method == "notifications/progress":
            self._questions.take_progress(frame)
        elif frame.method == "notifications/tasks/status" and self._questions.take_status(frame):
            pass
        elif frame.method:
            self._server.notify(self._request(frame))
        elif len(frame.result) or len(frame.error):
            self._questions.take_answer(frame)
        else:
            return error_line(NULL, INVALID_REQUEST, "not a request, notification or answer")
        return b""

    # --- requests --------------------------------------------------------------------------------------

    def _request(self, frame: Frame) -> Request:
        return Request(frame.method, frame.params, self, self._server.view_for(self))

    def answer(self, frame: Frame) -> Awaitable[Frame]:
        """Answer a request that was not received. Raises DynamicMcpError and wire.Malformed."""
        return self.serve(self._request(frame))

    def serve(self, request: Request) -> Awaitable[Frame]:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        if request.method in _OWN_METHODS:
            return self._initialize(request) if request.method == "initialize" else _pong()
        return self._server.answer(request)

    async def _initialize(self, request: Request) -> Frame:
        """Negotiate as in the lifecycle of the MCP specification."""
        params = wire.members(request.params)
        declared = params.get("capabilities", wire.EMPTY_OBJECT)
        self._capabilities = wire.members(declared)
        revision = revisions.negotiate(wire.text(params.get("protocolVersion")))
        self.hello = ClientInfo(revision, declared, complete_info(params.get("clientInfo", wire.EMPTY_OBJECT)))
        self.is_initialized = True  # notifications may be sent from now on
        try:
            return wire.result_frame(await self._server.initialize(self))
        except BaseException:
            self.is_initialized = False
            raise

    def restore(self, revision: str, capabilities: Raw, client_info: Raw) -> None:
        """Be the session of a client that has begun it at another process."""
        self._capabilities = wire.members(capabilities)
        self.hello = ClientInfo(revisions.negotiate(revision), capabilities, client_info)
        self.is_initialized = True

    def _send_answer(self, line: bytes) -> None:
        if line:
            self._send(line)

    # --- to the client ---------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification; log messages and progress are dropped while the client does not read."""
        if not self.is_closed and self.has_room(frame):
            self._send(wire.notification_line(frame.method, frame.params))

    def has_room(self, frame: Frame) -> bool:
        """Return whether a notification would be sent now."""
        return frame.method not in MAY_BE_MISSED or not self._is_congested()

    async def ask(
        self, frame: Frame, on_status: Callable[[Frame], None], send: Callable[[bytes], None] | None = None
    ) -> Frame:
        """Send a request and return the client's answer; return an error at once if the client does not support it.

        `on_status` gets the client's progress, and the status of a task that it creates. `send` replaces the
        connection's own.
        """
        if self.is_closed:
            return disconnected()
        if not may_be_asked(frame.method, self._capabilities):
            return wire.error_frame(METHOD_NOT_FOUND, f"the client does not support `{frame.method}`")
        return await self._questions.ask(frame, on_status, send or self._send)


async def _pong() -> Frame:
    return wire.result_frame(b"{}")
