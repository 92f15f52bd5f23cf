"""Any bytes at all: what a request is to our server is one to h11 too, however the bytes are split.

h11 takes more than we do. `ON_PURPOSE` names what we refuse although h11 reads it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.face.http.connection import HttpConnection
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.rules import join_fields
from tests.examples import examples
from tests.program import BOUND_S


@dataclass(frozen=True)
class Heard:
    """A request, as one of the two has understood it."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Transport(asyncio.Transport):
    """Keeps what a connection writes, and takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended
        self.written += data

    def write_eof(self) -> None:
        self.is_ended = True

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Listener:
    """Answers every request at once, and keeps it."""

    def __init__(self) -> None:
        self.max_body_bytes = 1 << 16
        self.needs_client = False
        self.sender = None
        self.has_heard = asyncio.Event()
        self.heard: list[Heard] = []
        self.is_refused = False
        self._pending: tuple[RequestHead, Exchange]

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver:
        """Wait for the body."""
        self._pending = head, exchange
        return self

    def receive_body(self, body: bytes) -> None:
        """Keep the request."""
        head, exchange = self._pending
        self.heard.append(_heard(head.method, head.target, head.headers, body))
        self.has_heard.set()
        exchange.respond(Response(200))

    def refuse_body(self) -> None:
        """Refuse what is too long."""
        self.is_refused = True
        self._pending[1].respond(Response(413))

    def disconnected(self) -> None:
        """Take it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a connection."""

    heard: list[Heard]
    statuses: list[bytes]
    is_ended: bool


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Sequence[bytes]], Outcome]]:
    """Send pieces to a connection of its own, and return what became of it."""
    with asyncio.Runner() as runner:

        def serve(pieces: Sequence[bytes]) -> Outcome:
            return runner.run(_serve(pieces))

        yield serve


async def _serve(pieces: Sequence[bytes]) -> Outcome:
    listener, transport = Listener(), Transport()
    connections = Connections(listener, clock=lambda: 0.0, wall_clock=lambda: 0.0)
    connection = HttpConnection(connections)
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    before = -1
    while len(listener.heard) != before:  # it takes some requests a turn
        before = len(listener.heard)
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert len(connections) == 0
    statuses = re.findall(rb"^HTTP/1\.1 (\d{3}) ", transport.written, re.MULTILINE)
    return Outcome(listener.heard, [status for status in statuses if status != b"100"], transport.is_ended)


def h11_hears(data: bytes) -> tuple[list[Heard], bool]:
    """Return the requests that h11 reads, and whether it met an error."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 17)
    heard: list[Heard] = []
    try:
        connection.receive_data(data)
        request, body = None, b""
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                fields, _ = join_fields(request.headers)
                heard.append(_heard(request.method.decode(), request.target, fields, body))
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return heard, False
                connection.start_next_cycle()
            else:
                return heard, False
    except h11.RemoteProtocolError:
        return heard, True


