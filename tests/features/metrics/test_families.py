"""However many names there are, a metric has a bounded number of label sets, and nothing is lost in its sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.metrics.families import (
    MAX_DISTRIBUTIONS,
    MAX_SERIES,
    OTHER,
    Definition,
    Histogram,
    MetricKind,
    Values,
)
from tests.examples import examples

CALLS = Definition("calls_total", MetricKind.COUNTER, "Calls.", ("group", "outcome"), frozenset(("group",)))
TIMES = Definition("time_seconds", MetricKind.HISTOGRAM, "Times.", ("group",), frozenset(("group",)), (0.1, 1.0))


def test_names_beyond_the_limit_become_other_and_the_other_labels_stay() -> None:
    calls = Values(CALLS)
    for number in range(MAX_SERIES + 500):
        calls.add((f"g{number}", "ok"))
    calls.add(("late", "failed"))

    assert calls.series[OTHER, "ok"] == 500
    assert calls.series[OTHER, "failed"] == 1
    assert calls.series["g7", "ok"] == 1
    assert len(calls.series) == MAX_SERIES + 2


def test_a_name_that_was_counted_before_the_limit_is_counted_by_name_after_it() -> None:
    calls = Values(CALLS, limit=1)
    for name in ("first", "second", "first"):
        calls.add((name, "ok"))

    assert calls.series == {("first", "ok"): 2, (OTHER, "ok"): 1}


def test_a_label_without_a_name_stays_empty() -> None:
    calls = Values(CALLS, limit=0)
    calls.add(("", "ok"))

    assert calls.series == {("", "ok"): 1}


def test_a_histogram_is_bounded_too() -> None:
    times = Histogram(TIMES)
    for number in range(2 * MAX_DISTRIBUTIONS):
        times.observe(0.5, (f"g{number}",))

    assert len(times.series) == MAX_DISTRIBUTIONS + 1
    assert sum(each.counts[1] for each in times.series.values()) == 2 * MAX_DISTRIBUTIONS


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    times = Histogram(TIMES)
    for value in (0.1, 0.100001, 1.0, 5.0):
        times.observe(value, ("a",))

    assert times.series["a",].counts == [1, 2, 1]
    assert times.series["a",].total == 0.1 + 0.100001 + 1.0 + 5.0


@examples(100)
@given(st.lists(st.tuples(st.text(), st.sampled_from(("ok", "failed")))), st.integers(0, 20))
def test_every_call_is_counted_once_whatever_the_names(calls: list[tuple[str, str]], limit: int) -> None:
    counted = Values(CALLS, limit=limit)
    for labels in calls:
        counted.add(labels)

    assert sum(counted.series.values()) == len(calls)
    assert len(counted.series) <= limit + 4  # both outcomes, of `_other` and of no name
