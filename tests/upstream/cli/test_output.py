"""What a program writes, within a limit and fit to be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.upstream.cli.output import Output, clean


def output(*chunks: bytes, limit: int = 1000) -> Output:
    made = Output(limit)
    for chunk in chunks:
        made.feed(chunk)
    return made


def test_what_is_within_the_limit_stays_whole() -> None:
    made = output(b"a" * 600, b"b" * 400)

    assert made.text() == "a" * 600 + "b" * 400
    assert not made.is_cut


def test_of_more_both_ends_are_kept_with_what_is_missing() -> None:
    made = output(b"begin" + b"x" * 5000, b"y" * 5000 + b"end")

    text = made.text()
    assert made.is_cut
    assert text.startswith("beginx")
    assert text.endswith("yend")
    assert "… (9008 bytes left out) …" in text


def test_a_cut_does_not_break_a_character() -> None:
    for shift in range(4):
        text = output(b"a" * shift + "€".encode() * 2000).text()
        assert "\ufffd" not in text


@given(chunks=st.lists(st.binary(max_size=3000), max_size=8), limit=st.integers(1000, 3000))
def test_no_more_is_kept_than_the_limit_whatever_comes(chunks: list[bytes], limit: int) -> None:
    made = output(*chunks, limit=limit)

    assert made.size == sum(map(len, chunks))
    assert made.is_cut == (made.size > limit)
    assert len(made.text()) <= limit + 50


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b(Bx\x1b=", "x"),
        (b"a\tb\r\nc", "a\tb\r\nc"),
        (b"\x00\x07\x7f", "\ufffd" * 3),
        ("\x9b31mred\x85".encode(), "\ufffd31mred\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("ü 日本".encode(), "ü 日本"),
    ],
)
def test_what_is_meant_for_a_terminal_is_taken_out(data: bytes, text: str) -> None:
    assert clean(data) == text
