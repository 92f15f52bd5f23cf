"""A request that waits for its authentication; and a page, whose answer may take a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.authenticator import Outcome, Page, PageRequest, StreamedPage
from dynamic_mcp.face.http.body_budget import BodyBudget, BodyHold
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.responses import RETRY_AFTER, SESSION_NOT_FOUND, Headers, refusal, too_long, with_headers
from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

_MAX_PAGE_BYTES = 64 << 10


def hand_body(body: bytes, receiver: BodyReceiver) -> None:
    """Give a body that was kept to what takes it, if that takes one of this length."""
    if len(body) > receiver.max_body_bytes:
        receiver.refuse_body()
    else:
        receiver.receive_body(body)


class DeferredRequest:
    """Keeps the body until `outcome` is known; then `serve` returns its receiver."""

    def __init__(
        self,
        exchange: Exchange,
        outcome: asyncio.Future[Outcome],
        serve: Callable[[Outcome], BodyReceiver | None],
        max_body_bytes: int,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._exchange = exchange
        self._outcome = outcome
        self._serve = serve
        self._body: bytes | None = None
        self._receiver: BodyReceiver | None = None
        self._is_connected = True

    @property
    def sender(self) -> Authentication | None:
        outcome = self._outcome
        if not outcome.done() or outcome.cancelled() or outcome.exception() is not None:
            return None
        result = outcome.result()
        return result if isinstance(result, Authentication) else None

    @property
    def needs_client(self) -> bool:
        return self._receiver is not None and self._receiver.needs_client

    def receive_body(self, body: bytes) -> None:
        self._body = body
        self._outcome.add_done_callback(self._continue)

    def refuse_body(self) -> None:
        self._exchange.respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        self._is_connected = False
        if self._receiver is not None:
            self._receiver.disconnected()

    def _continue(self, outcome: asyncio.Future[Outcome]) -> None:
        if not self._is_connected or outcome.cancelled():
            return
        receiver = self._receiver = self._serve(outcome.result())
        assert self._body is not None
        if receiver is not None:
            hand_body(self._body, receiver)


class RecoveredRequest:
    """Keeps the body while `recover` looks for its session; then what that returns takes it."""

    needs_client = False

    def __init__(
        self,
        arrival: Arrival,
        recover: Callable[[Arrival], Awaitable[BodyReceiver | Response | None]],
        tasks: TaskSet,
        bodies: BodyBudget,
        *,
        cors: Headers,
        max_body_bytes: int,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self.sender = arrival.authentication
        self._arrival = arrival
        self._recover = recover
        self._tasks = tasks
        self._cors = cors
        self._hold = BodyHold(bodies, self)
        self._receiver: BodyReceiver | None = None
        self._is_connected = True

    def receive_body(self, body: bytes) -> None:
        if self._hold.grow(len(body)):
            self._tasks.create(self._continue(body), name="request of a session that is elsewhere")
        else:
            self._respond(refusal(503, "too much waits for its session", RETRY_AFTER))

    def refuse_body(self) -> None:
        self._respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        self._is_connected = False
        if self._receiver is not None:
            self._receiver.disconnected()

    async def _continue(self, body: bytes) -> None:
        try:
            found = await self._recover(self._arrival)
        finally:
            self._hold.release()
        if not self._is_connected:
            return
        if found is None or isinstance(found, Response):
            self._respond(found or SESSION_NOT_FOUND)
            return
        self._receiver = found
        hand_body(body, found)

    def _respond(self, response: Response) -> None:
        self._arrival.exchange.respond(with_headers(response, self._cors))


class PageReceiver:
    """Takes the body of a request for a page, and sends the page's response after passing it to `note`."""

    needs_client = True
    sender = None
    max_body_bytes = _MAX_PAGE_BYTES

    def __init__(
        self,
        head: RequestHead,
        exchange: Exchange,
        page: Page,
        cors: Headers,
        tasks: TaskSet,
        note: Callable[[Response], Response],
    ) -> None:
        self._is_connected = True
        self._head = head
        self._exchange = exchange
        self._page = page
        self._cors = cors
        self._tasks = tasks
        self._note = note
        self._streaming: asyncio.Task[None] | None = None

    def receive_body(self, body: bytes) -> None:
        self._tasks.create(self._answer(PageRequest(self._head, body)), name="page")

    def refuse_body(self) -> None:
        self._respond(refusal(413, f"a form may have at most {_MAX_PAGE_BYTES} bytes"))

    def disconnected(self) -> None:
        """Called when the client disconnects: a page finishes its work all the same, and a stream ends."""
        self._is_connected = False
        if self._streaming is not None:
            self._streaming.cancel()

    async def _answer(self, request: PageRequest) -> None:
        try:
            response = await self._page(request)
        except Exception:
            log.exception("a bug: a page failed")
            response = refusal(500, "internal error; see the log of dynamic-mcp")
        if not isinstance(response, StreamedPage):
            self._respond(self._note(response))
        elif self._is_connected:
            self._streaming = self._tasks.create(self._stream(response), name="events of a page")

    async def _stream(self, stream: StreamedPage) -> None:
        """Send the pieces of a stream; one to a client that does not read ends."""
        exchange = self._exchange
        exchange.start(with_headers(stream, self._cors))
        try:
            async for piece in stream.pieces:
                if exchange.buffered_bytes() > _MAX_PAGE_BYTES:
                    break
                exchange.write(piece)
        except Exception:
            log.exception("a bug: the events of a page failed")
        exchange.end()

    def _respond(self, response: Response) -> None:
        self._exchange.respond(with_headers(response, self._cors))
