"""A server over HTTP that does right by default and wrong on demand, as raw as a socket; it runs in the test's loop.

The tool `fault` answers as its `kind` says (odd_http_faults.py); `Odd` has what is odd from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

Json = Any  # whatever JSON a test writes down
BOUND_S = 10.0
TOOLS = ("echo", "fault", "hold", "ask")


@dataclass(frozen=True)
class Request:
    """What came: the header names are lower case, and the values of a repeated header are in one, with commas."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Json]:
        """The JSON-RPC message in the body."""
        return json.loads(self.body) if self.body else {}

    @property
    def kind(self) -> str:
        """The `kind` of a call of the tool `fault`."""
        params = self.message.get("params", {})
        return params["arguments"].get("kind", "") if params.get("name") == "fault" else ""


class Connection:
    """One connection, on which anything can be written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> Request:
        """Read the next request."""
        first = await self._reader.readexactly(1)
        if not first.isalpha():  # TLS, perhaps
            raise ConnectionError
        head = (first + await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers: dict[str, str] = {}
        for name, _, value in (line.partition(":") for line in head[1:-2]):
            earlier = f"{headers[name.lower()]}, " if name.lower() in headers else ""
            headers[name.lower()] = earlier + value.strip()
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method, path, headers, body)

    async def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def respond(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        """Write a whole response; `_` in the name of a header stands for `-`."""
        await self.write(head_of(status, content_length=str(len(body)), **headers) + body)

    async def events(self, **headers: str) -> None:
        """Begin an event stream."""
        await self.write(head_of(200, content_type="text/event-stream", transfer_encoding="chunked", **headers))

    async def event(self, data: bytes) -> None:
        """Write a piece of an event stream."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_events(self) -> None:
        """End an event stream well."""
        await self.write(b"0\r\n\r\n")

    def close(self, *, reset: bool = False) -> None:
        """Break the connection off."""
        if reset:
            self._writer.transport.abort()
        self._writer.close()

    async def closed(self) -> None:
        """Wait until the other side has closed it."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read()


def head_of(status: int, **headers: str) -> bytes:
    """Return the head of a response."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def message_event(message: Json, **fields: str) -> bytes:
    """Return an event with a message."""
    lines = [*(f"{name}: {value}" for name, value in fields.items()), f"data: {json.dumps(message)}"]
    return ("\n".join(lines) + "\n\n").encode()


def text_result(id: Json, text: str) -> dict[str, Json]:
    """Return the answer to a call."""
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}


@dataclass
class Odd:
    """What a server is like; `get` is what a GET is answered with, a status or `events`, `storm`."""

    answers: str = "json"
    get: str = "405"
    has_sessions: bool = True
    session: str = ""
    on_initialize: str = ""
    wants: str | None = None
    older: str = ""
    redirect: str = ""
    forgets: list[str] = field(default_factory=list)


