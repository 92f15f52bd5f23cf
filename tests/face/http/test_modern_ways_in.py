"""Modern requests from the socket to the upstream, through our server and as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.face.http.asgi import AsgiApp
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.mcp.event_stream import EventStream
from tests.face.http.modern_parties import LISTEN, call_of, headers_for, modern
from tests.face.http.parties import HttpClient, face_of
from tests.face.http.ways_in import Client, uvicorn_with
from tests.fakes import FakeUpstream, FullUpstream, Json, Opener
from tests.idle_loop import IdleLoop
from tests.program import BOUND_S


@dataclass
class Served:
    """A face at a port, and the upstream behind it."""

    face: HttpFace
    upstream: FakeUpstream
    port: int
    clients: list[Client]

    async def connect(self) -> Client:
        """Return a new connection."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))
        self.clients.append(client)
        return client

    def in_flight(self) -> Json:
        """Return how many modern requests there are."""
        return HttpClient(self.face).send("GET", "/ready").json["modern_requests"]

    async def settle(self) -> None:
        """Wait until the server has seen all that clients have done."""
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":
            pytest.skip("what is sent on Windows may still be on its way when the loop is idle")
        assert isinstance(loop, IdleLoop)
        await loop.idle()


@contextlib.asynccontextmanager
async def _at_a_port(face: HttpFace, way_in: str) -> AsyncIterator[int]:
    if way_in == "asgi":
        async with uvicorn_with(lambda _: AsgiApp(face)) as served:
            yield served.port
        return
    server = HttpServer(face)
    [address] = await server.open(TcpAddress(port=0))
    try:
        yield address.port
    finally:
        await server.abort()


@pytest.fixture(params=["server", "asgi"])
def way_in(request: pytest.FixtureRequest) -> str:
    """Our server, and the ASGI application under uvicorn."""
    name = request.param
    assert isinstance(name, str)
    return name


@contextlib.asynccontextmanager
async def serving(way_in: str, upstream: FakeUpstream) -> AsyncIterator[Served]:
    """Serve an upstream."""
    async with (
        asyncio.timeout(BOUND_S),
        face_of(Opener(up=[upstream])) as face,
        _at_a_port(face, way_in) as port,
    ):
        served = Served(face, upstream, port, [])
        try:
            yield served
        finally:
            for client in served.clients:
                await client.close()
            face.close()


def encode(message: Json, path: str = "/mcp", **more: str) -> bytes:
    """Return a POST as bytes."""
    body = json.dumps(message).encode()
    fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **headers_for(message),
        **more,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def call(tool: str, args: Json = None, **more: Json) -> dict[str, Json]:
    """Return a call of a tool of the group."""
    message = call_of("call_dynamic_tool", {"group": "up", "name": tool, "args": args or {}})
    message["params"]["_meta"] = {**message["params"]["_meta"], **more}
    return message


async def messages_of(client: Client, count: int) -> list[Json]:
    """Read so many messages of a stream."""
    stream, found = EventStream(1 << 24), list[Json]()
    while len(found) < count:
        found += [json.loads(event.data) for event in stream.feed(await client.chunk())]
    return found


async def test_a_call_is_answered_and_the_next_one_follows_on_the_same_connection(way_in: str) -> None:
    async with serving(way_in, FullUpstream()) as served:
        client = await served.connect()
        for n in range(3):
            reply = await client.ask(encode(call("echo", {"text": f"t{n}"})))
            assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
            assert f"t{n}" in reply.body.decode()
            assert json.loads(reply.body)["result"]["resultType"] == "complete"


