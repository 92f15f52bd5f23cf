"""The HTTP client of the tests reads what servers may write, loses nothing of it, and reports what is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from tests.http_client import Disconnected, EventParser, HttpClient, ServerEvent
from tests.journeys.remote_server import free_port, listening
from tests.mcp_client import McpClient, Refused, open_sessions
from tests.program import BOUND_S, UPSTREAMS

SDK_SERVER = (sys.executable, str(UPSTREAMS / "sdk_http.py"))
EVENTS = b': hello\nretry: 10\nid: 1\ndata:\n\nid: 2\nevent: message\ndata: {"a":\ndata: 1}\n\ndata: last\r\n\r\n'
TAKEN = [
    ServerEvent(b"", "1", retry_ms=10),
    ServerEvent(b'{"a":\n1}', "2"),
    ServerEvent(b"last"),
]


@contextlib.asynccontextmanager
async def _answering(*answers: bytes) -> AsyncIterator[HttpClient]:
    """Hand out a client of a server that gives these answers, byte by byte, and then closes the connection."""
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                answer = next(left, None)
                if answer is None:
                    return
                for byte in answer:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)
                if b"Connection: close" in answer or (b"chunked" not in answer and b"Length" not in answer):
                    return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(BOUND_S), server, HttpClient(url) as client:
        yield client


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["length", "chunks", "until the end", "after an interim answer"],
)
async def test_a_body_is_read_to_its_end_however_it_is_framed(answer: bytes) -> None:
    async with _answering(answer) as client:
        response = await client.request("GET", "/")
        assert (response.status, await response.read()) == (200, b"hello")


async def test_a_connection_is_used_again_once_its_answer_has_been_read() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with _answering(answer, answer, answer) as client:
        for _ in range(2):
            await (await client.request("GET", "/")).read()
        assert client.opened == 1
        await client.request("GET", "/", is_fresh=True)
        assert client.opened == 2


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nCont", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhe"],
    ids=["in the head", "in the body"],
)
async def test_an_answer_that_is_cut_off_is_no_answer(answer: bytes) -> None:
    async with _answering(answer) as client:
        with pytest.raises(Disconnected):
            await (await client.request("GET", "/", is_fresh=True)).read()


@pytest.mark.parametrize("step", [1, 2, 7, len(EVENTS)])
def test_events_are_the_same_wherever_the_stream_is_split(step: int) -> None:
    parser = EventParser()
    pieces = [EVENTS[at : at + step] for at in range(0, len(EVENTS), step)]
    assert [event for piece in pieces for event in parser.feed(piece)] == TAKEN
    assert parser.comments == 1


async def test_a_wait_for_an_event_that_is_given_up_loses_nothing() -> None:
    chunk = b"data: one\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with _answering(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk)) as client:
        response = await client.request("GET", "/")
        while True:
            waiting = asyncio.create_task(response.next_event())
            await asyncio.sleep(0)
            if waiting.done():
                break
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                break
        assert waiting.result() == ServerEvent(b"one")
        assert await response.next_event() is None


@contextlib.asynccontextmanager
async def _sdk_server() -> AsyncIterator[HttpClient]:
    """Run the SDK's server, and hand out a client of it."""
    port = free_port()
    server = listening(*SDK_SERVER, str(port), "http", port=port)
    async with server, asyncio.timeout(BOUND_S), HttpClient(f"http://127.0.0.1:{port}") as http:
        yield http


async def test_sessions_of_an_official_server_are_spoken_to() -> None:
    async with _sdk_server() as http:
        one, two = await open_sessions(http, 2)
        assert one.id != two.id
        answer = await one.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
        assert answer["result"]["content"][0]["text"] == "hello"
        assert await one.delete() == 200
        with pytest.raises(Refused) as refused:
            await one.request("ping")
        assert refused.value.status == 404
        assert (await two.request("ping"))["result"] == {}


async def test_a_question_comes_on_the_stream_of_its_call_and_is_answered() -> None:
    async with _sdk_server() as http:
        session = McpClient(http)
        await session.initialize({"elicitation": {}})
        params = {"name": "greet", "arguments": {}, "_meta": {"progressToken": 1}}
        id, stream = await session.begin("tools/call", params)
        question = await stream.hear("elicitation/create")
        await session.reply(question, {"action": "accept", "content": {"name": "Ada"}})
        answer = await stream.until(id)
        assert answer["result"]["content"][0]["text"] == "hello Ada"
        assert stream.messages[0]["method"] == "notifications/progress"
