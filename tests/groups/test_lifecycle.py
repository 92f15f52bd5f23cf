"""Delays grow, stay within their bounds, and never end."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamic_mcp.system.clock import LoopClock, delays


@pytest.mark.parametrize(
    ("first_s", "longest_s", "expected"),
    [
        (2.0, 8.0, [2, 4, 8, 8, 8]),
        (30.0, 300.0, [30, 60, 120, 240, 300, 300]),
        (5.0, 5.0, [5, 5, 5]),
    ],
)
def test_each_delay_is_twice_the_one_before_up_to_the_longest(
    first_s: float, longest_s: float, expected: list[float]
) -> None:
    without_jitter = delays(first_s, longest_s, lambda: 0.5)

    assert list(islice(without_jitter, len(expected))) == expected


@settings(deadline=None)
@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_jitter_moves_a_delay_by_a_fifth_at_most(jitters: list[float]) -> None:
    source, steady = iter(jitters), delays(2, 8, lambda: 0.5)

    for delay_s, expected_s in zip(islice(delays(2, 8, lambda: next(source)), len(jitters)), steady, strict=False):
        assert 0.8 * expected_s <= delay_s <= 1.2 * expected_s


async def test_the_clock_of_the_loop_only_goes_on() -> None:
    clock = LoopClock()
    before = clock.now()

    await clock.sleep(0)

    assert before <= clock.now() <= asyncio.get_running_loop().time()