@pytest.mark.parametrize("has_spoken", [False, True])
@pytest.mark.parametrize("is_half", [False, True])
async def test_a_client_that_closes_cancels_its_call(way_in: str, has_spoken: bool, is_half: bool) -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with serving(way_in, upstream) as served:
        client = await served.connect()
        client.send(encode(call("hold", progressToken="p")))
        sent = await upstream.hears("tools/call")
        if has_spoken:
            token = sent["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1}
            upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            await client.head()
            assert [each["method"] for each in await messages_of(client, 1)] == ["notifications/progress"]
        if is_half:
            client.writer.write_eof()
        else:
            await client.close()

        cancelled = await upstream.hears("notifications/cancelled")
        assert cancelled["params"]["requestId"] == sent["id"]
        upstream.say({"jsonrpc": "2.0", "id": sent["id"], "result": {"content": []}})
        assert b"result" not in await client.rest()
        assert served.in_flight() == 0


async def test_who_listens_hears_of_a_change_and_closing_ends_it(way_in: str) -> None:
    async with serving(way_in, FullUpstream()) as served:
        caller, listener = await served.connect(), await served.connect()
        await caller.ask(encode(modern("prompts/list")))
        listener.send(encode(modern(LISTEN, {"notifications": {"promptsListChanged": True}}, id="l")))
        status, headers = await listener.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        [acknowledged] = await messages_of(listener, 1)
        assert acknowledged["params"]["notifications"] == {"promptsListChanged": True}

        await caller.ask(encode(call("add", {"list": "prompts", "entry": {"name": "new"}})))

        [changed] = await messages_of(listener, 1)
        assert changed["method"] == "notifications/prompts/list_changed"
        assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l"}
        await listener.close()
        await served.settle()
        assert served.in_flight() == 0


async def test_who_listens_is_told_when_the_server_ends(way_in: str) -> None:
    async with serving(way_in, FullUpstream()) as served:
        listener = await served.connect()
        listener.send(encode(modern(LISTEN, {"notifications": {}}, id="l")))
        await listener.head()
        await messages_of(listener, 1)
        await served.face.drain(BOUND_S)
        [ended] = await messages_of(listener, 1)
        assert (ended["id"], ended["result"]["resultType"]) == ("l", "complete")
        assert await listener.chunk() == b""


async def test_a_client_may_close_at_any_byte_of_its_request(way_in: str) -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with serving(way_in, upstream) as served:
        data = encode(call("hold"))
        for end in [*range(1, len(data), 23), len(data) - 1, len(data)]:
            client = await served.connect()
            client.send(data[:end])
            if end == len(data):
                await upstream.hears("tools/call")
            await client.close()
        await upstream.hears("notifications/cancelled")
        assert len(upstream.heard("tools/call")) == 1
        await served.settle()
        assert served.in_flight() == 0
        assert (await (await served.connect()).ask(encode(modern("server/discover")))).status == 200


async def test_requests_that_are_sent_together_are_answered_in_order_and_cancelled_together() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with serving("server", upstream) as served:
        client = await served.connect()
        client.send(encode(modern("server/discover", id=1)) + encode(call("hold")) + encode(call("hold")))
        assert json.loads((await client.reply()).body)["id"] == 1
        await upstream.hears("tools/call")
        await client.close()
        await upstream.hears("notifications/cancelled")
        await served.settle()
        assert served.in_flight() == 0
        assert len(upstream.heard("tools/call")) == 1


async def test_a_header_of_another_case_is_the_same_header(way_in: str) -> None:
    async with serving(way_in, FullUpstream()) as served:
        message = modern("tools/list")
        data = encode(message).replace(b"mcp-method", b"MCP-METHOD").replace(b"mcp-protocol", b"Mcp-Protocol")
        assert (await (await served.connect()).ask(data)).status == 200
        for name in ("MCP-METHOD", "Mcp-Protocol-VERSION"):
            twice = encode(message, **{name: headers_for(message)[name.lower()]})
            reply = await (await served.connect()).ask(twice)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32020)


async def test_clients_that_only_listen_are_bounded_and_leave_nothing_behind(way_in: str) -> None:
    async with serving(way_in, FullUpstream()) as served:
        most = 256
        listeners = [await served.connect() for _ in range(most + 20)]
        for n, each in enumerate(listeners):
            each.send(encode(modern(LISTEN, {"notifications": {}}, id=n)))
        heads = [await each.head() for each in listeners]
        statuses = [status for status, _ in heads]
        assert (statuses.count(200), statuses.count(503)) == (most, 20)
        assert all("retry-after" in headers for status, headers in heads if status == 503)
        for each in listeners:
            await each.close()
        await served.settle()
        assert served.in_flight() == 0
        assert (await (await served.connect()).ask(encode(modern("server/discover")))).status == 200
