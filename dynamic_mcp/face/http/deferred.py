"""A request that waits until it is known who sent it; and a page, whose answer takes its time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dynamic_mcp.face.http.authenticator import Outcome, Page, PageRequest
from dynamic_mcp.face.http.exchange import Exchange, Receiver, RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, refusal, too_long, with_headers
from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

_MAX_PAGE_BYTES = 64 << 10


class DeferredRequest:
    """Keeps the body until `outcome` is known, then `serve` says who takes it."""

    def __init__(
        self,
        exchange: Exchange,
        outcome: asyncio.Future[Outcome],
        serve: Callable[[Outcome], Receiver | None],
        max_body_bytes: int,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._exchange = exchange
        self._outcome = outcome
        self._serve = serve
        self._body: bytes | None = None
        self._receiver: Receiver | None = None
        self._is_connected = True

    @property
    def sender(self) -> Authentication | None:
        """Who sent the request, once that is known."""
        outcome = self._outcome
        if not outcome.done() or outcome.cancelled() or outcome.exception() is not None:
            return None
        found = outcome.result()
        return found if isinstance(found, Authentication) else None

    @property
    def needs_client(self) -> bool:
        """Whether nobody wants the answer once the client sends nothing more, as far as it is known who answers."""
        return self._receiver is not None and self._receiver.needs_client

    def receive_body(self, body: bytes) -> None:
        """Keep the body until it is known whose it is."""
        self._body = body
        self._outcome.add_done_callback(self._go_on)

    def refuse_body(self) -> None:
        """Refuse a message that is too long for everybody."""
        self._exchange.respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Take it that the client has gone."""
        self._is_connected = False
        if self._receiver is not None:
            self._receiver.disconnected()

    def _go_on(self, outcome: asyncio.Future[Outcome]) -> None:
        if not self._is_connected or outcome.cancelled():
            return
        receiver = self._receiver = self._serve(outcome.result())
        assert self._body is not None
        if receiver is None:
            return
        if len(self._body) > receiver.max_body_bytes:
            receiver.refuse_body()
        else:
            receiver.receive_body(self._body)


class PageReceiver:
    """Takes the body of a request for a page, and answers with what the page returns, once that is noted."""

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
        self._head = head
        self._exchange = exchange
        self._page = page
        self._cors = cors
        self._tasks = tasks
        self._note = note

    def receive_body(self, body: bytes) -> None:
        """Ask the page."""
        self._tasks.create(self._answer(PageRequest(self._head, body)), name="page")

    def refuse_body(self) -> None:
        """Refuse a form that is too long."""
        self._respond(refusal(413, f"a form may have {_MAX_PAGE_BYTES} bytes at most"))

    def disconnected(self) -> None:
        """Take it that nobody reads the answer: what the page does is done all the same."""

    async def _answer(self, request: PageRequest) -> None:
        try:
            response = self._note(await self._page(request))
        except Exception:
            log.exception("a bug: a page failed")
            response = refusal(500, "internal error of dynamic-mcp; its log says more")
        self._respond(response)

    def _respond(self, response: Response) -> None:
        self._exchange.respond(with_headers(response, self._cors))
