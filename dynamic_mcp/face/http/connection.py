"""One connection of our server: requests one after another, each begun when the answer before it has ended.

Whatever a client does, it holds a bounded amount of memory for a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from dynamic_mcp.face.http.answer import AnswerState, HttpExchange
from dynamic_mcp.face.http.body import RequestBody
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.face.http.exchange import Receiver, Response
from dynamic_mcp.face.http.heads import CONTINUE
from dynamic_mcp.face.http.parser import PREFACE_OF_HTTP2, MessageParser, Peer, Request, find_head_end
from dynamic_mcp.face.http.rules import BODY_PROGRESS_WITHIN_S, Refusal

log = logging.getLogger(__name__)

# How long a head may take from its first byte.
HEAD_WITHIN_S = 10.0
# A connection on which nothing is asked is closed; one whose client does not read what it asked for is aborted.
IDLE_FOR_S = 75.0
UNREAD_FOR_S = 60.0
# A client that sends nothing more may wait for its answers for this long; one that has vanished looks the same.
HALF_OPEN_FOR_S = 10.0
# What a client goes on sending after its last answer is read and forgotten, so that no reset overtakes the answer.
LINGER_FOR_S = 2.0
LINGER_BYTES = 32 << 20

# A body that nobody wants is read to its end if no more than this is left of it.
DRAIN_BYTES = 256 << 10
# What is read ahead while a request is being answered.
_AHEAD_BYTES = 64 << 10
# Requests of one connection that are begun before the others have their turn.
_REQUESTS_A_TURN = 32


class _State(Enum):
    HEAD = auto()  # between requests, or within a head
    BODY = auto()
    ANSWER = auto()  # the request is complete
    LINGERING = auto()
    CLOSING = auto()


class HttpConnection(asyncio.Protocol):
    """Parses requests, hands them to the handler, and keeps the client within its bounds."""

    __slots__ = (
        "_body", "_buffer", "_connections", "_deadline", "_exchange", "_has_eof", "_has_skipped_line", "_is_advancing",
        "_is_full", "_is_in_head", "_is_paused", "_lingered", "_peer", "_receiver", "_scanned", "_sent", "_state",
        "_taken", "_transport", "_unread_deadline",
    )  # fmt: skip

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._state = _State.HEAD
        self._buffer: bytes | bytearray = b""
        self._scanned = 0
        self._is_in_head = self._has_skipped_line = False
        self._is_advancing = False
        self._is_paused = False  # we do not read
        self._is_full = False  # the client does not read
        self._has_eof = False
        self._exchange: HttpExchange | None = None
        self._receiver: Receiver | None = None
        self._body: RequestBody | None = None
        self._deadline = self._unread_deadline = math.inf
        self._sent = self._taken = self._lingered = 0

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class has the methods, but is no subclass
        connections = self._connections
        name = transport.get_extra_info("peername")
        address = name[0] if isinstance(name, tuple) and name else ""
        self._peer = Peer(address, transport.get_extra_info("sslcontext") is not None, connections.root_path)
        connections.add(self)
        self._deadline = self._next_deadline()
        if connections.is_closing:
            self._close()

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if self._state is _State.LINGERING:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self._close()
        elif self._state is not _State.CLOSING:
            if self._buffer:
                if type(self._buffer) is not bytearray:
                    self._buffer = bytearray(self._buffer)
                self._buffer += data
            else:
                self._buffer = data
            self._advance()

    def eof_received(self) -> bool:
        """Take it that the client sends nothing more. True: it may still read its answers."""
        self._has_eof = True
        if self._state in (_State.HEAD, _State.LINGERING):
            self._close()
            return False
        exchange = self._exchange
        is_waiting = exchange is not None and exchange.state is AnswerState.WAITING
        if self._state is _State.ANSWER and is_waiting and not self._peer.is_secure:  # TLS cannot be half open
            self._deadline = self._next_deadline()
            return True
        self._transport.abort()
        return False

    def pause_writing(self) -> None:
        """Begin nothing more for a client that does not read."""
        self._is_full = True
        self._watch_reader()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        if self._state is _State.LINGERING:
            self._deadline = self._next_deadline()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever is answering."""
        self._state = _State.CLOSING
        self._connections.remove(self)
        self._buffer, self._body = b"", None
        self._drop_exchange()

    # --- what the server asks --------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Act if what this waits for has not come in time."""
        if self._is_full or self._state is _State.CLOSING:
            taken = self._sent - self.unread_bytes()
            if taken != self._taken:
                self._watch_reader()
            elif now >= self._unread_deadline:
                self._transport.abort()
        elif now >= self._deadline:
            self._expire()

    def close_when_idle(self) -> None:
        """Close now if no request is on its way; otherwise its answer says that it is the last one."""
        if self._state is _State.HEAD and not self._buffer:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # --- what an answer asks ---------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write, unless the client has gone."""
        if not self._transport.is_closing():
            self._sent += len(data)
            self._transport.write(data)

    def date_line(self) -> bytes:
        """Return the Date header."""
        return self._connections.date

    def may_stay_open(self) -> bool:
        """Tell whether another request may follow, and what is left of this one is little enough to be read."""
        body = self._body
        if self._connections.is_closing:
            return False
        return body is None or (body.is_coming and body.missing_bytes() <= DRAIN_BYTES)

    def end_exchange(self) -> None:
        """Go on with the next request, or close."""
        exchange, self._exchange, self._receiver = self._exchange, None, None
        if self._connections.is_closing or (exchange is not None and not exchange.is_keep_alive):
            if self._state is _State.BODY or self._buffer:
                self._linger()
            else:
                self._close()
            return
        if self._state is _State.ANSWER:
            self._state = _State.HEAD
        elif self._body is not None:
            self._body.drop()
        self._deadline = self._next_deadline()
        self._advance()

    def unread_bytes(self) -> int:
        """Return how much was sent that the client has not taken."""
        return self._transport.get_write_buffer_size()

    def abort_exchange(self) -> None:
        """Close at once, and tell nobody."""
        self._exchange = self._receiver = None
        self._transport.abort()

    # --- one request after another ---------------------------------------------------------------------

    def _advance(self) -> None:
        """Begin what can be begun, and read on if there is room for more."""
        if self._is_advancing:  # a handler has answered at once
            return
        self._is_advancing = True
        try:
            for _ in range(_REQUESTS_A_TURN):
                if not self._step():
                    break
            else:
                asyncio.get_running_loop().call_soon(self._advance)
        except Refusal as refusal:
            self._refuse(refusal.status, refusal.reason)
        finally:
            self._is_advancing = False
        if len(self._buffer) > _AHEAD_BYTES or self._is_paused:
            self._pause_or_resume()

    def _step(self) -> bool:
        """Take a head or a piece of a body; return False if nothing more can be taken for now."""
        if self._state is _State.HEAD and not self._is_full:
            if self._buffer and self._take_head():
                return True
            if self._has_eof:
                self._close()
        elif self._state is _State.BODY and self._buffer:
            return self._take_body()
        return False

    def _pause_or_resume(self) -> None:
        is_behind = len(self._buffer) > _AHEAD_BYTES
        if is_behind != self._is_paused and not self._has_eof and not self._transport.is_closing():
            self._is_paused = is_behind
            if is_behind:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _consume(self, count: int) -> None:
        if count == len(self._buffer):
            self._buffer = b""
            return
        if type(self._buffer) is not bytearray:
            self._buffer = bytearray(self._buffer)
        del self._buffer[:count]  # which does not copy what remains

    # --- the head --------------------------------------------------------------------------------------

    def _take_head(self) -> bool:
        if self._buffer[0] == 13 and not self._has_skipped_line:
            return self._skip_line()
        end = find_head_end(self._buffer, self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            self._await_head()
            return False
        if self._buffer.startswith(PREFACE_OF_HTTP2):
            self._close()
            return False
        parser = MessageParser()
        request = parser.parse_head(bytes(self._buffer[:end]), self._peer)
        self._scanned = 0
        self._is_in_head = self._has_skipped_line = False
        self._begin(request, parser, end)
        return True

    def _skip_line(self) -> bool:
        """Skip one empty line before a request, which some clients send after a body (RFC 9112, 2.2)."""
        if len(self._buffer) == 1:
            self._await_head()
            return False
        self._has_skipped_line = True
        if self._buffer.startswith(b"\r\n"):
            self._consume(2)
            self._is_in_head = False
            self._deadline = self._next_deadline()
        return True

    def _await_head(self) -> None:
        if not self._is_in_head:
            self._is_in_head = True
            self._deadline = self._next_deadline()

    def _begin(self, request: Request, parser: MessageParser, end: int) -> None:
        is_head = request.head.method == "HEAD"
        self._exchange = HttpExchange(
            self, is_head=is_head, is_http10=request.is_http10, is_keep_alive=request.is_keep_alive
        )
        length = request.length
        if length is None or len(self._buffer) < end + length:
            self._consume(end)
            self._begin_with_body(request, parser)
            return
        body = bytes(self._buffer[end : end + length]) if length else b""
        self._consume(end + length)
        self._state, self._deadline = _State.ANSWER, math.inf
        receiver = self._hand_over(request)
        if receiver is not None:
            self._deliver(receiver, body)

    def _hand_over(self, request: Request) -> Receiver | None:
        """Let the handler begin; return who takes the body, unless it is answered already."""
        exchange = self._exchange
        assert exchange is not None
        try:
            receiver = self._connections.handler.begin(request.head, exchange)
        except Exception:
            log.exception("a bug: a request cannot be handled")
            self._fail()
            return None
        if exchange.state is not AnswerState.ENDED:
            self._receiver = receiver
        return receiver if exchange.state is AnswerState.WAITING else None

    # --- the body --------------------------------------------------------------------------------------

    def _begin_with_body(self, request: Request, parser: MessageParser) -> None:
        """Begin a request whose body has not come yet, or not all of it."""
        self._state = _State.BODY
        self._body = body = RequestBody(request.length, parser)
        body.is_coming = not request.expects_continue or bool(self._buffer)
        receiver = self._hand_over(request)
        if receiver is None:
            body.drop()
        elif body.missing_bytes() > receiver.max_body_bytes:
            self._refuse_body(receiver)
        elif not body.is_coming:
            body.is_coming = True
            self.send(CONTINUE)
        if self._state is _State.BODY:
            self._deadline = self._next_deadline()

    def _take_body(self) -> bool:
        body, receiver = self._body, self._receiver
        assert body is not None
        if not body.is_wanted and self._exchange is not None:  # the answer decides whether the rest is read
            return False
        self._consume(body.feed(self._buffer))
        if not body.is_complete():
            if body.thrown_away > DRAIN_BYTES:
                self._linger()
            elif body.is_wanted and receiver is not None:
                if body.collected_bytes() > receiver.max_body_bytes:
                    self._refuse_body(receiver)
                self._deadline = self._next_deadline()
            return True
        self._body = None
        self._state = _State.HEAD if self._exchange is None else _State.ANSWER
        self._deadline = self._next_deadline()
        if receiver is not None and body.is_wanted:
            self._deliver(receiver, body.take())
        return True

    def _refuse_body(self, receiver: Receiver) -> None:
        if self._body is not None:
            self._body.drop()
        self._tell(receiver.refuse_body)

    def _deliver(self, receiver: Receiver, body: bytes) -> None:
        if len(body) <= receiver.max_body_bytes:
            self._tell(receiver.receive_body, body)
        else:
            self._tell(receiver.refuse_body)

    def _tell(self, receive: Callable[..., None], *arguments: bytes) -> None:
        try:
            receive(*arguments)
        except Exception:
            log.exception("a bug: a request cannot be handled")
            self._fail()

    # --- how it goes wrong, and how it ends ------------------------------------------------------------

    def _next_deadline(self) -> float:
        match self._state:
            case _State.HEAD if self._is_in_head:
                return self._connections.clock() + HEAD_WITHIN_S
            case _State.HEAD:
                return self._connections.now + IDLE_FOR_S
            case _State.BODY if self._exchange is None or (self._body is not None and self._body.is_wanted):
                return self._connections.now + BODY_PROGRESS_WITHIN_S
            case _State.ANSWER if self._has_eof:
                return self._connections.clock() + HALF_OPEN_FOR_S
            case _State.LINGERING:
                return self._connections.clock() + LINGER_FOR_S
        return math.inf

    def _expire(self) -> None:
        if self._state is _State.HEAD and self._is_in_head:
            self._refuse(408, "the head of the request has not come in time")
        elif self._state is _State.BODY:
            self._refuse(408, "the body of the request has not come in time")
        elif self._state is _State.ANSWER:
            self._transport.abort()
        else:
            self._close()

    def _watch_reader(self) -> None:
        self._taken = self._sent - self.unread_bytes()
        self._unread_deadline = self._connections.clock() + UNREAD_FOR_S

    def _fail(self) -> None:
        """Answer a request that met a bug, and close."""
        self._receiver = None
        if self._exchange is not None:
            self._refuse(500, "an internal error; the log has more")

    def _refuse(self, status: int, reason: str) -> None:
        """Answer instead of the handler, if it has not begun to, and close."""
        exchange = self._exchange
        if exchange is None and self._state is _State.BODY:  # it was answered before it went wrong
            self._linger()
        elif exchange is not None and exchange.state is not AnswerState.WAITING:
            self._transport.abort()
        else:
            self._drop_exchange()
            answer = HttpExchange(self, is_head=False, is_http10=False, is_keep_alive=False)
            self._exchange, self._state = answer, _State.BODY  # more may be coming
            content_type = (b"content-type", b"text/plain; charset=utf-8")
            answer.respond(Response(status, (content_type,), reason.encode() + b"\n"))

    def _drop_exchange(self) -> None:
        """Take the request away from the handler."""
        exchange, receiver = self._exchange, self._receiver
        self._exchange = self._receiver = None
        if exchange is not None:
            exchange.drop()
        if receiver is not None:
            try:
                receiver.disconnected()
            except Exception:
                log.exception("a bug: a request cannot be ended")

    def _linger(self) -> None:
        """Send nothing more, and forget what still comes, until the client closes or has had its time."""
        self._buffer, self._body = b"", None
        if self._has_eof or self._transport.is_closing():
            self._close()
            return
        self._state = _State.LINGERING
        self._deadline = self._next_deadline()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _close(self) -> None:
        """Close once everything is written, or nobody reads it."""
        self._state = _State.CLOSING
        self._buffer, self._body = b"", None
        self._watch_reader()
        self._transport.close()
