"""Judges on which streams the messages of one session came, where it has streams."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.history.record import Came, answers
from tests.history.violations import Rule

Found = Iterator[tuple[Rule, str]]
_OF_REQUESTS = answers(0).partition(" ")[0]


class Streams:
    """The streams of one session so far."""

    def __init__(self) -> None:
        self._ids: dict[str, Came] = {}
        self._done: set[str] = set()

    def take(self, came: Came, shown: str, *, about: Collection[str], must_be_one: bool, is_answer: bool) -> Found:
        """Judge a message that is about the requests that these streams answer.

        One that `must_be_one` comes on the stream of its request; others may come on one that the client has opened.
        """
        if came.id and came.id in self._ids:
            yield Rule.EVENT_TWICE, f"`{came.id}` on {_show(self._ids[came.id])} and on {_show(came)}: {shown}"
        self._ids[came.id] = came
        is_of_request = came.stream.startswith(_OF_REQUESTS)
        if came.stream in self._done:
            yield Rule.WRONG_STREAM, f"on {_show(came)} after its answer: {shown}"
        elif came.stream not in about and (must_be_one or (about and is_of_request)):
            yield Rule.WRONG_STREAM, f"on {_show(came)}, not on {' or '.join(about)}: {shown}"
        if is_answer and is_of_request:
            self._done.add(came.stream)


def _show(came: Came) -> str:
    return f"`{came.stream}`, connection {came.connection}"
