"""The text says to Prometheus' own parser what was counted, in both formats and whatever the names are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.metrics.exposition import Form, join, negotiate, render
from dynamic_mcp.features.metrics.families import Definition, Histogram, MetricKind, Values
from tests.examples import examples
from tests.features.metrics.readers import read_families, sample, samples_of

CALLS = Definition(
    "calls_total", MetricKind.COUNTER, 'Calls of "this\\\nserver".', ("group", "tool"), frozenset(("tool",))
)
LOAD = Definition("load", MetricKind.GAUGE, "Load.")
TIMES = Definition("time_seconds", MetricKind.HISTOGRAM, "Times.", ("tool",), frozenset(("tool",)), (0.1, 1.0, 10.0))
FORMS = pytest.mark.parametrize("form", Form)
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def counted(*calls: tuple[str, str]) -> Values:
    family = Values(CALLS)
    for labels in calls:
        family.add(labels)
    return family


@FORMS
@examples(100)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))))
def test_every_label_comes_back_as_it_was(form: Form, calls: list[tuple[str, str]]) -> None:
    [*families] = read_families(render([counted(*calls)], form).decode(), form)

    read = {
        (each.labels.get("group", ""), each.labels.get("tool", "")): each.value
        for f in families
        for each in f.samples
    }
    assert read == {labels: calls.count(labels) for labels in calls}


@FORMS
@examples(100)
@given(st.text(st.characters()))
def test_any_text_is_a_label_even_one_that_is_no_unicode(form: Form, name: str) -> None:
    text = render([counted(("a", name), ("a", "other"))], form)

    assert len(text.decode().strip("\n").split("\n")) == 4 + (form is Form.OPEN_METRICS)
    assert samples_of([counted(("a", name), ("b", "other"))], form)


@FORMS
def test_the_description_is_escaped(form: Form) -> None:
    [family] = read_families(render([counted(("a", "b"))], form).decode(), form)

    assert family.documentation == CALLS.description
    assert family.type == "counter"


@FORMS
def test_buckets_are_cumulative_and_end_with_all(form: Form) -> None:
    times = Histogram(TIMES)
    for value in (0.05, 0.5, 0.5, 5.0, 50.0):
        times.observe(value, ("a",))
    samples = samples_of([times], form)

    counts = [sample(samples, "time_seconds_bucket", tool="a", le=bound) for bound in ("0.1", "1.0", "10.0", "+Inf")]
    assert counts == [1, 3, 4, 5]
    assert sample(samples, "time_seconds_count", tool="a") == 5
    assert sample(samples, "time_seconds_sum", tool="a") == pytest.approx(56.05)


@FORMS
@pytest.mark.parametrize("value", [0, 1, -1, 1e300, 1e-7, 0.1, math.inf, -math.inf, math.nan, 2**70])
def test_every_number_is_read_as_it_is(form: Form, value: float) -> None:
    load = Values(LOAD)
    load.set(value)
    [read] = samples_of([load], form).values()

    assert read == value or (math.isnan(read) and math.isnan(value))


@FORMS
def test_what_has_no_value_is_left_out(form: Form) -> None:
    assert read_families(render([Values(CALLS), Histogram(TIMES)], form).decode(), form) == []


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.PROMETHEUS),
        ("*/*", Form.PROMETHEUS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Form.PROMETHEUS),
        ("text/plain;version=0.0.4", Form.PROMETHEUS),
        ("application/openmetrics-text", Form.OPEN_METRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", Form.OPEN_METRICS),
        ("application/openmetrics-text;version=2.0.0", Form.PROMETHEUS),
        ("application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.9", Form.PROMETHEUS),
        (PROMETHEUS_2, Form.OPEN_METRICS),
        (PROMETHEUS_3, Form.OPEN_METRICS),
        (";;q=,,=;application/openmetrics-text;q=many", Form.PROMETHEUS),
    ],
)
def test_a_reader_gets_the_format_that_it_prefers(accept: str, form: Form) -> None:
    assert negotiate(accept) is form


@FORMS
def test_the_metrics_of_several_processes_are_one_text_with_a_label_of_each(form: Form) -> None:
    times = Histogram(TIMES)
    times.observe(0.5, ("a{ b",))
    load = Values(LOAD)
    load.set(3)
    texts = {
        "w0": render([counted(("a", 'x" {} y'), ("", "")), load], form).decode(),
        "w1": render([counted(("a", "z")), times], form).decode(),
    }
    families = [*read_families(join(texts, "worker", form).decode(), form)]
    found = {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}
    assert len(families) == 3
    assert found["calls_total", ("group", "a"), ("tool", 'x" {} y'), ("worker", "w0")] == 1
    assert found["calls_total", ("worker", "w0")] == 1
    assert found["calls_total", ("group", "a"), ("tool", "z"), ("worker", "w1")] == 1
    assert found["load", ("worker", "w0")] == 3
    assert found["time_seconds_sum", ("tool", "a{ b"), ("worker", "w1")] == 0.5
