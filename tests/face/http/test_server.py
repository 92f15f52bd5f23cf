"""Our own server: what a client may do, for how long, and how everything ends."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.server import HttpServer
from tests.face.http.ways_in import GET, Client, FakeHandler, OurServer, post
from tests.program import BOUND_S

HEAD = b"GET /now HTTP/1.1\r\nHost: test\r\n"
REFUSED = {
    "another version": (b"GET / HTTP/2.0\r\nHost: test\r\n\r\n", 505),
    "a version to come": (b"GET / HTTP/1.2\r\nHost: test\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "an unknown method": (b"FETCH / HTTP/1.1\r\nHost: test\r\n\r\n", 501),
    "a tunnel": (b"CONNECT test:80 HTTP/1.1\r\nHost: test\r\n\r\n", 501),
    "an unknown transfer coding": (b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "a second transfer coding": (b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "a transfer coding in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "another expectation": (post("/echo", b"x", "Expect: miracles"), 417),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "two spaces": (b"GET  / HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "a user in the target": (b"GET http://user@test/ HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "the hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "two empty lines": b"\r\n\r\n" + GET,
    "a line without CR in a head that is not complete": b"GET / HTTP/1.1\r\nHost: test\nA",
    "a head without end": b"GET / HTTP/1.1\r\nHost: test\r\nA: " + b"a" * (64 << 10),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_refused_says_why_and_closes(server: OurServer, name: str) -> None:
    case = REFUSED[name]
    request, status = case if isinstance(case, tuple) else (case, 431 if len(case) > 1000 else 400)
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        reply = await client.ask(request)
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert reply.body.endswith(b"\n")
        assert await client.rest() == b""
        assert server.handler.calls == []


async def test_one_empty_line_before_a_request_is_skipped(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        assert (await client.ask(b"\r\n" + GET + b"\r")).status == 200
        assert (await client.ask(b"\n" + GET)).status == 200


async def test_a_url_as_target_counts_more_than_host(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        reply = await client.ask(b"GET http://real:81/a?b HTTP/1.1\r\nHost: other\r\n\r\n")
        assert reply.told["target"] == "/a?b"
        assert reply.told["headers"] == {"host": "real:81"}
        assert (await client.ask(b"GET http://real?b HTTP/1.1\r\nHost: x\r\n\r\n")).told["target"] == "/?b"
        assert (await client.ask(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")).told["target"] == "*"


async def test_an_offer_to_upgrade_is_declined(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        request = post("/echo", b"hello", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA")
        assert (await client.ask(request + GET)).told["body"] == "hello"
        assert (await client.reply()).status == 200


async def test_a_client_that_knows_only_http2_is_let_go_in_silence(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert await client.rest() == b""


async def test_http10_stays_open_if_the_client_asks_for_it(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        reply = await client.ask(b"GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert reply.headers["connection"] == "keep-alive"
        assert (await client.ask(GET)).status == 200


async def test_the_client_is_not_told_to_go_on_if_its_head_was_refused(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 20000000\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert await client.rest() == b""


async def test_a_stream_to_an_http10_client_ends_with_its_connection(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"GET /stream HTTP/1.0\r\n\r\n")
        call = await server.handler.next_call()
        await call.complete.wait()
        call.exchange.write(b"second")
        call.exchange.end()
        reply = await client.reply()
        assert "transfer-encoding" not in reply.headers
        assert reply.body == b"first second"


async def test_a_short_body_that_nobody_wants_does_not_cost_the_connection(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        reply = await client.ask(
            b"POST /now HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % limits.DRAIN_BYTES
        )
        assert "connection" not in reply.headers
        client.send(bytes(limits.DRAIN_BYTES))
        assert (await client.ask(GET)).status == 200


async def test_a_long_body_that_nobody_wants_is_not_waited_for(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        length = limits.DRAIN_BYTES + 1
        reply = await client.ask(b"POST /now HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % length)
        assert reply.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_chunks_that_nobody_wants_are_read_up_to_a_bound(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        head = b"POST /now HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (await client.ask(head + b"5\r\nhello\r\n0\r\n\r\n")).status == 200
        assert (await client.ask(head)).status == 200
        client.send(b"".join([b"10000\r\n" + bytes(0x10000) + b"\r\n"] * 5))
        assert await client.rest() == b""


async def test_chunks_that_are_nearly_empty_are_refused(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"1;" + b"x" * 200_000)
        assert (await client.reply()).status == 400
        assert (await server.handler.next_call()).gone.is_set()


# --- time ----------------------------------------------------------------------------------------------


async def test_a_head_that_never_ends_is_given_up_however_often_bytes_come(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        for byte in HEAD[:4]:
            client.send(bytes([byte]))
            await server.settle()
            server.pass_time(limits.HEAD_WITHIN_S / 4 - 0.1)
        client.send(HEAD[4:])
        await server.settle()
        server.pass_time(0.5)
        assert (await client.reply()).status == 408
        assert await client.rest() == b""


async def test_a_body_that_comes_no_further_is_given_up(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/echo", b"hello")[:-4])
        call = await server.handler.next_call()
        server.pass_time(limits.BODY_PROGRESS_WITHIN_S - 1)
        assert not call.gone.is_set()
        server.pass_time(1)
        assert (await client.reply()).status == 408
        assert call.gone.is_set()
        assert await client.rest() == b""


async def test_a_body_that_comes_in_drops_is_given_up(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/echo", b"x" * 20_000)[:-20_000])
        call = await server.handler.next_call()
        for _ in range(3):
            client.send(b"x" * limits.BODY_PROGRESS_BYTES)
            await server.settle()
            server.pass_time(limits.BODY_PROGRESS_WITHIN_S - 1)
            assert not call.gone.is_set()
        client.send(b"x")
        await server.settle()
        server.pass_time(1)
        assert (await client.reply()).status == 408
        assert call.gone.is_set()


@pytest.mark.parametrize("first", [b"", GET])
async def test_an_idle_connection_is_closed_in_silence(server: OurServer, first: bytes) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        if first:
            await client.ask(first)
        await server.settle()
        server.pass_time(limits.IDLE_FOR_S - 1)
        assert (await client.ask(GET)).status == 200
        server.pass_time(limits.IDLE_FOR_S)
        assert await client.rest() == b""


async def test_an_answer_may_take_its_time(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/hold", b"x"))
        call = await server.handler.next_call()
        server.pass_time(10_000)
        call.exchange.respond(Response(200, (), b"late"))
        assert (await client.reply()).body == b"late"


async def test_a_client_that_reads_nothing_is_given_up(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await server.handler.next_call()
        call.exchange.write(bytes(16 << 20))
        await server.settle()
        server.pass_time(0)  # what the kernel has taken since counts as read
        server.pass_time(limits.UNREAD_FOR_S - 1)
        assert not call.gone.is_set()
        server.pass_time(1)
        await call.gone.wait()


async def test_a_client_that_reads_slowly_is_not_given_up(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await server.handler.next_call()
        await client.head()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(4):
            call.exchange.write(bytes(16 << 20))
            await server.settle()
            server.pass_time(limits.UNREAD_FOR_S - 1)
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await client.chunk() if _ else await client.chunk() and await client.chunk()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert not call.gone.is_set()


async def test_the_next_request_of_a_client_that_does_not_read_is_not_begun(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(post("/large", b"x") * 3)
        await server.settle()
        assert len(server.handler.calls) == 1
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [len((await client.reply()).body) for _ in range(3)] == [8 << 20] * 3


async def test_what_is_read_ahead_is_bounded(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/hold", b"x"))
        held = await server.handler.next_call()
        client.send(bytes(64 << 20))
        await server.settle()
        assert client.writer.transport.get_write_buffer_size() > 32 << 20
        held.exchange.respond(Response(200))
        assert (await client.reply()).status == 200
        assert (await client.reply()).status == 400


async def test_many_requests_at_once_do_not_keep_others_waiting(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        greedy, other = await server.connect(), await server.connect()
        await other.ask(GET)
        greedy.send(GET * 1000)
        other.send(post("/hold", b"x"))
        await server.settle()
        order = [call.head.target for call in server.handler.calls]
        assert order.index(b"/hold") < 500
        for _ in range(1000):
            assert (await greedy.reply()).status == 200


# --- half open -----------------------------------------------------------------------------------------


async def test_a_client_that_sends_nothing_more_gets_its_answers(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/hold", b"x") + GET)
        client.writer.write_eof()
        call = await server.handler.next_call()
        await server.settle()
        call.exchange.respond(Response(200, (), b"held"))
        assert (await client.reply()).body == b"held"
        assert (await client.reply()).told["target"] == "/now"
        assert await client.rest() == b""


async def test_a_client_that_sends_nothing_more_does_not_wait_for_ever(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(post("/hold", b"x"))
        client.writer.write_eof()
        call = await server.handler.next_call()
        await server.settle()
        server.pass_time(limits.HALF_OPEN_FOR_S)
        await call.gone.wait()
        assert await client.rest() == b""


@pytest.mark.parametrize("part", [HEAD, post("/echo", b"hello")[:-1]])
async def test_a_request_that_is_cut_off_ends_its_connection(server: OurServer, part: bytes) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(part)
        client.writer.write_eof()
        assert await client.rest() == b""
        assert all(call.gone.is_set() for call in server.handler.calls)


async def test_a_client_that_goes_on_sending_after_its_last_answer_is_let_go(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        assert (await client.ask(b"\0")).status == 400
        client.send(b"more")
        await server.settle()
        server.pass_time(limits.LINGER_FOR_S)
        await server.settle()
        assert repr(server.server) == "<HttpServer 1 listening, 0 connections>"


# --- the end -------------------------------------------------------------------------------------------


async def test_a_closed_server_lets_idle_clients_go_and_answers_the_others(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        idle, busy = await server.connect(), await server.connect()
        await idle.ask(GET)
        busy.send(post("/hold", b"x"))
        call = await server.handler.next_call()
        call = await server.handler.next_call()
        server.server.close()
        assert await idle.rest() == b""
        call.exchange.respond(Response(200, (), b"held"))
        reply = await busy.reply()
        assert (reply.body, reply.headers["connection"]) == (b"held", "close")
        await server.server.drain(5)
        with pytest.raises(ConnectionError):
            await server.connect()


async def test_a_stopped_server_ends_open_streams_and_half_sent_requests(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        stream, half, unread = [await server.connect() for _ in range(3)]
        stream.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        half.send(HEAD)
        unread.writer.transport.pause_reading()  # type: ignore[attr-defined]
        unread.send(post("/large", b"x"))
        await server.settle()
        await server.server.drain(0)
        await stream.rest()
        assert await half.rest() == b""
        assert next(call for call in server.handler.calls if call.head.target == b"/stream").gone.is_set()
        assert repr(server.server) == "<HttpServer 0 listening, 0 connections>"


async def test_a_stream_that_the_handler_ends_closes_its_connection_while_stopping(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await server.connect()
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await server.handler.next_call()
        await client.head()
        server.server.close()
        call.exchange.end()
        assert [await client.chunk(), await client.chunk()] == [b"first ", b""]
        assert await client.rest() == b""
        await server.server.drain(5)


# --- where it listens ----------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="the loop of Windows accepts by itself")
async def test_a_client_that_waits_to_be_accepted_as_the_server_ends_is_answered(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        server.server.retire()
        ending = asyncio.create_task(server.server.stop_accepting())
        await asyncio.sleep(0)  # now nothing accepts any more
        with socket.create_connection(("127.0.0.1", server.port), BOUND_S) as client:
            client.sendall(GET)
            await ending
            draining = asyncio.create_task(server.server.drain(BOUND_S))
            client.setblocking(False)
            answer = b""
            while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
                answer += piece
        await draining
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer


async def test_a_connection_without_a_request_so_far_gets_one_answer_from_a_server_that_retires(
    server: OurServer,
) -> None:
    async with asyncio.timeout(BOUND_S):
        used, new = await server.connect(), await server.connect()
        assert (await used.ask(GET)).status == 200
        server.server.retire()
        await server.server.stop_accepting()
        draining = asyncio.create_task(server.server.drain(BOUND_S))
        assert await used.rest() == b"", "it is idle"
        reply = await new.ask(GET)
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        await draining


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="dm-") as name:
        yield Path(name)


@pytest.mark.posix_only("a Unix socket")
async def test_it_listens_on_a_unix_socket_that_is_private_and_removed(folder: Path) -> None:
    async with asyncio.timeout(BOUND_S):
        path, handler = folder / "s", FakeHandler()
        server = HttpServer(handler)
        await server.open(UnixAddress(str(path)))
        assert path.stat().st_mode & 0o777 == 0o600
        client = Client(*await asyncio.open_unix_connection(str(path)))
        assert (await client.ask(GET)).status == 200
        assert handler.calls[0].head.peer == ""
        await client.close()
        await server.drain(5)
        assert not path.exists()


@pytest.mark.parametrize(("platform", "is_set"), [("linux", True), ("darwin", True), ("win32", False)])
async def test_a_port_is_free_again_at_once_but_not_shared_on_windows_where_the_option_would_do_that(
    monkeypatch: pytest.MonkeyPatch, platform: str, *, is_set: bool
) -> None:
    options: list[int] = []
    monkeypatch.setattr(socket.socket, "setsockopt", lambda self, level, option, value: options.append(option))
    server = HttpServer(FakeHandler())
    async with asyncio.timeout(BOUND_S):
        await server.open(TcpAddress("127.0.0.1", 0), platform=platform)
        await server.drain(5)
    assert (socket.SO_REUSEADDR in options) == is_set


@pytest.mark.posix_only("a Unix socket")
async def test_a_stale_socket_is_replaced_and_a_live_one_is_not(folder: Path) -> None:
    async with asyncio.timeout(BOUND_S):
        path = folder / "s"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        first, second = HttpServer(FakeHandler()), HttpServer(FakeHandler())
        await first.open(UnixAddress(str(path)), unix_mode=0o660)
        assert path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(OSError, match="another process listens here"):
            await second.open(UnixAddress(str(path)))
        client = Client(*await asyncio.open_unix_connection(str(path)))
        assert (await client.ask(GET)).status == 200
        await client.close()
        await first.drain(5)


@pytest.mark.posix_only("a Unix socket")
async def test_a_file_that_is_no_socket_is_left_alone(folder: Path) -> None:
    path = folder / "notes"
    path.write_text("mine")
    with pytest.raises(OSError, match="not a socket"):
        await HttpServer(FakeHandler()).open(UnixAddress(str(path)))
    assert path.read_text() == "mine"


async def test_a_port_in_use_is_refused(server: OurServer) -> None:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its text is that of the system
        await HttpServer(FakeHandler()).open(TcpAddress(port=server.port))
    assert raised.value.errno == errno.EADDRINUSE


async def test_a_name_and_several_addresses_are_listened_at(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        addresses = await server.server.open(TcpAddress("localhost", 0))
        assert addresses
        for address in addresses:
            client = Client(*await asyncio.open_connection(address.host, address.port))
            assert (await client.ask(GET)).status == 200
            await client.close()


def test_a_connection_that_is_being_accepted_is_closed_at_the_end_too(recwarn: pytest.WarningsRecorder) -> None:
    async def serve_for_a_moment() -> None:
        server = HttpServer(FakeHandler())
        (address,) = await server.open(TcpAddress("127.0.0.1", 0))
        with socket.create_connection((address.host, address.port)):
            for _ in range(2):  # it is accepted, and then gets its transport, which is ours a moment later
                await asyncio.sleep(0)
            await server.stop_accepting()
            await server.drain(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve_for_a_moment())
    loop.close()
    gc.collect()
    assert not [each.message for each in recwarn if each.category is ResourceWarning]
