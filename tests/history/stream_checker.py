"""Judges on which streams the messages of one session came, where it has streams."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.record import Came
from tests.history.violations import Rule

Found = Iterator[tuple[Rule, str]]


class Streams:
    """The streams of one session so far."""

    def __init__(self) -> None:
        self._ids: dict[str, Came] = {}
        self._done: set[str] = set()

    def take(self, came: Came, shown: str, *, own: str, is_answer: bool) -> Found:
        """Judge a message. `own` is the one stream on which it may come, if there is only one.

        Nothing says about which of a client's calls a server logs or asks over stdio.
        """
        if came.id and came.id in self._ids:
            yield Rule.EVENT_TWICE, f"`{came.id}` on {_show(self._ids[came.id])} and on {_show(came)}: {shown}"
        self._ids[came.id] = came
        if came.stream in self._done:
            yield Rule.WRONG_STREAM, f"on {_show(came)} after its answer: {shown}"
        elif own and came.stream != own:
            yield Rule.WRONG_STREAM, f"on {_show(came)}, not on {own}: {shown}"
        if is_answer:
            self._done.add(came.stream)


def _show(came: Came) -> str:
    return f"`{came.stream}`, connection {came.connection}"
