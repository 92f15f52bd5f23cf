"""What a connection knows of its heads changes nothing of how they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.face.http.head_cache import HeadCache
from dynamic_mcp.face.http.parser import MessageParser, ParsedRequest, Peer
from dynamic_mcp.face.http.rules import HttpRefusal
from tests.examples import examples

PEER = Peer("127.0.0.1", is_secure=False)
HEAD = b"POST /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: %b\r\nAccept: */*\r\n\r\n"


def parse_alone(raw: bytes) -> ParsedRequest | int:
    try:
        return MessageParser().parse_head(raw, PEER)
    except HttpRefusal as refusal:
        return refusal.status


def parse_after(first: bytes, raw: bytes) -> ParsedRequest | int:
    cache = HeadCache(PEER)
    cache.parse(first)
    try:
        return cache.parse(raw)[0]
    except HttpRefusal as refusal:
        return refusal.status


@examples(100)
@given(st.text("0123456789 ,+-:x\t").map(str.encode))
@example(b"7")
@example(b"70")
@example(b"007")
@example(b"")
@example(b" 7 ")
@example(b"7, 7")
@example(b"+7")
@example(b"12345678901234567890")
@example(b"7\r\nContent-Length: 7")
@example(b"7\r\nContent-Length: 8")
@example(b"7\r\nTransfer-Encoding: chunked")
@example(b"7\r\nX-Content-Length: 8")
@example(b"7\r\nHost: there")
@example(b"7\r\n\r\n")
def test_a_head_with_another_length_is_read_as_if_it_were_the_first(length: bytes) -> None:
    raw = HEAD % length
    assert parse_after(HEAD % b"7", raw) == parse_alone(raw)
    assert parse_after(HEAD % b"123", raw) == parse_alone(raw)


@pytest.mark.parametrize("whole", [bytes, bytearray])
def test_a_known_head_is_found_before_its_body_and_not_before_it_is_complete(
    whole: Callable[[bytes], bytes | bytearray],
) -> None:
    cache, head = HeadCache(PEER), HEAD % b"12"
    first, _ = cache.parse(HEAD % b"7")

    assert cache.find(whole(HEAD % b"7" + b"{}")) == (first, len(HEAD % b"7"))
    assert cache.find(whole(head + b"\r\n\r\n")) == (parse_alone(head), len(head))
    assert [cache.find(whole(head[:end])) for end in range(len(head))] == [None] * len(head)


@pytest.mark.parametrize(
    "other",
    [
        HEAD.replace(b"/mcp", b"/sse") % b"7",
        HEAD.replace(b"here", b"there") % b"7",
        HEAD.replace(b"*/*", b"text/html") % b"7",
        HEAD.replace(b"Content-Length: %b", b"Transfer-Encoding: chunked"),
        HEAD.replace(b"Content-Length: %b\r\n", b""),
        HEAD.replace(b"1.1", b"1.0") % b"7",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
)
def test_another_head_is_not_taken_for_the_known_one(other: bytes) -> None:
    known = HEAD % b"7"
    assert parse_after(known, other) == parse_alone(other)
    assert parse_after(other, known) == parse_alone(known)


def test_a_chunked_body_has_a_parser_of_its_own_each_time() -> None:
    raw = HEAD.replace(b"Content-Length: %b", b"Transfer-Encoding: chunked")
    cache = HeadCache(PEER)
    (_, first), (_, second) = cache.parse(raw), cache.parse(raw)
    assert first is not None
    assert second is not None
    assert first is not second