class OddHttp:
    """The server, while it is entered; it can be stopped and started again at the same port."""

    def __init__(self, **odd: Any) -> None:  # Any: fields of Odd
        from tests.upstreams.odd_http_faults import FAULTS

        self.odd = Odd(**odd)
        self.requests: list[Request] = []
        self.sessions: dict[str, asyncio.Queue[bytes]] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.told: dict[str, int] = {}
        self.port = 0
        self._faults = FAULTS
        self._arrival = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}/{'sse' if self.odd.older else 'mcp'}"

    async def start(self) -> None:
        """Listen, at the same port as before if there was one."""
        self._server = await asyncio.start_server(self.take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything and forget the sessions."""
        assert self._server is not None
        self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.sessions.clear()

    def matching_requests(self, condition: Callable[[Request], bool]) -> list[Request]:
        """Return the requests that match a condition."""
        return [request for request in self.requests if condition(request)]

    async def wait_for_request(self, condition: Callable[[Request], bool], times: int = 1) -> Request:
        """Wait until `times` requests match a condition, and return the last of them."""
        async with asyncio.timeout(BOUND_S):
            while len(self.matching_requests(condition)) < times:
                await self._arrival.wait()
        return self.matching_requests(condition)[-1]

    async def wait_for_message(self, method: str) -> Request:
        """Wait for a message with this method."""
        return await self.wait_for_request(
            lambda request: request.method == "POST" and request.message.get("method") == method
        )

    # --- connections -----------------------------------------------------------------------------------

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, of whatever listener."""
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                request = await connection.request()
                self.requests.append(request)
                self._arrival.set()
                self._arrival = asyncio.Event()
                await self._answer(request, connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _answer(self, request: Request, to: Connection) -> None:
        if self.odd.wants is not None and request.headers.get("authorization") != self.odd.wants:
            await to.respond(401, b'{"error":"invalid_token"}', www_authenticate='Bearer scope="mcp"')
        elif self.odd.redirect and request.path != "/moved":
            await to.respond(307, location=self.odd.redirect)
        elif self.odd.older:
            await self._answer_older(request, to)
        elif request.method == "GET":
            await self._answer_get(request, to)
        elif request.method == "DELETE":
            self.sessions.pop(request.headers.get("mcp-session-id", ""), None)
            await to.respond(200)
        else:
            await self._answer_post(request, to)

    # --- streamable HTTP ---------------------------------------------------------------------------------

    async def _answer_post(self, request: Request, to: Connection) -> None:
        message = request.message
        method = message.get("method", "an answer")
        if method == "initialize":
            await self._initialize(message, to)
        elif self.odd.has_sessions and request.headers.get("mcp-session-id") not in self.sessions:
            await self._faults[self.odd.forgets[0] if self.odd.forgets else "no_session"](self, request, to)
        elif "id" not in message or "method" not in message:
            await to.respond(202)
        elif request.kind:
            await self._faults[request.kind](self, request, to)
        else:
            await self.reply(await self.result(message, to), to)

    async def _initialize(self, message: Json, to: Connection) -> None:
        if self.odd.on_initialize:
            request = Request("POST", "/mcp", {}, json.dumps(message).encode())
            await self._faults[self.odd.on_initialize](self, request, to)
            return
        session = self.odd.session or f"session-{len(self.sessions) + len(self.requests)}"
        self.sessions[session] = asyncio.Queue()
        headers = {"mcp_session_id": session} if self.odd.has_sessions else {}
        await self.reply(await self.result(message, to), to, **headers)

    async def reply(self, message: Json, to: Connection, **headers: str) -> None:
        """Answer in the way that this server answers."""
        if self.odd.answers == "json":
            await to.respond(200, json.dumps(message).encode(), content_type="application/json", **headers)
        else:
            await to.events(**headers)
            await to.event(message_event(message))
            await to.end_events()

    async def result(self, message: Json, to: Connection | None = None) -> Json:
        """Return the answer to a request, once there is one."""
        id, params = message["id"], message.get("params", {})
        match message["method"]:
            case "initialize":
                version = "2024-11-05" if self.odd.older else params["protocolVersion"]
                about = {
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "o", "version": "1"},
                }
                return {"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": version, **about}}
            case "logging/setLevel":
                await self.held.setdefault("level", asyncio.Event()).wait()
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
                return {"jsonrpc": "2.0", "id": id, "result": {"tools": tools}}
            case "tools/call" if params["name"] == "hold":
                key = params["arguments"]["key"]
                await self.held.setdefault(key, asyncio.Event()).wait()
                return text_result(id, key)
            case "tools/call":
                return text_result(id, str(params["arguments"].get("text", "")))
        return {"jsonrpc": "2.0", "id": id, "result": {}}

    def release(self, key: str) -> None:
        """Let a call of `hold` end."""
        self.held.setdefault(key, asyncio.Event()).set()

    async def _answer_get(self, request: Request, to: Connection) -> None:
        if "last-event-id" in request.headers and self.odd.get != "events":
            await self._faults["resume"](self, request, to)
        elif self.odd.get == "storm":
            await to.events()
            await to.end_events()
        elif self.odd.get == "events":
            await to.events()
            queue = self.sessions[request.headers["mcp-session-id"]]
            while True:
                await to.event(await queue.get())
        else:
            await to.respond(int(self.odd.get))

    # --- the older transport -----------------------------------------------------------------------------

    async def _answer_older(self, request: Request, to: Connection) -> None:
        if request.method == "GET" and request.path == "/sse":
            await self._stream_older(to)
        elif request.method == "POST" and request.path.startswith("/messages/"):
            await self._post_older(request, to)
        else:
            await to.respond(405 if request.path == "/sse" else 404, b"<h1>nothing here</h1>")

    async def _stream_older(self, to: Connection) -> None:
        session = str(len(self.requests))
        queue = self.sessions[session] = asyncio.Queue()
        endpoint = self.odd.older if "/" in self.odd.older else f"/messages/{session}"
        await to.events()
        if self.odd.older == "never":
            await to.closed()
        await to.event(f"event: endpoint\r\ndata: {endpoint}\r\n\r\n".encode())
        while (event := await queue.get()) != b"":
            await to.event(event)
        to.close()

    async def _post_older(self, request: Request, to: Connection) -> None:
        queue = self.sessions.get(request.path.rpartition("/")[2])
        message = request.message
        if queue is None:
            await to.respond(404, b"no such session")
        elif request.kind == "drop":
            queue.put_nowait(b"")
            await to.respond(202)
        elif request.kind:
            await self._faults[request.kind](self, request, to)
        else:
            await to.respond(202, b"Accepted")
            if "id" in message and "method" in message:
                answering = asyncio.create_task(self._answer_on(queue, message))
                self._tasks.add(answering)
                answering.add_done_callback(self._tasks.discard)

    async def _answer_on(self, queue: asyncio.Queue[bytes], message: Json) -> None:
        queue.put_nowait(message_event(await self.result(message)))