def _heard(method: str, target: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Heard:
    coding = headers.get(b"transfer-encoding")
    if coding is not None:
        headers = {**headers, b"transfer-encoding": coding.lower()}  # as h11 has it
    return Heard(method, target, tuple(sorted(headers.items())), body)


ON_PURPOSE = {
    "a line may end without CR": re.compile(rb"(?<!\r)\n"),
    "a header may be folded": re.compile(rb"\n[ \t]"),
    "Content-Length may be a list": re.compile(rb"content-length:[^\n]*,", re.I),
    "Content-Length may be said twice": re.compile(rb"content-length.*content-length", re.I | re.S),
    "Transfer-Encoding may follow Content-Length": re.compile(rb"content-length.*transfer-encoding", re.I | re.S),
    "Content-Length may follow Transfer-Encoding": re.compile(rb"transfer-encoding.*content-length", re.I | re.S),
    "methods may be any word": re.compile(rb"^(?!(GET|POST|PUT|DELETE|OPTIONS|HEAD|PATCH) )", re.M),
    "targets may be any word": re.compile(rb"^[^ \n]+ (?![/])|^[^ \n]+ [^ \n]*#", re.M),
    "versions may be any number": re.compile(rb"HTTP/(?!1\.[01]\r)"),
    "a size may be followed by spaces, or by what looks like an extension": re.compile(rb"\n[0-9a-fA-F]+[ \t;]"),
    "HTTP/1.0 may have chunks": re.compile(rb"HTTP/1\.0\r.*transfer-encoding", re.I | re.S),
    "other expectations are of no interest": re.compile(rb"expect:", re.I),
    "an announcement of what follows the body is taken as it is": re.compile(rb"\n0+\r\n[^\r]"),
    "chunks may be nearly empty": re.compile(rb"0{1000}"),
}  # fmt: skip

TOKENS = st.text("abcXYZ019-_!~", min_size=1, max_size=12)
VALUES = st.text('abc XYZ019,;="/\t\xe9:', max_size=20).map(lambda value: value.strip(" \t"))
FRAMED_BY_OTHERS = {"content-length", "transfer-encoding", "connection", "expect", "host", "upgrade"}


def is_plain(field: tuple[str, str]) -> bool:
    return field[0].lower() not in FRAMED_BY_OTHERS


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request, framed in one of the ways there are."""
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]))
    target = "/" + draw(st.text("abc/?&=%20.~-_;:@!$'()*+,", max_size=20))
    fields = [("Host", draw(st.sampled_from(["test", "127.0.0.1:8808", "[::1]:1"])))]
    fields += draw(st.lists(st.tuples(TOKENS, VALUES).filter(is_plain), max_size=5))
    body = draw(st.binary(max_size=60))
    match draw(st.sampled_from(["none", "sized", "chunked"])):
        case "none":
            sent = b""
        case "sized":
            fields.append((draw(st.sampled_from(["Content-Length", "content-length"])), str(len(body))))
            sent = body
        case _:
            fields.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
            cuts = sorted(draw(st.sets(st.integers(1, max(len(body), 1)), max_size=4)) | {len(body)})
            pieces = [body[start:stop] for start, stop in zip([0, *cuts], cuts, strict=False)]
            sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"
    order = draw(st.permutations(fields))
    lines = "".join(f"{name}: {value}\r\n" for name, value in order)
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + sent


SNIPPETS = st.sampled_from([
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"0\r\n\r\n", b"\r\n\r\n", b"\x7f", b"\xff", b"\x0b", b"\x0c",
    b"-", b"+", b",", b";", b"#", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1", b"A: b\r\n c\r\n", b"Host: b\r\n",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
])  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid requests with a few changes."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.one_of(SNIPPETS, st.binary(max_size=2)))
        data = data[:at] + change + data[at + draw(st.integers(0, 3)) :]
    return data


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut data at these places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places) if start < stop]


@given(st.lists(requests(), min_size=1, max_size=5))
@examples(100)
def test_valid_requests_are_understood_as_h11_does(
    run: Callable[[Sequence[bytes]], Outcome], sent: list[bytes]
) -> None:
    data = b"".join(sent)
    outcome, (heard, is_error) = run([data]), h11_hears(data)
    assert not is_error
    assert len(heard) == len(sent)
    assert outcome.heard == heard
    assert outcome.statuses == [b"200"] * len(sent)
    assert not outcome.is_ended


@given(st.one_of(mutated(), st.binary(max_size=100)))
@examples(600)
@example(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
def test_no_bytes_are_a_request_to_us_and_another_one_to_h11(
    run: Callable[[Sequence[bytes]], Outcome], data: bytes
) -> None:
    outcome, (heard, is_error) = run([data]), h11_hears(data)
    is_empty_line_skipped = b"\r\n" in (data[:2], *re.findall(rb"\r\n(?=[A-Z]+ [^\r\n]* HTTP/1)", data))
    if outcome.heard != heard[: len(outcome.heard)] or len(outcome.heard) > len(heard):
        assert is_empty_line_skipped or re.search(rb" https?://", data), "we hear what h11 does not"
    elif outcome.is_ended and not is_error and len(outcome.heard) < len(heard):
        assert any(pattern.search(data) for pattern in ON_PURPOSE.values()), "we refuse what h11 takes"
    elif is_error:
        assert outcome.is_ended or len(outcome.heard) == len(heard), "we wait for more where h11 has refused"


@given(st.one_of(mutated(), st.binary(max_size=200)), st.lists(st.integers(0, 10_000), max_size=30))
@examples(300)
def test_it_does_not_matter_how_the_bytes_are_split(
    run: Callable[[Sequence[bytes]], Outcome], data: bytes, cuts: list[int]
) -> None:
    assert run(split(data, cuts)) == run([data])


@given(mutated())
@examples(100)
def test_it_does_not_matter_that_the_bytes_come_one_by_one(
    run: Callable[[Sequence[bytes]], Outcome], data: bytes
) -> None:
    assert run(split(data, range(len(data)))) == run([data])


async def test_a_body_of_empty_lines_does_not_keep_others_waiting() -> None:
    body = b"\r\n" * 100_000
    head = b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    listener = Listener()
    listener.max_body_bytes = len(body)
    connections = Connections(listener, clock=lambda: 0.0, wall_clock=lambda: 0.0)
    connection = HttpConnection(connections)
    connection.connection_made(Transport())
    connection.data_received(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert listener.heard == []  # others have their turn before all of it is read
    async with asyncio.timeout(BOUND_S):
        await listener.has_heard.wait()
    assert listener.heard[0].body == body
    connection.connection_lost(None)
