"""The ASGI application: what servers and frameworks say to it, beside requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dynamic_mcp.face.http.asgi import AsgiApp, Message, Scope
from dynamic_mcp.face.http.exchange import GONE, Handler, Response
from tests.face.http.ways_in import GET, FakeHandler, post, uvicorn_with
from tests.fakes import settled
from tests.program import BOUND_S


def scope(**changes: object) -> Scope:
    """Return the scope of a request."""
    plain: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/echo",
        "headers": [(b"host", b"x")],
    }
    return {**plain, **changes}


class Server:
    """An ASGI server by hand: the messages it has for the application, and those it got."""

    def __init__(self, *messages: Message) -> None:
        self.sent = asyncio.Queue[Message]()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self._messages = asyncio.Queue[Message]()
        for message in messages:
            self._messages.put_nowait(message)

    def put(self, message: Message) -> None:
        """Say something to the application."""
        self._messages.put_nowait(message)

    async def receive(self) -> Message:
        """Return the next message."""
        return await self._messages.get()

    async def send(self, message: Message) -> None:
        """Take a message, unless the client does not read."""
        await self.may_send.wait()
        self.sent.put_nowait(message)


REQUEST: Message = {"type": "http.request", "body": b"", "more_body": False}
DISCONNECT: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("paths", "target"),
    [
        ({"path": "/tools/mcp", "root_path": "/tools"}, b"/mcp"),  # as ASGI has it today
        ({"path": "/mcp", "root_path": "/tools"}, b"/mcp"),  # as it was
        ({"path": "/mcp", "raw_path": b"/tools/mcp", "root_path": "/tools"}, b"/mcp"),
        ({"path": "/tools", "root_path": "/tools"}, b"/"),
        ({"path": "/toolsmith", "root_path": "/tools"}, b"/toolsmith"),
        ({"path": "/a b/mcp", "raw_path": b"/a%20b/mcp", "root_path": "/a b"}, b"/mcp"),
        ({"path": "/a b/é"}, b"/a%20b/%C3%A9"),
        ({"path": "/a/b", "raw_path": b"/a%2Fb", "query_string": b"c=%20d"}, b"/a%2Fb?c=%20d"),
        ({"path": "", "root_path": "", "raw_path": None}, b"/"),
    ],
)
async def test_the_target_is_what_is_below_the_mount(paths: dict[str, object], target: bytes) -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        await AsgiApp(handler)(scope(**paths), server.receive, server.send)
        assert handler.calls[0].head.target == target
        assert handler.calls[0].head.root_path == (paths.get("root_path") or "")


async def test_what_the_server_knows_of_the_client_is_told() -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST, REQUEST)
        await AsgiApp(handler)(scope(client=("10.0.0.1", 5), scheme="https"), server.receive, server.send)
        await AsgiApp(handler)(scope(client=None), server.receive, server.send)
        first, second = [call.head for call in handler.calls]
        assert (first.peer, first.is_secure) == ("10.0.0.1", True)
        assert (second.peer, second.is_secure) == ("", False)


@pytest.mark.parametrize(
    ("own", "peer"), [(("/run/own.sock", None), ""), (None, ""), (("127.0.0.1", 80), GONE), (["::1", 80], GONE)]
)
async def test_who_has_no_address_is_a_peer_of_a_unix_socket_only_where_there_is_one(own: object, peer: str) -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        await AsgiApp(handler)(scope(client=None, server=own), server.receive, server.send)
        assert handler.calls[0].head.peer == peer


async def test_it_can_be_mounted_in_an_application() -> None:
    def mount(handler: Handler) -> object:
        return Starlette(routes=[Mount("/tools", AsgiApp(handler))])

    async with asyncio.timeout(BOUND_S), uvicorn_with(mount) as way_in:
        client = await way_in.connect()
        reply = await client.ask(post("/tools/a%20b?c", b"hello"))
        assert (reply.told["target"], reply.told["body"]) == ("/a%20b?c", "hello")
        assert way_in.handler.calls[0].head.root_path == "/tools"
        assert (await client.ask(GET)).status == 404


async def test_a_call_ends_when_its_client_has_gone_even_if_the_server_takes_nothing() -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        serving = asyncio.create_task(AsgiApp(handler)(scope(path="/stream"), server.receive, server.send))
        await server.sent.get()
        server.may_send.clear()
        handler.calls[0].exchange.write(b"x" * 1000)
        assert handler.calls[0].exchange.buffered_bytes() >= 1000
        server.put(DISCONNECT)
        await serving
        assert handler.calls[0].gone.is_set()


async def test_an_aborted_answer_ends_the_call_even_if_the_server_takes_nothing() -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        serving = asyncio.create_task(AsgiApp(handler)(scope(path="/stream"), server.receive, server.send))
        await server.sent.get()
        server.may_send.clear()
        handler.calls[0].exchange.write(b"x" * 1000)
        await settled()
        handler.calls[0].exchange.abort()
        await serving
        assert not handler.calls[0].gone.is_set()


async def test_a_body_that_comes_in_drops_is_given_up() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server()
        app = AsgiApp(handler, body_progress_within_s=0.01)
        await app(scope(method="POST"), receive, server.send)
        assert server.sent.get_nowait()["status"] == 408


async def test_a_call_that_the_server_cancels_tells_the_handler() -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        serving = asyncio.create_task(AsgiApp(handler)(scope(path="/hold"), server.receive, server.send))
        call = await handler.next_call()
        await call.complete.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert call.gone.is_set()


async def test_a_server_that_refuses_to_send_means_that_the_client_has_gone() -> None:
    async def send(message: Message) -> None:
        raise OSError

    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        await AsgiApp(handler)(scope(path="/stream"), server.receive, send)
        assert handler.calls[0].gone.is_set()


async def test_a_client_that_goes_within_its_body_is_no_error() -> None:
    async with asyncio.timeout(BOUND_S):
        handler = FakeHandler()
        server = Server({"type": "http.request", "body": b"x", "more_body": True}, DISCONNECT)
        await AsgiApp(handler)(scope(method="POST"), server.receive, server.send)
        assert handler.calls[0].gone.is_set()
        assert server.sent.empty()


async def test_a_body_that_comes_no_further_is_given_up() -> None:
    async with asyncio.timeout(BOUND_S):
        handler = FakeHandler()
        server = Server({"type": "http.request", "body": b"x", "more_body": True})
        app = AsgiApp(handler, body_progress_within_s=0.01)
        await app(scope(method="POST"), server.receive, server.send)
        assert server.sent.get_nowait()["status"] == 408
        assert handler.calls[0].gone.is_set()


async def test_an_answer_may_come_from_a_later_turn() -> None:
    async with asyncio.timeout(BOUND_S):
        handler, server = FakeHandler(), Server(REQUEST)
        serving = asyncio.create_task(AsgiApp(handler)(scope(path="/hold"), server.receive, server.send))
        call = await handler.next_call()
        await call.complete.wait()
        call.exchange.respond(Response(200, ((b"a", b"b"),), b"late"))
        await serving
        start, body = server.sent.get_nowait(), server.sent.get_nowait()
        assert start["headers"] == [(b"a", b"b"), (b"content-length", b"4")]
        assert (body["body"], body["more_body"]) == (b"late", False)
        assert not call.gone.is_set()


async def test_startup_and_shutdown_are_passed_on() -> None:
    steps: list[str] = []

    def step(name: str) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            steps.append(name)

        return take

    async with asyncio.timeout(BOUND_S):
        server = Server({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
        app = AsgiApp(FakeHandler(), startup=step("up"), shutdown=step("down"))
        await app({"type": "lifespan"}, server.receive, server.send)
        assert steps == ["up", "down"]
        assert server.sent.get_nowait() == {"type": "lifespan.startup.complete"}
        assert server.sent.get_nowait() == {"type": "lifespan.shutdown.complete"}


async def test_a_startup_that_fails_says_why() -> None:
    async def fail() -> None:
        raise RuntimeError("no config")

    async with asyncio.timeout(BOUND_S):
        server = Server({"type": "lifespan.startup"})
        with pytest.raises(RuntimeError):
            await AsgiApp(FakeHandler(), startup=fail)({"type": "lifespan"}, server.receive, server.send)
        assert server.sent.get_nowait() == {"type": "lifespan.startup.failed", "message": "no config"}


async def test_a_websocket_is_refused() -> None:
    async with asyncio.timeout(BOUND_S):
        server = Server({"type": "websocket.connect"})
        await AsgiApp(FakeHandler())({"type": "websocket"}, server.receive, server.send)
        assert server.sent.get_nowait()["type"] == "websocket.close"
        with pytest.raises(ValueError, match="unsupported ASGI scope"):
            await AsgiApp(FakeHandler())({"type": "smtp"}, server.receive, server.send)
