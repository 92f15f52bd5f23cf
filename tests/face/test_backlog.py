"""A window holds each line of its client until it is answered, however the bytes come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.face import backlog as backlog_module
from dynamic_mcp.face.backlog import Backlog
from tests.examples import examples

INPUT = st.binary(max_size=60).map(lambda data: data.replace(b"x", b"\n"))


def cut(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """Yield `data` in pieces, none of which is empty."""
    places = sorted({0, len(data), *(each % (len(data) + 1) for each in cuts)})
    yield from (data[start:end] for start, end in itertools.pairwise(places))


@examples(100)
@given(INPUT, st.lists(st.integers(0, 100)))
def test_lines_are_numbered_alike_however_they_come(data: bytes, cuts: list[int]) -> None:
    backlog = Backlog()
    for piece in cut(data, cuts):
        backlog.add(piece)

    *lines, rest = data.split(b"\n")
    assert backlog.unanswered == dict(enumerate(lines, 1))
    assert backlog.unread() == rest
    assert bool(backlog) == bool(data)


@examples(100)
@given(INPUT, INPUT, st.lists(st.integers(0, 100)), st.sets(st.integers(1, 60)))
def test_another_daemon_gets_what_is_unanswered_and_goes_on_after_it(
    before: bytes, after: bytes, cuts: list[int], answered: set[int]
) -> None:
    backlog = Backlog()
    backlog.add(before + b"y")  # something is always left unfinished
    for number in answered:
        backlog.unanswered.pop(number, None)
    interrupted = backlog.interrupted()
    unread = backlog.hand_over()
    for piece in cut(after + b"\n", cuts):
        backlog.add(piece)

    lines = (unread + after).split(b"\n")
    assert backlog.unanswered == dict(enumerate([*interrupted, *lines], 1))


@examples(100)
@given(INPUT, st.integers(0, 60))
def test_lines_that_a_stopped_daemon_has_not_taken_go_to_the_next_one(data: bytes, taken: int) -> None:
    backlog = Backlog()
    backlog.add(data + b"y")
    backlog.on_stop(taken)

    *lines, rest = (data + b"y").split(b"\n")
    assert backlog.interrupted() == lines[:taken]
    assert backlog.hand_over() == b"\n".join([*lines[taken:], rest])
    assert backlog.unanswered == dict(enumerate(lines, 1))


def test_a_last_line_without_an_end_is_ended_once() -> None:
    backlog = Backlog()
    backlog.add(b'{"a":')
    assert (backlog.end_line(), backlog.end_line()) == (b"\n", b"")
    assert backlog.unanswered == {1: b'{"a":'}


def test_a_last_line_that_comes_after_a_daemon_has_stopped_is_ended_for_the_next_one() -> None:
    backlog = Backlog()
    backlog.on_stop(0)
    backlog.add_untaken(b'{"a":')
    backlog.end_untaken_line()
    backlog.end_untaken_line()
    assert backlog.hand_over() == b'{"a":\n'
    assert backlog.unanswered == {1: b'{"a":'}


def test_of_a_line_that_never_ends_only_the_beginning_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "_MAX_UNFINISHED_BYTES", 100)
    backlog = Backlog()
    for _ in range(50):
        backlog.add(b"z" * 10)
    assert len(backlog.unread()) <= 110
    backlog.add(b"\nnext\n")
    assert [*backlog.unanswered] == [1, 2]
    assert backlog.unanswered[2] == b"next"


@examples(100)
@given(INPUT, INPUT, st.integers(0, 60), st.lists(st.integers(0, 100)))
def test_lines_that_come_after_a_daemon_has_stopped_go_to_the_next_one(
    before: bytes, after: bytes, taken: int, cuts: list[int]
) -> None:
    backlog = Backlog()
    for piece in cut(before, []):
        backlog.add(piece)
    backlog.on_stop(taken)
    interrupted = backlog.interrupted()
    for piece in cut(after, cuts):
        backlog.add_untaken(piece)

    assert backlog.interrupted() == interrupted
    *lines, rest = (before + after).split(b"\n")
    assert backlog.unread() == b"".join(line + b"\n" for line in lines[len(interrupted) :]) + rest


@examples(100)
@given(INPUT, INPUT, st.integers(0, 60))
def test_another_process_holds_the_same_lines(before: bytes, after: bytes, taken: int) -> None:
    backlog, restored = Backlog(), Backlog()
    for piece in cut(before, []):
        backlog.add(piece)
    backlog.on_stop(taken)
    restored.restore(backlog.interrupted(), backlog.unread())
    for each in (backlog, restored):
        each.add_untaken(after)
    assert restored.hand_over() == backlog.hand_over()
    assert restored.interrupted() == backlog.interrupted()
    assert restored.unread() == backlog.unread()
