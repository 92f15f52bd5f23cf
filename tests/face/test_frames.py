"""What a window and its daemon say to each other comes out as it went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.face import frames
from tests.examples import examples


@examples(100)
@given(st.lists(st.binary(max_size=50)))
def test_packed_parts_come_out_as_they_went_in(parts: list[bytes]) -> None:
    assert frames.unpack(frames.pack(parts)) == parts


@examples(100)
@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=50)))
def test_packed_pairs_come_out_as_they_went_in(pairs: dict[bytes, bytes]) -> None:
    assert frames.unpack_pairs(frames.pack_pairs(pairs)) == pairs


@examples(100)
@given(st.binary(max_size=60))
def test_anything_else_is_refused_or_read_but_never_read_beyond_its_end(data: bytes) -> None:
    try:
        parts = frames.unpack(data)
    except ValueError:
        return
    assert frames.pack(parts) == data or sum(map(len, parts)) < len(data)


def test_a_name_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no value"):
        frames.unpack_pairs(frames.pack([b"a"]))


@examples(100)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=100), st.binary(max_size=20))
def test_a_frame_says_what_it_is_and_where_it_ends(number: int, payload: bytes, rest: bytes) -> None:
    data = b"xx" + frames.frame(frames.OUTPUT, number, payload) + rest

    kind, read, end = frames.header(data, 2)

    assert (kind, read) == (frames.OUTPUT, number)
    assert data[2 + frames.HEADER_BYTES : end] == payload
    assert data[end:] == rest
