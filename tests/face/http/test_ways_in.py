"""What both ways in make of a connection: requests for the handler, in order, and refusals of what is no HTTP."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.limits import HALF_OPEN_FOR_S
from tests.face.http.ways_in import GET, FakeCall, OurServer, WayIn, post
from tests.program import BOUND_S

CHUNKED = b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
MALFORMED = {
    "Content-Length with chunked": post("/echo", b"0\r\n\r\n", "Transfer-Encoding: chunked"),
    "chunked with Content-Length": CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "lines without CR": b"GET /echo HTTP/1.1\nHost: test\n\n",
    "a header without CR": b"GET /echo HTTP/1.1\r\nHost: test\nA: b\r\n\r\n",
    "doubled Content-Length": post("/echo", b"hi", "Content-Length: 2"),
    "a list of Content-Lengths": b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 2, 2\r\n\r\nhi",
    "a signed Content-Length": b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: +2\r\n\r\nhi",
    "an empty Content-Length": b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length:\r\n\r\n",
    "an enormous Content-Length": b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1%s\r\n\r\n" % (b"0" * 20),
    "NUL in a header": b"GET /echo HTTP/1.1\r\nHost: test\r\nA: b\0c\r\n\r\n",
    "a control character in a header": b"GET /echo HTTP/1.1\r\nHost: test\r\nA: b\x01c\r\n\r\n",
    "a lone CR in a header": b"GET /echo HTTP/1.1\r\nHost: test\r\nA: b\rc\r\n\r\n",
    "no Host": b"GET /echo HTTP/1.1\r\n\r\n",
    "doubled Host": b"GET /echo HTTP/1.1\r\nHost: test\r\nHost: other\r\n\r\n",
    "a space before the colon": b"GET /echo HTTP/1.1\r\nHost: test\r\nA : b\r\n\r\n",
    "a folded header": b"GET /echo HTTP/1.1\r\nHost: test\r\nA: b\r\n c\r\n\r\n",
    "a header without a colon": b"GET /echo HTTP/1.1\r\nHost: test\r\nA\r\n\r\n",
    "a chunk with a bad size": CHUNKED + b"zz\r\nhi\r\n0\r\n\r\n",
    "a chunk with a signed size": CHUNKED + b"-2\r\nhi\r\n0\r\n\r\n",
    "a chunk that is longer than its size": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "a chunk without CR": CHUNKED + b"2\nhi\n0\n\n",
    "NUL in the target": b"GET /ec\0ho HTTP/1.1\r\nHost: test\r\n\r\n",
    "a relative target": b"GET echo HTTP/1.1\r\nHost: test\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_two_programs_may_read_differently_is_refused(way_in: WayIn, name: str) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        reply = await client.ask(MALFORMED[name])
        assert reply.status == 400
        assert not any(call.complete.is_set() for call in way_in.handler.calls)


async def test_a_request_reaches_the_handler_as_it_was_sent(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        reply = await client.ask(post("/a%20b//c?q=1&q=2", b"hello", "X-One:  a b \t", "x-two: 1", "X-Two: 2"))
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain")
        assert reply.told["method"] == "POST"
        assert reply.told["target"] == "/a%20b//c?q=1&q=2"
        assert reply.told["body"] == "hello"
        call = await way_in.handler.next_call()
        assert call.head.headers[b"x-one"].strip(b" \t") == b"a b"
        assert call.head.headers[b"x-two"] == b"1, 2"
        assert call.head.repeated == {b"x-two"}
        assert call.head.peer == "127.0.0.1"
        assert not call.head.is_secure


async def test_a_request_may_come_byte_by_byte(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        for byte in post("/echo", b"hello"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.reply()).told["body"] == "hello"


async def test_a_chunked_body_reaches_the_handler_whole(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        reply = await client.ask(CHUNKED + b"5;x=y\r\nhello\r\n4\r\n\r\n\r\n\r\n0\r\nTrailer: x\r\n\r\n" + GET)
        assert reply.told["body"] == "hello\r\n\r\n"
        if isinstance(way_in, OurServer):  # uvicorn adds trailers to the headers (RFC 9110, 6.5.1, forbids it)
            assert b"trailer" not in (await way_in.handler.next_call()).head.headers
        assert (await client.reply()).told["target"] == "/now"


async def test_requests_of_a_connection_are_answered_in_order(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post("/hold", b"1") + post("/echo", b"2") + GET + post("/echo", b"4"))
        held = await way_in.handler.next_call()
        await held.complete.wait()
        held.exchange.respond(Response(200, (), b"held"))
        assert (await client.reply()).body == b"held"
        assert [(await client.reply()).told["body"] for _ in range(3)] == ["2", "", "4"]


async def test_the_next_request_begins_when_the_answer_before_has_ended(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post("/hold", b"1") + post("/echo", b"2"))
        held = await way_in.handler.next_call()
        await held.complete.wait()
        held.exchange.start(Response(200))
        held.exchange.write(b"x")
        assert (await client.head())[0] == 200
        assert await client.chunk() == b"x"
        assert len(way_in.handler.calls) == 1
        held.exchange.end()
        assert await client.chunk() == b""
        assert (await client.reply()).told["body"] == "2"


async def test_an_http10_connection_is_closed_after_the_answer(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        reply = await client.ask(b"GET /echo HTTP/1.0\r\n\r\n")
        assert reply.told["target"] == "/echo"
        assert reply.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_connection_close_is_obeyed(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        reply = await client.ask(post("/echo", b"x", "Connection: close"))
        assert reply.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_an_answer_to_head_has_no_body(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"HEAD /echo HTTP/1.1\r\nHost: test\r\n\r\n" + GET)
        reply = await client.reply(has_body=False)
        assert int(reply.headers["content-length"]) > 0
        assert (await client.reply()).told["target"] == "/now"


async def test_every_answer_says_its_date(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        assert (await client.ask(GET)).headers["date"].endswith(" GMT")


async def test_a_long_body_is_refused_by_its_declared_length(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 20000000\r\n\r\n")
        assert (await client.reply()).status == 413
        assert (await way_in.handler.next_call()).is_refused


async def test_the_answer_to_a_long_body_can_be_read_although_all_of_it_is_sent(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post("/echo", bytes(20_000_000)))
        assert (await client.reply()).status == 413


async def test_a_chunked_body_is_refused_when_it_becomes_too_long(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(CHUNKED + b"".join([b"10000\r\n" + bytes(0x10000) + b"\r\n"] * 17))
        assert (await client.reply()).status == 413
        assert (await way_in.handler.next_call()).is_refused


async def test_a_mebibyte_of_headers_is_refused(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"GET /echo HTTP/1.1\r\nHost: test\r\nA: " + b"a" * (1 << 20) + b"\r\n\r\n")
        assert (await client.reply()).status == 431
        assert way_in.handler.calls == []


async def test_too_many_headers_are_refused(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        head = b"GET /echo HTTP/1.1\r\nHost: test\r\n"
        assert (await client.ask(head + b"A: b\r\n" * 99 + b"\r\n")).status == 200
        assert (await client.ask(head + b"A: b\r\n" * 100 + b"\r\n")).status == 431


async def test_the_client_is_told_to_go_on_if_its_head_was_accepted(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        request = post("/echo", b"hello", "Expect: 100-continue")
        client.send(request[:-5])
        assert (await client.reply()).status == 100
        assert (await client.ask(request[-5:])).told["body"] == "hello"


async def test_a_stream_reaches_the_client_piece_by_piece(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await way_in.handler.next_call()
        assert (await client.head())[1]["transfer-encoding"] == "chunked"
        assert await client.chunk() == b"first "
        call.exchange.write(b"")
        call.exchange.write(b"second")
        assert await client.chunk() == b"second"
        call.exchange.end()
        assert await client.chunk() == b""
        assert (await client.ask(GET)).status == 200
        assert not call.gone.is_set()


@pytest.mark.parametrize("path", ["/hold", "/stream"])
async def test_the_handler_is_told_once_that_a_client_has_gone(way_in: WayIn, path: str) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post(path, b"x"))
        call = await way_in.handler.next_call()
        await call.complete.wait()
        await client.close()
        if isinstance(way_in, OurServer) and path == "/hold":  # it may be half open, and wait for its answer
            await way_in.settle()
            way_in.pass_time(HALF_OPEN_FOR_S)
        await call.gone.wait()
        for act in (call.exchange.end, call.exchange.abort):
            act()
        call.exchange.respond(Response(200))
        call.exchange.start(Response(200))
        call.exchange.write(b"x")
        assert call.exchange.buffered_bytes() == 0


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_client_that_sends_nothing_more_has_gone_if_the_answer_is_for_one_that_stays(
    way_in: WayIn, is_closed: bool
) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post("/attended", b"x"))
        call = await way_in.handler.next_call()
        await call.complete.wait()
        if is_closed:
            await client.close()
        else:
            client.writer.write_eof()
        await call.gone.wait()
        call.exchange.respond(Response(200, (), b"too late"))
        assert b"too late" not in await client.rest()


async def test_an_answer_that_has_ended_says_nothing_more(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        assert (await client.ask(post("/echo", b"1"))).status == 200
        first = await way_in.handler.next_call()
        client.send(post("/hold", b"2"))
        second = await way_in.handler.next_call()
        await second.complete.wait()
        _say_everything(first)
        second.exchange.respond(Response(200, (), b"second"))
        assert (await client.reply()).body == b"second"
        assert not first.gone.is_set()


def _say_everything(call: FakeCall) -> None:
    call.exchange.start(Response(500, (), b"stray"))
    call.exchange.write(b"stray")
    call.exchange.respond(Response(500, (), b"stray"))
    call.exchange.end()
    call.exchange.abort()


async def test_what_a_client_does_not_read_is_known(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await way_in.handler.next_call()
        await client.head()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            call.exchange.write(bytes(1 << 20))
            await asyncio.sleep(0)
        assert call.exchange.buffered_bytes() > 100 << 20
        client.writer.transport.abort()
        await call.gone.wait()


async def test_an_answer_without_content_has_no_length(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(post("/hold", b"x") + GET)
        call = await way_in.handler.next_call()
        await call.complete.wait()
        call.exchange.respond(Response(204))
        status, headers = await client.head()
        assert status == 204
        assert "content-length" not in headers
        assert (await client.reply()).status == 200


async def test_an_aborted_answer_closes_the_connection(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        client.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        call = await way_in.handler.next_call()
        await client.head()
        assert await client.chunk() == b"first "
        call.exchange.abort()
        assert await client.rest() == b""
        assert not call.gone.is_set()


async def test_a_bug_in_the_handler_is_answered(way_in: WayIn) -> None:
    async with asyncio.timeout(BOUND_S):
        client = await way_in.connect()
        assert (await client.ask(post("/bug", b"x"))).status == 500
