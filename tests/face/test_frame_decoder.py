"""Frames come out of the bytes of a connection as they went in, however these are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.face import frames
from dynamic_mcp.face.daemon_connection import FrameDecoder
from tests.examples import examples

KINDS = st.sampled_from([frames.WELCOME, frames.OUTPUT, frames.KEEP, frames.STOP, frames.END])


@examples(100)
@given(st.lists(st.tuples(KINDS, st.binary(max_size=40)), max_size=6), st.lists(st.integers(0, 200), max_size=8))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(frames.frame(kind, number, payload) for number, (kind, payload) in enumerate(sent))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = FrameDecoder()

    taken = [frame for start, end in pairwise(places) for frame in decoder.feed(data[start:end])]

    assert taken == sent
