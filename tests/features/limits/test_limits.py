"""Token buckets hold what their rules say, whatever comes and whenever."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.limits.config import Counted, Limit
from dynamic_mcp.features.limits.limits import Buckets, CountNames, LimitRules, RateLimit, RateRefusal
from tests.examples import examples

LIMITS = st.builds(
    Limit,
    id=st.just("limits[0]"),
    per=st.sampled_from([(), ("person",), ("tool",), ("person", "tool")]),
    rate=st.sampled_from([0.001, 0.5, 1.0, 3.0, 1000.0]),
    burst=st.integers(1, 20),
)
PAUSES = st.one_of(st.just(0.0), st.floats(0, 5), st.floats(0, 5000))
CALLS = st.lists(st.tuples(PAUSES, st.sampled_from("pq"), st.sampled_from("xy")), max_size=60)
EVERYTHING = Limit("limits[0]", rate=1.0, burst=2)


def rates(*limits: Limit, tool: str = "x") -> Sequence[RateLimit]:
    """Return what these limits, in a config of one server, say of a tool."""
    return LimitRules(limits, "up").rates_for(tool)


def take(
    buckets: Buckets, limits: Sequence[RateLimit], person: Hashable, tool: str, now: float
) -> RateRefusal | None:
    return buckets.take(limits, CountNames(limits, tool).find(person), now)


@examples(100)
@given(LIMITS, CALLS)
def test_no_span_of_time_has_more_calls_than_the_burst_and_what_came_in_it(
    limit: Limit, calls: list[tuple[float, str, str]]
) -> None:
    assert limit.rate is not None
    buckets, compiled, now = Buckets(), LimitRules([limit], "up"), 1000.0
    taken: dict[tuple[str, str], list[float]] = {}
    for pause, person, tool in calls:
        now += pause
        if take(buckets, compiled.rates_for(tool), person, tool, now) is None:
            key = (person if limit.per_person else "", tool if limit.per_tool else "")
            taken.setdefault(key, []).append(now)

    for times in taken.values():
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= limit.capacity + (times[last] - start) * limit.rate + 1e-6


@examples(100)
@given(LIMITS, CALLS)
def test_a_refused_call_is_taken_after_the_wait_that_is_said_and_not_before(
    limit: Limit, calls: list[tuple[float, str, str]]
) -> None:
    buckets, compiled, now = Buckets(), LimitRules([limit], "up"), 1000.0
    for pause, person, tool in calls:
        now += pause
        refusal = take(buckets, compiled.rates_for(tool), person, tool, now)
        if refusal is None:
            continue
        too_early = now + refusal.wait_s * 0.99
        assert take(buckets, compiled.rates_for(tool), person, tool, too_early) is not None
        now += refusal.wait_s
        assert take(buckets, compiled.rates_for(tool), person, tool, now) is None


@examples(100)
@given(st.lists(LIMITS, min_size=1, max_size=4), CALLS)
def test_several_limits_refuse_what_any_of_them_would_and_then_none_of_them_counts_it(
    limits: list[Limit], calls: list[tuple[float, str, str]]
) -> None:
    buckets, compiled, now = Buckets(), LimitRules(limits, "up"), 1000.0
    taken: list[tuple[float, str, str]] = []
    for pause, person, tool in calls:
        now += pause
        refusal = take(buckets, compiled.rates_for(tool), person, tool, now)
        alone = [take(_replay(rate, taken), [rate], person, tool, now) for rate in compiled.rates_for(tool)]
        waits = [each.wait_s for each in alone if each is not None]
        assert (None if refusal is None else refusal.wait_s) == max(waits, default=None)
        if refusal is None:
            taken.append((now, person, tool))


def _replay(rate: RateLimit, taken: list[tuple[float, str, str]]) -> Buckets:
    """Return the buckets of one rule after the calls that were taken."""
    buckets = Buckets()
    for at, person, tool in taken:
        assert take(buckets, [rate], person, tool, at) is None
    return buckets


def test_a_bucket_is_for_what_the_rule_counts_for_itself() -> None:
    def second_calls(*per: Counted) -> list[bool]:
        found = rates(Limit("limits[0]", per=per, rate=1.0, burst=1))
        others = (("ann", "x"), ("ann", "y"), ("bob", "x"), ("bob", "y"))
        return [is_taken_after_ann(found, person, tool) for person, tool in others]

    def is_taken_after_ann(found: Sequence[RateLimit], person: str, tool: str) -> bool:
        buckets = Buckets()
        take(buckets, found, "ann", "x", 0)
        return take(buckets, found, person, tool, 0) is None

    assert second_calls() == [False, False, False, False]
    assert second_calls("tool") == [False, True, False, True]
    assert second_calls("person") == [False, False, True, True]
    assert second_calls("person", "tool") == [False, True, True, True]


def test_a_rule_is_the_same_wherever_it_stands_and_another_one_with_other_numbers() -> None:
    buckets = Buckets()
    assert take(buckets, rates(EVERYTHING), "p", "x", 0) is None
    assert take(buckets, rates(EVERYTHING), "p", "x", 0) is None
    moved = Limit("limits[7]", rate=1.0, burst=2)
    assert take(buckets, rates(moved), "p", "x", 0) is not None
    assert take(buckets, rates(Limit("limits[0]", rate=1.0, burst=3)), "p", "x", 0) is None
    assert take(buckets, LimitRules([EVERYTHING], "other server").rates_for("x"), "p", "x", 0) is None


def test_a_rule_that_stands_twice_counts_once() -> None:
    buckets = Buckets()
    twice = rates(EVERYTHING, EVERYTHING)
    assert [take(buckets, twice, "p", "x", 0) is None for _ in range(3)] == [True, True, False]


def test_many_persons_take_bounded_memory_and_the_one_who_called_most_is_not_forgotten() -> None:
    found = rates(Limit("limits[0]", per=("person",), rate=0.01, burst=5))
    buckets = Buckets(size=100)
    for _ in range(5):
        assert take(buckets, found, "greedy", "x", 0) is None
    for number in range(10_000):
        take(buckets, found, number, "x", 0)
        assert len(buckets) <= 101
    assert take(buckets, found, "greedy", "x", 0) is not None


def test_buckets_that_are_full_again_are_forgotten_first() -> None:
    found = rates(Limit("limits[0]", per=("person",), rate=1.0, burst=1))
    buckets = Buckets(size=100)
    for number in range(100):
        take(buckets, found, number, "x", 0)
    take(buckets, found, "late", "x", 10)
    assert len(buckets) == 1


def test_a_made_up_name_of_megabytes_is_not_kept_and_counts_all_the_same() -> None:
    limits, buckets = LimitRules([Limit("limits[0]", per=("tool",), rate=1.0, burst=1)], "up"), Buckets()
    long, other = "a" * 1_000_000, "a" * 1_000_000 + "b"
    assert take(buckets, limits.rates_for(long), "p", long, 0) is None
    assert take(buckets, limits.rates_for(long), "p", long, 0) is not None
    assert take(buckets, limits.rates_for(other), "p", other, 0) is None
    assert len(repr(limits.rates_for(long)[0].name_for("p", long))) < 1000


def test_names_that_a_server_may_take_for_one_tool_count_as_one() -> None:
    limits, buckets = (
        LimitRules([Limit("limits[0]", tools=("get_*",), per=("tool",), rate=1.0, burst=1)], "up"),
        Buckets(),
    )
    assert take(buckets, limits.rates_for("get_x"), "p", "get_x", 0) is None
    for name in ("GET_x", "get_X ", "ｇet_x"):  # noqa: RUF001 - of another width
        assert take(buckets, limits.rates_for(name), "p", name, 0) is not None


@pytest.mark.parametrize(("tool", "matches"), [("get_x", True), ("get_", True), ("set_x", False)])
def test_only_the_tools_of_a_rule_are_bounded(tool: str, matches: bool) -> None:
    limits = LimitRules([Limit("limits[0]", tools=("get_*",), rate=1.0, concurrent=2)], "up")
    assert bool(limits.rates_for(tool)) is matches
    assert bool(limits.concurrency_for(tool)) is matches


def test_of_rules_for_the_same_places_the_smallest_counts_and_the_narrowest_come_first() -> None:
    limits = LimitRules(
        [
            Limit("limits[0]", concurrent=8),
            Limit("limits[1]", per=("person",), concurrent=2),
            Limit("limits[2]", concurrent=4),
            Limit("limits[3]", per=("person", "tool"), concurrent=1),
        ],
        "up",
    )
    assert [room.id for room in limits.concurrency_for("x")] == ["limits[3]", "limits[1]", "limits[2]"]
