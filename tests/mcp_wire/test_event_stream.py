"""Event streams are parsed as browsers parse them, however they are split into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.mcp.event_stream import EventStream, ServerSentEvent
from dynamic_mcp.mcp.lines import Oversized
from tests.examples import examples


def parse_stream(data: bytes, *, limit: int = 1 << 20, step: int | None = None) -> list[ServerSentEvent]:
    """Parse a stream that arrives in chunks of this many bytes."""
    stream = EventStream(limit)
    step = step or max(1, len(data))
    return [event for at in range(0, len(data), step) for event in stream.feed(data[at : at + step])]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [ServerSentEvent("message", b"a")]),
        (b"data:a\n\n", [ServerSentEvent("message", b"a")]),
        (b"data:  a\n\n", [ServerSentEvent("message", b" a")]),
        (b"data: a\ndata: b\n\n", [ServerSentEvent("message", b"a\nb")]),
        (b"event: endpoint\ndata: /m\n\n", [ServerSentEvent("endpoint", b"/m")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [ServerSentEvent("message", b"a"), ServerSentEvent("message", b"b")]),
        (b"data: a\r\rdata: b\r\r", [ServerSentEvent("message", b"a"), ServerSentEvent("message", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("message", b"a")]),
        (b": a comment\n\ndata: a\n\n", [ServerSentEvent("message", b"a")]),
        (b"event: x\n\ndata: a\n\n", [ServerSentEvent("message", b"a")]),
        (b"nonsense\nfoo: bar\ndata: \xff\n\n", [ServerSentEvent("message", b"\xff")]),
        (b"data\n\n", []),
        (b"data: half", []),
        (b"", []),
    ],
)
def test_a_stream_gives_its_events(stream: bytes, expected: list[ServerSentEvent]) -> None:
    assert parse_stream(stream) == expected
    assert parse_stream(stream, step=1) == expected


@examples(100)
@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=3), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.integers(1, 7),
)
def test_what_is_put_into_a_stream_comes_out_however_it_is_cut(
    events: list[list[bytes]], end: bytes, step: int
) -> None:
    lines = [[line.replace(b"\r", b"").replace(b"\n", b"") or b"x" for line in event] for event in events]
    data = b"".join(b"".join(b"data: %b%b" % (line, end) for line in event) + end for event in lines)

    assert [event.data for event in parse_stream(data, step=step)] == [b"\n".join(event) for event in lines]


def test_the_id_of_an_event_counts_once_the_event_is_whole() -> None:
    stream = EventStream(100)

    stream.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b")
    assert stream.last_id == b"1"

    stream.restart()
    assert stream.feed(b"data: c\n\n") == [ServerSentEvent("message", b"c")]
    assert stream.last_id == b"1"


def test_an_event_without_data_still_has_an_id() -> None:
    stream = EventStream(100)

    assert stream.feed(b"id: 7\ndata:\n\n") == []
    assert stream.last_id == b"7"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1500", 1.5), (b"0", 0.0), (b"soon", None), (b"-1", None), (b"9" * 30, None), (b"9" * 15, 3600.0)],
)
def test_retry_is_taken_when_it_is_a_number(value: bytes, seconds: float | None) -> None:
    stream = EventStream(100)

    stream.feed(b"retry: %b\n\n" % value)

    assert stream.retry_s == seconds


@pytest.mark.parametrize("data", [b"data: " + b"x" * 100_000, b"\n".join([b"data: " + b"x" * 60] * 2000)])
def test_an_event_over_the_bound_is_cut_and_the_next_one_is_whole(data: bytes) -> None:
    for step in (None, 1000):
        large, small = parse_stream(data + b"\n\ndata: a\n\n", limit=50_000, step=step)

        assert isinstance(large.data, Oversized)
        assert large.data.size > 50_000
        assert len(large.data) < 20_000
        assert small == ServerSentEvent("message", b"a")


def test_a_comment_that_never_ends_takes_no_memory() -> None:
    assert parse_stream(b": " + b"x" * 1_000_000 + b"\n\ndata: a\n\n", limit=1000, step=500) == [
        ServerSentEvent("message", b"a")
    ]


def test_what_stands_at_the_end_without_an_empty_line_can_be_had() -> None:
    stream = EventStream(100)
    stream.feed(b"data: a\ndata: b")

    assert stream.take_rest() == ServerSentEvent("message", b"a\nb")
    assert stream.take_rest() is None
