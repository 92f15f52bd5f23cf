"""How the server of odd_http.py answers what it should answer otherwise; each kind by its name."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable

from tests.upstreams.odd_http import Connection, Json, OddHttp, Request, head_of, message_event, text_result

Fault = Callable[[OddHttp, Request, Connection], Awaitable[None]]
SECRET = "s3cr3t-header-value"
JSON = "application/json"


def _answer(request: Request, text: str = "fine") -> bytes:
    return json.dumps(text_result(request.message["id"], text)).encode()


def _times(server: OddHttp, what: str) -> int:
    server.told[what] = server.told.get(what, 0) + 1
    return server.told[what]


def responding(status: int, body: bytes = b"", **headers: str) -> Fault:
    """Always answer this."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        await to.respond(status, body, **headers)

    return respond


def with_answer(**headers: str) -> Fault:
    """Answer rightly, with these headers."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        await to.respond(200, _answer(request), **headers)

    return respond


def breaking(data: bytes, *, reset: bool = False) -> Fault:
    """Write this and break the connection off."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        if data:
            await to.write(data)
        to.close(reset=reset)
        raise ConnectionError

    return respond


def dripping(begin: bytes, drop: bytes) -> Fault:
    """Write so, a drop at a time, for ever."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        await to.write(begin)
        while True:
            await to.write(drop)
            await asyncio.sleep(0.02)

    return respond


def streaming(shape: Callable[[bytes], bytes], *, ends: bool = True) -> Fault:
    """Answer by an event stream that looks like this."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        await to.events()
        await to.event(shape(_answer(request)))
        if ends:
            await to.end_events()
        else:
            await to.closed()

    return respond


def at_first(fault: Fault) -> Fault:
    """Do this once, and rightly afterwards."""

    async def respond(server: OddHttp, request: Request, to: Connection) -> None:
        if _times(server, request.kind or "initialize") == 1:
            await fault(server, request, to)
        else:
            body = _answer(request) if request.kind else json.dumps(await server.result(request.message)).encode()
            await to.respond(200, body, content_type=JSON)

    return respond


async def _redirect_loop(server: OddHttp, request: Request, to: Connection) -> None:
    await to.respond(307, location="/mcp")


async def _hops(server: OddHttp, request: Request, to: Connection) -> None:
    hop = int(request.path.rpartition("/")[2]) if request.path.startswith("/hop/") else 0
    if hop < 3:
        await to.respond(307, location=f"/hop/{hop + 1}")
    else:
        await to.respond(200, _answer(request, request.path), content_type=JSON)


async def _drop_resumable(server: OddHttp, request: Request, to: Connection) -> None:
    """Begin an event stream that can be taken up again, and break off."""
    server.told["resumable"] = request.message["id"]
    await to.events()
    await to.event(b"id: e-1\nretry: 20\ndata:\n\n")
    await to.event(b'id: e-2\ndata: {"jsonrpc":"2.0"')  # half an event
    to.close()
    raise ConnectionError


async def _resume(server: OddHttp, request: Request, to: Connection) -> None:
    """Go on with a broken stream: with nothing new at first, then with the answer."""
    await to.events()
    if request.headers["last-event-id"] == "e-1" and _times(server, "resumed") > 1:
        await to.event(message_event(text_result(server.told["resumable"], "resumed"), id="e-3"))
    await to.end_events()


async def _flood(server: OddHttp, request: Request, to: Connection) -> None:
    note = message_event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}})
    await to.events()
    for _ in range(20):
        await to.event(note * 500)
    await to.event(b"data: %b\n\n" % _answer(request))
    await to.end_events()


async def _asks(server: OddHttp, request: Request, to: Connection) -> None:
    """Ask the client in the stream of a call, and answer the call with what it said."""
    id = f"q-{request.message['id']}"
    params = {"message": request.message["params"]["arguments"]["text"]}
    await to.events()
    await to.event(message_event({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}))
    said = await server.wait_for_request(lambda each: each.body != b"" and each.message.get("id") == id)
    await to.event(message_event(text_result(request.message["id"], json.dumps(said.message.get("result")))))
    await to.end_events()


async def _no_session_400(server: OddHttp, request: Request, to: Connection) -> None:
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    await to.respond(400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), content_type=JSON)


async def _rpc_error_400(server: OddHttp, request: Request, to: Connection) -> None:
    error = {"code": -32099, "message": "not like this", "data": {"x": 1}}
    body: Json = {"jsonrpc": "2.0", "id": request.message["id"], "error": error}
    await to.respond(400, json.dumps(body).encode(), content_type=JSON)


async def _indented(server: OddHttp, request: Request, to: Connection) -> None:
    body = json.dumps(json.loads(_answer(request)), indent=2).replace("\n", "\r\n").encode()
    await to.respond(200, body, content_type=JSON + "; charset=utf-8")


