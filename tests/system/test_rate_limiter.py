"""So many times at once, and then again at a steady rate; each key for itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.system.rate_limiter import RateLimiter
from tests.examples import examples


def taken(limiter: RateLimiter[str], times: int, now: float, key: str = "a") -> int:
    return sum(limiter.take(key, now) for _ in range(times))


def test_a_burst_is_free_and_comes_back_one_by_one() -> None:
    limiter = RateLimiter[str](3, 0.5)
    assert [taken(limiter, 5, now) for now in (10.0, 10.4, 10.5, 11.0, 11.9)] == [3, 0, 1, 1, 1]
    assert taken(limiter, 5, 1000.0) == 3


def test_it_says_how_long_to_wait() -> None:
    limiter = RateLimiter[str](2, 10.0)
    assert limiter.wait_s("a", 0.0) == 0.0
    taken(limiter, 2, 0.0)
    assert round(limiter.wait_s("a", 4.0), 3) == 6.0
    assert limiter.take("a", 4.0 + limiter.wait_s("a", 4.0))


def test_keys_do_not_count_for_each_other() -> None:
    limiter = RateLimiter[str](1, 1.0)
    assert (taken(limiter, 2, 0.0, "a"), taken(limiter, 2, 0.0, "b")) == (1, 1)


def test_of_too_many_keys_the_one_that_came_longest_ago_is_forgotten() -> None:
    limiter = RateLimiter[str](1, 1000.0, most_keys=2)
    for key in ("a", "b", "a", "c"):
        limiter.take(key, 0.0)
    assert [limiter.wait_s(key, 0.0) > 0 for key in ("a", "b", "c")] == [True, False, True]


@examples(200)
@given(st.integers(1, 20), st.floats(0.01, 100), st.lists(st.floats(0, 50), max_size=60))
def test_no_more_is_had_than_the_burst_and_what_has_come_back(
    burst: int, interval_s: float, pauses: list[float]
) -> None:
    limiter, now, had = RateLimiter[str](burst, interval_s), 0.0, 0
    for pause in pauses:
        now += pause
        had += limiter.take("a", now)
    assert had <= burst + now / interval_s + 1e-6
