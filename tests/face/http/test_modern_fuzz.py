"""Any bytes at all, to a server of modern requests: what runs is what every program on the way has read."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.face.http.connection import HttpConnection
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.mcp.mirrored_headers import NAMED_BY, decode_value
from tests.examples import examples
from tests.face.http.modern_parties import LISTEN, VERSION, FakeDispatcher, call_of, headers_for, modern
from tests.face.http.parties import face_of
from tests.face.http.test_fuzz import SNIPPETS, Transport, h11_hears, split
from tests.fakes import FakeUpstream, Json, Opener


@dataclass(frozen=True)
class Outcome:
    """What became of a connection: the requests that were begun, how often each was cancelled, and the answers."""

    begun: list[tuple[str, bytes]]
    cancelled: list[int]
    statuses: list[bytes]
    is_ended: bool


Run = Callable[[Sequence[bytes], bool], Outcome]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Send pieces to a connection of its own, answer at once or never, close it, and return what became of it."""
    with asyncio.Runner() as runner:

        def serve(pieces: Sequence[bytes], answers_at_once: bool) -> Outcome:
            return runner.run(_serve(pieces, FakeDispatcher(answers_at_once=answers_at_once)))

        yield serve


async def _serve(pieces: Sequence[bytes], dispatcher: FakeDispatcher) -> Outcome:
    async with face_of(Opener(up=[FakeUpstream()]), dispatcher=dispatcher) as face:
        transport = Transport()
        connection = HttpConnection(Connections(face, clock=lambda: 0.0, wall_clock=lambda: 0.0))
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            await asyncio.sleep(0)
        before = b""
        while before != transport.written:  # it takes some requests a turn
            before = bytes(transport.written)
            await asyncio.sleep(0)
        is_ended = transport.is_ended
        connection.connection_lost(None)
        for call in dispatcher.calls:  # too late
            call.say("notifications/progress")
            call.answer()
        assert transport.written == before, "nothing is written to a client that has gone"
        assert not face_in_flight(repr(face))
    statuses = re.findall(rb"^HTTP/1\.1 (\d{3}) ", before, re.MULTILINE)
    return Outcome(
        [(call.frame.method, bytes(call.frame.params)) for call in dispatcher.calls],
        [len(call.reasons) for call in dispatcher.calls],
        [status for status in statuses if status != b"100"],
        is_ended,
    )


def face_in_flight(shown: str) -> int:
    """Return how many modern requests a face says that it has in flight."""
    found = re.search(r"(\d+) modern requests", shown)
    assert found is not None
    return int(found[1])


MESSAGES = st.sampled_from([
    call_of("echo"), call_of("other"), call_of("\u00e9"), modern("tools/list"), modern(LISTEN), modern("none/such"),
    modern("resources/read", {"uri": "file:///a"}), {"jsonrpc": "2.0", "method": "notifications/cancelled"},
])  # fmt: skip
FIELDS = st.sampled_from([
    b"Mcp-Method: tools/call\r\n", b"mcp-method:tools/list\r\n", b"MCP-NAME: echo\r\n", b"Mcp-Name: other\r\n",
    b"Mcp-Name: =?base64?ZWNobw==?=\r\n", b"Mcp-Name: =?base64?ZWNobw?=\r\n", b"Mcp-Session-Id: x\r\n",
    b"MCP-Protocol-Version: 2026-07-28\r\n", b"MCP-Protocol-Version: 2025-11-25\r\n", b"Mcp-Method : tools/list\r\n",
    b"Mcp-Param-A: b\r\n", b"Mcp_Method: tools/list\r\n", b"\tMcp-Name: other\r\n", b"Last-Event-ID: 1-1\r\n",
])  # fmt: skip


def encode(message: Json, extra: bytes = b"") -> bytes:
    """Return a POST as bytes, with another field."""
    body = json.dumps(message).encode()
    usual = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**usual, **headers_for(message)}.items())
    return b"POST /mcp HTTP/1.1\r\n" + lines.encode() + extra + b"\r\n" + body


@st.composite
def sent(draw: st.DrawFn) -> bytes:
    """Requests whose heads have another field, or that have a few changes."""
    extras = st.one_of(st.just(b""), FIELDS)
    data = b"".join(encode(draw(MESSAGES), draw(extras)) for _ in range(draw(st.integers(1, 3))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.one_of(SNIPPETS, FIELDS, st.binary(max_size=2)))
        data = data[:at] + change + data[at + draw(st.integers(0, 3)) :]
    return data


@given(sent())
@examples(400)
@example(encode(call_of("echo")) + encode(call_of("echo"), b"Mcp-Name: other\r\n"))
def test_what_runs_is_what_another_program_reads_from_the_headers_and_from_the_body(run: Run, data: bytes) -> None:
    outcome = run([data], True)
    # an empty line before a request is skipped, as RFC 9112 (section 2.2) says, but not by h11
    heard, _ = h11_hears(re.sub(rb"(?:\r\n)+(?=POST /mcp HTTP/1\.1\r\n)", b"", data))
    readings = Counter[tuple[str, str]]()
    for request in heard:
        fields = dict(request.headers)
        if fields.get(b"mcp-protocol-version") == VERSION.encode():
            name = decode_value(fields.get(b"mcp-name", b""))
            readings[fields.get(b"mcp-method", b"").decode("latin-1"), name or ""] += 1
    begun = Counter((method, named(method, params)) for method, params in outcome.begun)
    for (method, name), count in begun.items():
        same = [n for (m, other), n in readings.items() if m == method and (other == name or method not in NAMED_BY)]
        assert sum(same) >= count


def named(method: str, params: bytes) -> str:
    """Return what a request is about, by its body."""
    member = NAMED_BY.get(method)
    name = json.loads(params).get(member, "") if member else ""
    assert isinstance(name, str)
    return name


@given(sent(), st.lists(st.integers(0, 10_000), max_size=20))
@examples(200)
def test_it_does_not_matter_how_the_bytes_of_modern_requests_are_split(
    run: Run, data: bytes, cuts: list[int]
) -> None:
    assert run(split(data, cuts), True) == run([data], True)


@given(sent(), st.integers(0, 10_000), st.booleans())
@examples(200)
def test_wherever_a_client_closes_each_request_that_was_begun_is_cancelled_once_or_answered(
    run: Run, data: bytes, cut: int, answers_at_once: bool
) -> None:
    outcome = run([data[: cut % (len(data) + 1)]], answers_at_once)
    assert outcome.cancelled == [0 if answers_at_once else 1] * len(outcome.begun)
