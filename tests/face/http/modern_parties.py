"""A modern client of the core of the HTTP face, and a dispatcher that a test answers for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Raw

from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.rules import join_fields
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.mirrored_headers import NAMED_BY, encode_value
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import ModernChannel
from dynamic_mcp.session.client_connection import ClientOrigin
from tests.face.http.parties import Reply
from tests.fakes import FakeUpstream, Json, Opener

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LISTEN = "subscriptions/listen"
ACKNOWLEDGED = Frame(method="notifications/subscriptions/acknowledged", params=wire.EMPTY_OBJECT)


def opener() -> Opener:
    """Return a way to one upstream."""
    return Opener(up=[FakeUpstream()])


def code_of(reply: Reply) -> int:
    """Return the code of the error that a request was answered with."""
    code = reply.json["error"]["code"]
    assert isinstance(code, int)
    return code


def modern(method: str, params: Json = None, id: Json = 1) -> dict[str, Json]:
    """Return a request with its envelope."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": META, **(params or {})}}


def call_of(tool: str, arguments: Json = None, id: Json = 1) -> dict[str, Json]:
    """Return a call of a tool."""
    return modern("tools/call", {"name": tool, "arguments": arguments or {}}, id)


def headers_for(message: Json) -> dict[str, str]:
    """Return the headers that a client sends with a message, without those of annotated parameters."""
    headers = {"mcp-protocol-version": VERSION}
    if isinstance(message, Mapping) and "method" in message:
        headers["mcp-method"] = message["method"]
        name = (message.get("params") or {}).get(NAMED_BY.get(message["method"], ""))
        if isinstance(name, str):
            headers["mcp-name"] = encode_value(name).decode()
    return headers


class ModernHttpClient:
    """A client that says with each request who it is."""

    def __init__(self, face: HttpFace, path: str = "/mcp") -> None:
        self.face = face
        self.path = path
        self.peer = "127.0.0.1"

    def post(self, message: Json, more: Mapping[str, str | None] | None = None, **headers: str) -> Reply:
        """Post a message, or bytes as they are, with these headers; None leaves one out."""
        reply = self.begin(message, more, **headers)
        if reply.receiver is not None:
            reply.receiver.receive_body(message if isinstance(message, bytes) else json.dumps(message).encode())
        return reply

    def begin(self, message: Json, more: Mapping[str, str | None] | None = None, **headers: str) -> Reply:
        """Post the head for a message only."""
        changed = {**(more or {}), **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.send("POST", *{**headers_for(message), **changed}.items())

    def send(self, method: str, *fields: tuple[str, str | None], path: str = "") -> Reply:
        """Send a head with these fields, in place of the usual ones of the same names."""
        usual = {
            "host": "127.0.0.1:8808",
            "accept": "application/json, text/event-stream",
            **({"content-type": "application/json"} if method == "POST" else {}),
        }
        given = {name.lower() for name, _ in fields}
        pairs = [*((name, value) for name, value in usual.items() if name not in given), *fields]
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in pairs if value is not None]
        joined, repeated = join_fields(encoded)
        target = (path or self.path).encode()
        head = RequestHead(method=method, target=target, headers=joined, repeated=repeated, peer=self.peer)
        reply = Reply()
        reply.receiver = self.face.begin(head, reply)
        return reply


@dataclass
class FakeModernCall:
    """A request that a dispatcher has got."""

    frame: Frame
    channel: ModernChannel
    origin: ClientOrigin
    reasons: list[str] = field(default_factory=list)

    def cancel(self, reason: str) -> None:
        """Note it."""
        self.reasons.append(reason)

    def say(self, method: str, params: Json = None) -> None:
        """Send a notification."""
        self.channel.notify(Frame(method=method, params=Raw(json.dumps(params or {}).encode())))

    def answer(self, result: Json = None) -> None:
        """Send a result."""
        self.channel.answer(wire.result_frame(result or {}))

    def fail(self, code: int) -> None:
        """Answer with an error."""
        self.channel.answer(wire.error_frame(code, "why"))


class FakeDispatcher:
    """Keeps every request for a test to answer; `refuses_with` is the code of the error that it answers at once."""

    def __init__(self, refuses_with: int = 0, *, answers_at_once: bool = False) -> None:
        self.max_in_flight = 0
        self.calls: list[FakeModernCall] = []
        self.refuses_with = refuses_with
        self.answers_at_once = answers_at_once
        self.ticks = 0
        self.is_closed = False

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len({call.origin for call in self.calls})

    def configure(self, *, max_in_flight: int, max_clients: int, unused_for_s: float) -> None:
        """Note how many requests a client may have in flight."""
        self.max_in_flight = max_in_flight

    @property
    def call(self) -> FakeModernCall:
        """The latest request."""
        return self.calls[-1]

    def begin(
        self, frame: Frame, channel: ModernChannel, origin: ClientOrigin, members: RequestMembers | None = None
    ) -> FakeModernCall | None:
        """Keep a request, or refuse it."""
        call = FakeModernCall(frame, channel, origin)
        if self.refuses_with:
            call.fail(self.refuses_with)
            return None
        self.calls.append(call)
        if self.answers_at_once:
            call.answer()
        return call

    def tick(self) -> None:
        """Count."""
        self.ticks += 1

    async def drain(self, within_s: float) -> None:
        """End what listens with a result, and the rest with an error."""
        for call in self.calls:
            if call.frame.method == LISTEN:
                call.answer({"ended": True})
            else:
                call.fail(-32603)

    def close(self) -> None:
        """Note it."""
        self.is_closed = True
