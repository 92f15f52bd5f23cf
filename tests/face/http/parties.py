"""A client of the core of the HTTP face without any I/O: what it sends, and what it gets on each exchange."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from dynamic_mcp.face.http.authenticator import LocalAuthenticator, Outcome
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import BodyReceiver, RequestHead, Response
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp.event_stream import EventStream
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observer, Observers
from tests.fakes import BOUND_S, Json, Opener, config_of, group_config

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
EVERYTHING = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}


class Reply:
    """What comes back on one exchange, as it comes. `unread` is how much of it the client has not read."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_stream = self.has_ended = self.is_aborted = False
        self.unread = 0
        self.reads_nothing = False
        self.receiver: BodyReceiver | None = None
        self._changed = asyncio.Event()

    # --- Exchange --------------------------------------------------------------------------------------

    def respond(self, response: Response) -> None:
        self.start(response)
        self.is_stream = False
        self.end()

    def start(self, response: Response) -> None:
        assert not self.status, "an exchange is answered once"
        self.status = response.status
        self.headers = {name.decode(): value.decode() for name, value in response.headers}
        assert len(self.headers) == len(response.headers), "each header is sent once"
        self.is_stream = True
        self.write(response.body)

    def write(self, data: bytes) -> None:
        assert not self.has_ended, "nothing follows the end"
        self.body += data
        self.unread += len(data) if self.reads_nothing else 0
        self._change()

    def end(self) -> None:
        assert not self.has_ended, "an exchange ends once"
        self.has_ended = True
        self._change()

    def buffered_bytes(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_aborted = self.has_ended = True
        self._change()

    def admit_peer(self) -> None: ...

    # --- the client ------------------------------------------------------------------------------------

    @property
    def json(self) -> Json:
        """The body, which is JSON."""
        return json.loads(self.body)

    @property
    def messages(self) -> list[Json]:
        """The messages of the stream."""
        return [json.loads(event.data) for event in EventStream(1 << 24).feed(self.body)]

    @property
    def messages_but_lists(self) -> list[Json]:
        """The messages without those of changed lists, which come a moment after the lists are known."""
        return [each for each in self.messages if not each.get("method", "").endswith("/list_changed")]

    @property
    def ids(self) -> list[str]:
        """The ids of the events that have one."""
        return [line[4:] for line in self.body.decode().split("\n") if line.startswith("id: ")]

    def cut(self) -> None:
        """Close the connection, as a client or the network does."""
        self.has_ended = True
        assert self.receiver is not None
        self.receiver.disconnected()

    async def ends(self) -> Reply:
        """Wait for the end of the answer."""
        return await self.until(lambda: self.has_ended)

    async def hears_status(self) -> int:
        """Wait for the head of the answer."""
        return (await self.until(lambda: self.status > 0)).status

    async def hears(self, times: int) -> list[Json]:
        """Wait for so many messages."""
        return (await self.until(lambda: len(self.messages) >= times)).messages

    async def hears_of(self, method: str) -> Json:
        """Wait for a message with this method."""
        await self.until(lambda: any(each.get("method") == method for each in self.messages))
        return next(each for each in self.messages if each.get("method") == method)

    async def until(self, is_so: Callable[[], bool]) -> Reply:
        async with asyncio.timeout(BOUND_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()
        return self

    def _change(self) -> None:
        self._changed.set()


class HttpClient:
    """One client of a face, with the session that it has begun."""

    def __init__(self, face: HttpFace, path: str = "/mcp") -> None:
        self.face = face
        self.path = path
        self.session = ""
        self.peer = "127.0.0.1"
        self.headers: dict[str, str] = {}  # that every request has
        self._ids = 0

    def send(self, method: str, path: str = "", body: bytes = b"", /, **headers: str) -> Reply:
        """Send a request with these headers besides the usual ones; an empty one is left out."""
        usual = {
            "host": "127.0.0.1:8808",
            "content-type": "application/json" if method == "POST" else "",
            "accept": "application/json, text/event-stream",
            "mcp-session-id": self.session,
            "content-length": str(len(body)) if body else "",
        }
        given = usual | self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = {name.encode(): value.encode() for name, value in given.items() if value}
        head = RequestHead(method=method, target=(path or self.path).encode(), headers=encoded, peer=self.peer)
        reply = Reply()
        reply.receiver = self.face.begin(head, reply)
        if reply.receiver is not None:
            reply.receiver.receive_body(body)
        return reply

    def post(self, message: Json, **headers: str) -> Reply:
        """Post a message, or bytes as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.send("POST", "", body, **headers)

    def listen(self, after: str = "", **headers: str) -> Reply:
        """Open a stream, or go on with the one of this event."""
        return self.send("GET", last_event_id=after, **headers)

    async def initialize(self, capabilities: Json = None, version: str = "2025-11-25") -> Reply:
        """Begin a session."""
        hello = {**HELLO, "protocolVersion": version, "capabilities": capabilities or {}}
        reply = await self.request("initialize", hello, mcp_session_id="").ends()
        self.session = reply.headers["mcp-session-id"]
        noted = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (noted.status, noted.body) == (202, b"")
        return reply

    def request(self, method: str, params: Json = None, *, id: Json = None, **headers: str) -> Reply:
        """Post a request."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids if id is None else id, "method": method}
        return self.post(message if params is None else {**message, "params": params}, **headers)

    def call(self, tool: str, args: Json = None, *, token: Json = None, group: str = "up", id: Json = None) -> Reply:
        """Call a tool."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        arguments = {"group": group, "name": tool, "args": args or {}}
        return self.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments, **meta}, id=id)


class ByUserHeader(LocalAuthenticator):
    """Takes everybody for whom the header `X-User` names, and nobody without it."""

    is_open = False

    def authenticate(self, head: RequestHead) -> Outcome:
        """Return the user of the header."""
        user = head.headers.get(b"x-user")
        return Authentication(Principal("test", user.decode()), "forwarded") if user else Response(401)

    def is_valid(self, authentication: Authentication) -> bool:
        """Believe what was believed before."""
        return True


@contextlib.asynccontextmanager
async def face_of(opener: Opener, **options: Any) -> AsyncIterator[HttpFace]:  # Any: of HttpOptions and of HttpFace
    """Run a face in front of a proxy with a group for each name in the opener's plan, and perhaps `profiles`.

    An `observer` hears of everything.
    """
    observer: Observer | None = options.pop("observer", None)
    own = {name: options.pop(name) for name in ("authenticator", "now", "dispatcher") if name in options}
    profiles = {each.name: each for each in options.pop("profiles", ())}
    proxy = Proxy(config_of(*(group_config(name) for name in opener.plan), profiles=profiles), opener=opener)
    if observer is not None:
        proxy.observers = Observers([observer])
    face = HttpFace(proxy, HttpOptions(**options), **own)
    try:
        yield face
    finally:
        face.close()
        await proxy.close()
