"""Trace contexts are read as W3C Trace Context says: what is not valid counts as none at all."""

from __future__ import annotations

import pytest

from dynamic_mcp.observe.trace_context import begin_span, begin_trace, parse_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_valid_context_is_handed_on_as_it_came() -> None:
    context = parse_context(f"00-{TRACE}-{SPAN}-01", "a=1, b=2")
    assert context is not None
    assert (context.trace_id, context.span_id, context.is_sampled) == (TRACE, SPAN, True)
    assert (context.parent, context.state) == (f"00-{TRACE}-{SPAN}-01", "a=1, b=2")


def test_a_context_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = parse_context(f"cc-{TRACE}-{SPAN}-ff-what-comes-later")
    assert context is not None
    assert context.parent == f"00-{TRACE}-{SPAN}-03"


@pytest.mark.parametrize(
    "text",
    [
        "",
        TRACE,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n00",
    ],
)
def test_what_is_no_context_is_none(text: str) -> None:
    assert parse_context(text) is None


@pytest.mark.parametrize("state", ["a=\n1", "a=é", "a" * 513])
def test_a_state_that_cannot_be_handed_on_is_dropped_and_the_context_is_kept(state: str) -> None:
    context = parse_context(f"00-{TRACE}-{SPAN}-00", state)
    assert context is not None
    assert (context.state, context.is_sampled) == ("", False)


def test_new_ids_are_valid() -> None:
    assert parse_context(f"00-{begin_trace()}-{begin_span()}-01") is not None
