"""One connection of our server. A request starts when the answer to the one before has ended.

Whatever a client does, it uses a bounded amount of memory for a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from dynamic_mcp.errors import Upgraded
from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.answer import ENDED, WAITING, HttpExchange
from dynamic_mcp.face.http.body import RequestBody
from dynamic_mcp.face.http.body_budget import BodyHold
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.face.http.exchange import BodyReceiver, Response
from dynamic_mcp.face.http.head_cache import HeadCache
from dynamic_mcp.face.http.heads import CONTINUE, TOO_MANY_CONNECTIONS
from dynamic_mcp.face.http.input import InputBuffer
from dynamic_mcp.face.http.parser import PREFACE_OF_HTTP2, MessageParser, ParsedRequest, Peer
from dynamic_mcp.face.http.responses import RETRY_AFTER, Headers
from dynamic_mcp.face.http.rules import HttpRefusal

log = logging.getLogger(__name__)


class _State(Enum):
    """The state of a connection. A request leads from IDLE through HEAD, BODY and ANSWER back to IDLE.

    The members are named by what the connection waits for. A request that arrives at once skips HEAD and BODY. HEAD
    leads back to IDLE after an empty line, BODY if the answer precedes the end of the body. All states lead to
    LINGERING and CLOSING, and LINGERING to CLOSING.
    """

    IDLE = auto()
    """A request."""
    HEAD = auto()
    """The rest of a head."""
    BODY = auto()
    """The rest of a body."""
    ANSWER = auto()
    """The answer to a complete request."""
    LINGERING = auto()
    """The client to close; its input is discarded."""
    CLOSING = auto()
    """The end, after everything is written."""


class _Input(Enum):
    """The client's input. READING ↔ PAUSED, and both → ENDED."""

    READING = auto()
    PAUSED = auto()
    """Enough input is waiting."""
    ENDED = auto()
    """The client has closed its side, but may still read."""


# Reading a member from its class takes ten times as long, several times with each request.
_IDLE, _HEAD, _BODY, _ANSWER, _LINGERING, _CLOSING = _State
_READING, _PAUSED, _ENDED = _Input


