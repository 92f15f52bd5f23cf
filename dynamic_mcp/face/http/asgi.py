"""The HTTP face as an ASGI 3 application: mounted in Starlette or FastAPI, or run by any ASGI server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, cast
from urllib.parse import quote

from dynamic_mcp.face.http.body_budget import BodyBudget, BodyHold
from dynamic_mcp.face.http.exchange import GONE, BodyReceiver, Handler, RequestHead, Response
from dynamic_mcp.face.http.limits import (
    BODY_PROGRESS_BYTES,
    BODY_PROGRESS_WITHIN_S,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
)
from dynamic_mcp.face.http.responses import RETRY_AFTER
from dynamic_mcp.face.http.rules import HttpRefusal, check_host, join_fields

# As in the ASGI specification; the keys of a mapping depend on its `type`.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiApp:
    """Serves one handler as an ASGI application.

    `startup` and `shutdown` follow the server's lifespan events; an application in which this one is mounted does not
    forward them, and must call them itself.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        startup: Callable[[], Awaitable[None]] | None = None,
        shutdown: Callable[[], Awaitable[None]] | None = None,
        body_progress_within_s: float = BODY_PROGRESS_WITHIN_S,
    ) -> None:
        self._handler = handler
        self._startup = startup
        self._shutdown = shutdown
        self._bodies = BodyBudget()
        self._body_progress_within_s = body_progress_within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the server. Websockets are refused."""
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            case other:
                raise ValueError(f"unsupported ASGI scope `{other}`")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(send, is_head=scope["method"] == "HEAD")
        try:
            head = request_head(scope)
        except HttpRefusal as refusal:
            exchange.refuse(refusal)
            await exchange.deliver()
            return
        receiver = self._handler.begin(head, exchange)
        hold = None if receiver is None else BodyHold(self._bodies, receiver)
        try:
            if receiver is not None and hold is not None and exchange.is_unanswered:
                exchange.on_answer = hold.release
                await self._read_body(head, exchange, receiver, receive, hold)
                hold.settle()
            if exchange.is_ended:
                await exchange.deliver()
            elif not exchange.has_lost_client:
                await _stream(exchange, receive)
        finally:  # the answer is over when this call returns
            if hold is not None:
                hold.release()
            if exchange.lose_client() and receiver is not None:
                receiver.disconnected()

    async def _read_body(
        self, head: RequestHead, exchange: AsgiExchange, receiver: BodyReceiver, receive: Receive, hold: BodyHold
    ) -> None:
        length = head.headers.get(b"content-length", b"")
        if length.isdigit() and len(length) < 20 and int(length) > receiver.max_body_bytes:
            receiver.refuse_body()
            return
        try:
            body = await self._collect_body(receiver.max_body_bytes, receive, hold)
        except HttpRefusal as refusal:
            receiver.disconnected()
            exchange.refuse(refusal)
            return
        except TimeoutError:
            receiver.disconnected()
            exchange.refuse(HttpRefusal(408, "timed out waiting for the body of the request"))
            return
        if body is None:
            exchange.has_lost_client = True
        elif len(body) > receiver.max_body_bytes:
            receiver.refuse_body()
        else:
            receiver.receive_body(body)

    async def _collect_body(self, most: int, receive: Receive, hold: BodyHold) -> bytes | None:
        """Return a body, or its beginning if it is too long; None if the client disconnects.

        Raises TimeoutError, and HttpRefusal if all unfinished bodies together are too long.
        """
        body, due = bytearray(), BODY_PROGRESS_BYTES
        has_more = True
        now = asyncio.get_running_loop().time
        async with asyncio.timeout(self._body_progress_within_s) as bound:
            while has_more and len(body) <= most:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                has_more = message.get("more_body", False)
                if has_more and not hold.grow(len(body)):
                    raise HttpRefusal(503, "too many long messages at once; retry later", RETRY_AFTER)
                if len(body) >= due:
                    due = len(body) + BODY_PROGRESS_BYTES
                    bound.reschedule(now() + self._body_progress_within_s)
        return bytes(body)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await _report("startup", self._startup, send)
            else:
                await _report("shutdown", self._shutdown, send)
                return


async def _report(name: str, hook: Callable[[], Awaitable[None]] | None, send: Send) -> None:
    try:
        if hook is not None:
            await hook()
    except Exception as exc:
        await send({"type": f"lifespan.{name}.failed", "message": str(exc)})
        raise
    await send({"type": f"lifespan.{name}.complete"})


async def _stream(exchange: AsgiExchange, receive: Receive) -> None:
    """Deliver an answer until it ends or the client disconnects, even if the server holds output back."""
    delivery = exchange.delivery = asyncio.ensure_future(exchange.deliver())
    disconnection = asyncio.ensure_future(_wait_for_disconnection(receive))
    try:
        await asyncio.wait((delivery, disconnection), return_when=asyncio.FIRST_COMPLETED)
        if delivery.cancelled():  # the answer was aborted
            pass
        elif delivery.done():
            delivery.result()
        else:
            exchange.has_lost_client = True
    finally:
        delivery.cancel()
        disconnection.cancel()
        await asyncio.gather(delivery, disconnection, return_exceptions=True)


async def _wait_for_disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class AsgiExchange:
    """The `Exchange` of an ASGI call. Its messages wait here until the server takes them."""

    def __init__(self, send: Send, *, is_head: bool) -> None:
        self.is_unanswered = True
        self.is_ended = False
        self.has_lost_client = False
        self.on_answer: Callable[[], None] | None = None
        """Called when the answer begins."""
        self.delivery: asyncio.Future[None] | None = None
        """Passes a stream to the server, which may hold it back while the client does not read."""
        self._send = send
        self._has_body = not is_head
        self._messages = deque[Message]()
        self._buffered = 0
        self._more = asyncio.Event()
        self._is_over = False

    def respond(self, response: Response) -> None:
        if self.is_unanswered and not self._is_over:
            self.is_unanswered = False
            length = (b"content-length", str(len(response.body)).encode())
            has_body = response.status not in (204, 304)
            self._put_start(response, (*response.headers, length) if has_body else response.headers)
            self._put_body(response.body if has_body else b"", is_last=True)

    def start(self, response: Response) -> None:
        if self.is_unanswered and not self._is_over:
            self.is_unanswered = False
            self._put_start(response, response.headers)
            self.write(response.body)

    def write(self, data: bytes) -> None:
        if data and self._has_body and self._is_streaming():
            self._put_body(data, is_last=False)

    def end(self) -> None:
        if self._is_streaming():
            self._put_body(b"", is_last=True)

    def buffered_bytes(self) -> int:
        return self._buffered

    def abort(self) -> None:
        """End the call without the end of the answer, so that the server closes the connection."""
        self._is_over = True
        self._messages.clear()
        self._more.set()
        if self.delivery is not None:
            self.delivery.cancel()

    def admit_peer(self) -> None:
        """Do nothing: the server limits its connections."""

    def refuse(self, refusal: HttpRefusal) -> None:
        """Answer instead of the handler."""
        body = refusal.reason.encode() + b"\n"
        content_type = (b"content-type", b"text/plain; charset=utf-8")
        self.respond(Response(refusal.status, (content_type, *refusal.headers), body))
        self._is_over = True

    def lose_client(self) -> bool:
        """Accept nothing more; return True if the handler does not know yet that the answer is over."""
        was_open = not self._is_over and not self.is_ended
        self._is_over = True
        return was_open

    async def deliver(self) -> None:
        """Pass messages to the server, until the end."""
        while not self._is_over or self._messages:
            while self._messages:
                message = self._messages.popleft()
                try:
                    await self._send(message)
                except OSError:  # some servers report a disconnect so
                    self.has_lost_client = True
                    return
                self._buffered -= len(message.get("body", b""))
            if self.is_ended:
                return
            self._more.clear()
            await self._more.wait()

    def _is_streaming(self) -> bool:
        return not (self.is_unanswered or self.is_ended or self._is_over)

    def _put_start(self, response: Response, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.on_answer is not None:
            self.on_answer()
        self._put({"type": "http.response.start", "status": response.status, "headers": list(headers)})

    def _put_body(self, data: bytes, *, is_last: bool) -> None:
        self.is_ended = is_last
        body = data if self._has_body else b""
        self._buffered += len(body)
        self._put({"type": "http.response.body", "body": body, "more_body": not is_last})

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._more.set()


def request_head(scope: Scope) -> RequestHead:
    """Return the request head of an ASGI scope. Raises HttpRefusal."""
    pairs = cast(list[tuple[bytes, bytes]], scope["headers"])
    if len(pairs) > MAX_FIELDS:
        raise HttpRefusal(431, f"more than {MAX_FIELDS} header fields")
    if sum(len(name) + len(value) + 4 for name, value in pairs) > MAX_HEAD_BYTES:
        raise HttpRefusal(431, f"the head is longer than {MAX_HEAD_BYTES} bytes")
    fields, repeated = join_fields(pairs)
    check_host(fields, repeated, is_needed=scope.get("http_version") == "1.1")
    _check_length(fields, repeated)
    root_path = str(scope.get("root_path") or "").rstrip("/")
    client = scope.get("client")
    return RequestHead(
        method=scope["method"],
        target=_target(scope, root_path),
        headers=fields,
        repeated=repeated,
        peer=str(client[0] or "") if client else GONE if _has_port(scope) else "",
        is_secure=scope.get("scheme") == "https",
        root_path=root_path,
        port=int(client[1] or 0) if client else 0,
    )


def _has_port(scope: Scope) -> bool:
    """Return whether the server listens on a port, so that a client without an address uses no Unix socket."""
    server = scope.get("server")
    return server is not None and server[1] is not None


def _check_length(fields: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> None:
    length = fields.get(b"content-length")
    if length is None:
        return
    if b"content-length" in repeated or not length.isdigit():
        raise HttpRefusal(400, "invalid header `Content-Length`")
    if b"transfer-encoding" in fields:
        raise HttpRefusal(400, "`Content-Length` and `Transfer-Encoding` exclude each other")


def _target(scope: Scope, root_path: str) -> bytes:
    """Return the path below `root_path`, and the query.

    ASGI has had two conventions for a mounted application: the path with the mount's (today), and without it.
    """
    raw_path = scope.get("raw_path")
    path = bytes(raw_path).partition(b"?")[0] if raw_path else quote(scope["path"]).encode()
    for prefix in (root_path.encode(), quote(root_path).encode()):
        if prefix and (path == prefix or path.startswith(prefix + b"/")):
            path = path[len(prefix) :]
            break
    query = scope.get("query_string") or b""
    return (path or b"/") + (b"?" + query if query else b"")