async def _gzip(server: OddHttp, request: Request, to: Connection) -> None:
    await to.respond(200, gzip.compress(_answer(request)), content_type=JSON, content_encoding="gzip")


async def _wrong_id(server: OddHttp, request: Request, to: Connection) -> None:
    await to.respond(200, json.dumps(text_result(10_000, "not yours")).encode(), content_type=JSON)


_HTML = b"<html><body>\n<h1>Oops</h1> token=" + SECRET.encode() + b" \x1b[31m" + b"x" * 5000 + b"</body></html>"
_EVENTS = head_of(200, content_type="text/event-stream", transfer_encoding="chunked")

FAULTS: dict[str, Fault] = {
    # 36, 37
    "401": responding(401, b'{"error":"invalid_token"}', www_authenticate="Bearer"),
    "403": responding(403, b"no", www_authenticate='Bearer error="insufficient_scope", scope="files:write"'),
    # 38
    "no_session": responding(404, b"session not found"),
    "no_session_400": _no_session_400,
    "404": responding(404, b"nothing here"),
    # 39
    "429": at_first(responding(429, b"slow down", retry_after="0")),
    "503": at_first(responding(503, b"deploying", retry_after="0")),
    "429_long": responding(429, b"slow down", retry_after="3600"),
    "429_bare": responding(429, b"slow down"),
    # 40
    "500": responding(500, _HTML, content_type="text/html"),
    "400": responding(400, b"what?"),
    "rpc_error_400": _rpc_error_400,
    # 41
    "reset": breaking(b"", reset=True),
    "close": breaking(b""),
    "truncated": breaking(head_of(200, content_type=JSON, content_length="5000") + b'{"jsonrpc":"2.0"'),
    "bad_chunk": breaking(_EVENTS + b"zz\r\nnonsense\r\n"),
    "not_http": breaking(b"SSH-2.0-OpenSSH_9.6\r\n"),
    # 42
    "slow_headers": dripping(b"HTTP/1.1 200 OK\r\n", b"x-drop: 1\r\n"),
    "slow_body": dripping(head_of(200, content_type=JSON, content_length="100000"), b" "),
    "comments": dripping(_EVENTS, b"3\r\n:\n\n\r\n"),
    # 43
    "redirect_same": _hops,
    "redirect_cross": responding(307, location="http://localhost:1/mcp?token=abc"),
    "redirect_meta": responding(307, location="http://169.254.169.254/latest/meta-data"),
    "redirect_loop": _redirect_loop,
    "redirect_302": responding(302, location="/elsewhere"),
    "redirect_bare": responding(308),
    # 44
    "html": responding(200, _HTML, content_type="text/html"),
    "no_type": responding(200, b"hello"),
    "gzip": _gzip,
    "gzip_bomb": responding(200, gzip.compress(b" " * 50_000_000), content_type=JSON, content_encoding="gzip"),
    "not_gzip": with_answer(content_type=JSON, content_encoding="gzip"),
    "big_body": responding(200, b'{"x":"' + b"x" * 4_000_000 + b'"}', content_type=JSON),
    "bad_json": responding(200, b'{"jsonrpc": nonsense', content_type=JSON),
    "bad_utf8": responding(200, b'{"jsonrpc":"2.0","id":"\xff\xfe"', content_type=JSON),
    "empty": responding(200, content_type=JSON),
    "accepted": responding(202),
    "no_content": responding(204),
    "wrong_id": _wrong_id,
    "indented": _indented,
    # 45
    "drop_resumable": _drop_resumable,
    "resume": _resume,
    "drop": breaking(_EVENTS + b"8\r\ndata: {\n\r\n"),
    "ends_early": streaming(lambda answer: b": nothing\n\n"),
    "never_ends": streaming(lambda answer: b"data: %b\n\n" % answer, ends=False),
    "crlf": streaming(lambda answer: b"\xef\xbb\xbfevent: message\r\ndata: %b\r\n\r\n" % answer),
    "cr": streaming(lambda answer: b"data:%b\r\r" % answer),
    "many_lines": streaming(lambda answer: b"data: " + answer.replace(b", ", b",\ndata: ") + b"\n\n"),
    "no_blank": streaming(lambda answer: b"data: %b\n" % answer),
    "other_events": streaming(lambda answer: b"event: ping\ndata: {}\n\ndata: %b\n\n" % answer),
    "half_event": streaming(lambda answer: b"data: %b" % answer[:20]),
    "big_event": streaming(lambda answer: b"data: %b\n\n" % answer.replace(b"fine", b"x" * 4_000_000)),
    "flood": _flood,
    "asks": _asks,
}