class HttpConnection(asyncio.Protocol):
    """Parses requests, passes them to the handler, and enforces the client's limits."""

    __slots__ = (
        "_body", "_buffer", "_connections", "_deadline", "_exchange", "_heads", "_hold", "_input", "_is_advancing",
        "_is_unread", "_lingered", "_peer", "_receiver", "_request_site", "_sent", "_site", "_state", "_taken",
        "_transport", "_unread_deadline",
    )  # fmt: skip

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._state = _IDLE
        self._input = _READING
        self._buffer = InputBuffer()
        self._is_advancing = False  # a handler may answer during `begin`
        self._is_unread = False  # our write buffer is full
        self._exchange: HttpExchange | None = None
        self._receiver: BodyReceiver | None = None
        self._body: RequestBody | None = None
        self._hold: BodyHold | None = None  # the share of the budget of the body, or of the one before it
        self._site: str | None = None  # the address that it is counted for; None if it was not admitted
        self._request_site: str | None = None  # the address that a trusted proxy's request is counted for
        self._deadline = self._unread_deadline = math.inf
        self._sent = self._taken = self._lingered = 0

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class has the methods, but is no subclass
        connections = self._connections
        self._peer = Peer.of(transport)
        self._heads = HeadCache(self._peer)
        connections.add(self)
        self._deadline = self._next_deadline()
        self._site = connections.admission.admit(self._peer.address)
        if self._site is None:
            self.send(TOO_MANY_CONNECTIONS)
            self._close()
        elif connections.is_closing:
            self._close()

    def data_received(self, data: bytes) -> None:
        if self._state is _LINGERING:
            self._lingered += len(data)
            if self._lingered > limits.LINGER_BYTES:
                self._close()
        elif self._state is not _CLOSING:
            self._buffer.add(data)
            self._advance()

    def eof_received(self) -> bool:
        """Return True if the client, which sends nothing more, may still read its answers."""
        self._input = _ENDED
        if self._state in (_IDLE, _HEAD, _LINGERING):
            self._close()
            return False
        exchange, receiver = self._exchange, self._receiver
        is_waiting = exchange is not None and exchange.state is WAITING
        may_be_half_open = not self._peer.is_secure and (receiver is None or not receiver.needs_client)
        if self._state is _ANSWER and is_waiting and may_be_half_open:  # TLS has no half-open connections
            self._deadline = self._next_deadline()
            return True
        self._transport.abort()
        return False

    def pause_writing(self) -> None:
        self._is_unread = True
        self._watch_reader()

    def resume_writing(self) -> None:
        self._is_unread = False
        if self._state is _LINGERING:
            self._deadline = self._next_deadline()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = _CLOSING
        self._connections.remove(self)
        if self._site is not None:
            self._connections.admission.leave(self._site)
        self._buffer, self._body = InputBuffer(), None
        self._release_hold()
        self._drop_exchange()

    # --- for the server --------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Act if the client is too slow."""
        if self._hold is not None and self._body is None:
            self._hold.settle()
        if self._is_unread or self._state is _CLOSING:
            taken = self._sent - self.unread_bytes()
            if taken != self._taken:
                self._watch_reader()
            elif now >= self._unread_deadline:
                self._transport.abort()
        elif now >= self._deadline:
            self._expire()

    def close_when_idle(self) -> None:
        """Close if no request is in progress; otherwise its answer is the last one."""
        is_new = not self._sent and self._connections.may_begin
        if self._state is _IDLE and not self._buffer and not is_new:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    # --- for an answer ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write, unless the client has disconnected."""
        if not self._transport.is_closing():
            self._sent += len(data)
            self._transport.write(data)

    def date_line(self) -> bytes:
        return self._connections.date

    def may_stay_open(self) -> bool:
        """Return whether another request may follow: the rest of this one is small enough to be read."""
        body = self._body
        if self._connections.are_retiring:
            return False
        return body is None or (body.is_coming and body.missing_bytes() <= limits.DRAIN_BYTES)

    def end_exchange(self) -> None:
        """Continue with the next request, or close."""
        exchange, self._exchange, self._receiver = self._exchange, None, None
        if self._hold is not None:
            self._release_hold()
        if self._request_site is not None:
            self._end_request()
        if self._connections.is_closing or (exchange is not None and not exchange.is_keep_alive):
            if self._state is _BODY or self._buffer:
                self._linger()
            else:
                self._close()
            return
        if self._state is _ANSWER:
            self._state = _IDLE
            self._deadline = self._connections.now + limits.IDLE_FOR_S
        else:
            if self._body is not None:
                self._body.drop()
            self._deadline = self._next_deadline()
        if self._buffer or self._input is _ENDED:
            self._advance()

    def unread_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def abort_exchange(self) -> None:
        """Close without calling `disconnected`."""
        self._end_request()
        self._exchange = self._receiver = None
        self._transport.abort()

    def admit_peer(self) -> None:
        if self._site:
            self._connections.admission.end_request(self._site)
            self._site = ""

    # --- one request after another ---------------------------------------------------------------------

    def _advance(self) -> None:
        """Start as many requests as possible in a turn, and read on if there is room for more."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            for _ in range(limits.REQUESTS_A_TURN):
                if not self._step():
                    break
            else:
                asyncio.get_running_loop().call_soon(self._advance)
        except HttpRefusal as refusal:
            self._refuse(refusal.status, refusal.reason, refusal.headers)
        finally:
            self._is_advancing = False
        if len(self._buffer) > limits.AHEAD_BYTES or self._input is _PAUSED:
            self._pause_or_resume()

    def _step(self) -> bool:
        """Process a head or a piece of a body; return False if that is not possible now."""
        state = self._state
        if state is _ANSWER:
            return False
        if state is _BODY:
            return len(self._buffer) > 0 and self._take_body()
        if state in (_IDLE, _HEAD) and not self._is_unread:
            if self._buffer and self._take_head():
                return True
            if self._input is _ENDED:
                self._close()
        return False

    def _pause_or_resume(self) -> None:
        is_behind = len(self._buffer) > limits.AHEAD_BYTES
        if self._transport.is_closing():
            return
        if is_behind and self._input is _READING:
            self._input = _PAUSED
            self._transport.pause_reading()
        elif not is_behind and self._input is _PAUSED:
            self._resume_reading()

    def _resume_reading(self) -> None:
        self._input = _READING
        self._transport.resume_reading()

    # --- the head --------------------------------------------------------------------------------------

    def _take_head(self) -> bool:
        buffer = self._buffer
        cached = self._heads.find(buffer.peek())
        if cached is not None:
            request, size = cached
            self._begin(request, None, size)
            return True
        raw = buffer.take_head()
        if raw is None:
            state = _HEAD if buffer else _IDLE  # the beginning of a head, or only an empty line
            if state is not self._state:
                self._state = state
                self._deadline = self._next_deadline()
            return False
        if raw == PREFACE_OF_HTTP2:
            self._close()
            return False
        request, parser = self._heads.parse(raw)
        self._begin(request, parser, 0)
        return True

    def _begin(self, request: ParsedRequest, parser: MessageParser | None, head_bytes: int) -> None:
        """Start a request; `head_bytes` of its head are still in the buffer."""
        self._exchange = HttpExchange(self, request)
        length = request.length
        if length is None or len(self._buffer) < head_bytes + length:
            if head_bytes:
                self._buffer.take_message(head_bytes, 0)
            self._begin_with_body(request, parser)
            return
        body = self._buffer.take_message(head_bytes, length)
        self._state, self._deadline = _ANSWER, math.inf
        if (receiver := self._hand_over(request)) is not None:
            self._deliver(receiver, body)

    def _hand_over(self, request: ParsedRequest) -> BodyReceiver | None:
        """Pass a request to the handler; return the receiver of its body, unless it is already answered."""
        exchange = self._exchange
        assert exchange is not None
        admission = self._connections.admission
        if not self._site and admission.forwarding.trusts(request.head.peer):
            self._request_site = admission.begin_request(request.head)
            if self._request_site is None:
                raise HttpRefusal(503, "this address has too many requests in flight", RETRY_AFTER)
        try:
            receiver = self._connections.handler.begin(request.head, exchange)
        except Upgraded as exc:
            self._refuse_to_serve(exc)
            return None
        except Exception:
            log.exception("a bug: handling a request failed")
            self._fail()
            return None
        if exchange.state is not ENDED:
            self._receiver = receiver
        return receiver if exchange.state is WAITING else None

    # --- the body --------------------------------------------------------------------------------------

    def _begin_with_body(self, request: ParsedRequest, parser: MessageParser | None) -> None:
        """Start a request whose body is incomplete."""
        self._state = _BODY
        self._body = body = RequestBody(request.length, parser)
        body.is_coming = not request.expects_continue or bool(self._buffer)
        receiver = self._hand_over(request)
        if receiver is None:
            body.drop()
        elif body.missing_bytes() > receiver.max_body_bytes:
            body.drop()
            self._call(receiver.refuse_body)
        elif not body.is_coming:
            body.is_coming = True
            self.send(CONTINUE)
        if self._state is _BODY:
            self._deadline = self._next_deadline()

    def _take_body(self) -> bool:
        body, receiver = self._body, self._receiver
        assert body is not None
        if not body.is_wanted and self._exchange is not None:  # `end_exchange` decides whether the rest is read
            return False
        self._buffer.skip(body.feed(self._buffer.peek()))
        if not body.is_complete():
            if body.discarded_bytes > limits.DRAIN_BYTES:
                self._linger()
            elif body.is_wanted and receiver is not None:
                if is_too_long := body.collected_bytes() > receiver.max_body_bytes:
                    body.drop()
                    self._call(receiver.refuse_body)
                elif not self._may_collect(receiver, body.collected_bytes()):
                    raise HttpRefusal(503, "too many long messages at once; retry later", RETRY_AFTER)
                if is_too_long or body.record_progress():
                    self._deadline = self._next_deadline()
            return True
        self._body = None
        self._state = _IDLE if self._exchange is None else _ANSWER
        self._deadline = self._next_deadline()
        if receiver is not None and body.is_wanted:
            self._deliver(receiver, body.take())
        if self._hold is not None:
            self._hold.settle()
        return True

    def _may_collect(self, receiver: BodyReceiver, collected: int) -> bool:
        """Return whether the unfinished body may hold so many bytes in memory."""
        if self._hold is None:
            self._hold = BodyHold(self._connections.bodies, receiver)
        return self._hold.grow(collected)

    def _end_request(self) -> None:
        if self._request_site is not None:
            self._connections.admission.end_request(self._request_site)
            self._request_site = None

    def _release_hold(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _deliver(self, receiver: BodyReceiver, body: bytes) -> None:
        if len(body) <= receiver.max_body_bytes:
            self._call(receiver.receive_body, body)
        else:
            self._call(receiver.refuse_body)

    def _call(self, receive: Callable[..., None], *arguments: bytes) -> None:
        try:
            receive(*arguments)
        except Upgraded as exc:
            self._refuse_to_serve(exc)
        except Exception:
            log.exception("a bug: handling a request failed")
            self._fail()

    # --- errors, and the end ---------------------------------------------------------------------------

    def _next_deadline(self) -> float:
        state, connections = self._state, self._connections
        if state is _IDLE:
            return connections.now + limits.IDLE_FOR_S
        if state is _HEAD:
            return connections.clock() + limits.HEAD_WITHIN_S
        if state is _BODY and (self._exchange is None or (self._body is not None and self._body.is_wanted)):
            return connections.now + limits.BODY_PROGRESS_WITHIN_S
        if state is _ANSWER and self._input is _ENDED:
            return connections.clock() + limits.HALF_OPEN_FOR_S
        if state is _LINGERING:
            return connections.clock() + limits.LINGER_FOR_S
        return math.inf

    def _expire(self) -> None:
        if self._state is _HEAD:
            self._refuse(408, "timed out waiting for the head of the request")
        elif self._state is _BODY:
            self._refuse(408, "timed out waiting for the body of the request")
        elif self._state is _ANSWER:
            self._transport.abort()
        else:
            self._close()

    def _watch_reader(self) -> None:
        self._taken = self._sent - self.unread_bytes()
        self._unread_deadline = self._connections.clock() + limits.UNREAD_FOR_S

    def _refuse_to_serve(self, error: Upgraded) -> None:
        log.error("could not handle a request: %s", error.message)
        self._fail(503, error.message)

    def _fail(self, status: int = 500, reason: str = "internal error; see the log") -> None:
        """Answer a request that caused a bug, and close."""
        self._receiver = None
        if self._exchange is not None:
            self._refuse(status, reason)

    def _refuse(self, status: int, reason: str, headers: Headers = ()) -> None:
        """Answer instead of the handler, unless it has started to, and close."""
        exchange = self._exchange
        if exchange is None and self._state is _BODY:  # it was answered before the error
            self._linger()
        elif exchange is not None and exchange.state is not WAITING:
            self._transport.abort()
        else:
            self._drop_exchange()
            self._exchange = answer = HttpExchange(self)
            self._state = _BODY  # more input may follow
            content_type = (b"content-type", b"text/plain; charset=utf-8")
            answer.respond(Response(status, (content_type, *headers), reason.encode() + b"\n"))

    def _drop_exchange(self) -> None:
        """Withdraw the request from the handler."""
        exchange, receiver = self._exchange, self._receiver
        self._exchange = self._receiver = None
        self._release_hold()
        self._end_request()
        if exchange is not None:
            exchange.drop()
        if receiver is not None:
            try:
                receiver.disconnected()
            except Exception:
                log.exception("a bug: ending a request failed")

    def _linger(self) -> None:
        """Send nothing more, and discard input until the client closes or the time is over."""
        self._buffer, self._body = InputBuffer(), None
        if self._input is _ENDED or self._transport.is_closing():
            self._close()
            return
        self._state = _LINGERING
        self._deadline = self._next_deadline()
        if self._input is _PAUSED:
            self._resume_reading()
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # of asyncio's own loop: the client has reset the connection
                self._transport.write_eof()

    def _close(self) -> None:
        """Close once everything is written, or the client does not read it."""
        self._state = _CLOSING
        self._buffer, self._body = InputBuffer(), None
        self._watch_reader()
        self._transport.close()
