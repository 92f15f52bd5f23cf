"""The checker on histories of streams that are written by hand: it finds what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.history.checker import Rule
from tests.history.record import Came, Nonce, answers
from tests.history.story import LOG, ONE, PROGRESS, Story

OWN, LISTENING = answers(ONE.number), "GET 1"
SECOND = Nonce("one", 2)


def _story(*streams: str, ids: tuple[str, str, str] = ("1", "2", "3")) -> Story:
    """Return a history of a call whose progress, log line and answer come on these streams, with these ids."""
    progress, log, answer = (Came(stream, 0, id) for stream, id in zip(streams, ids, strict=True))
    story = Story().asks(ONE, token=1, steps=1, logs=1)
    story.gets("one", progress, method=PROGRESS, params={"progressToken": 1, "progress": 1, "message": str(ONE)})
    story.gets("one", log, method=LOG, params={"data": str(ONE)})
    return story.gets("one", answer, id=1, result={"a": str(ONE)})


def test_what_a_request_causes_comes_on_its_stream_and_what_it_logs_may_come_on_another() -> None:
    assert _story(OWN, OWN, OWN).rules == []
    for stream in (LISTENING, answers(2)):
        assert _story(OWN, stream, OWN).rules == []


WRONG: dict[str, tuple[Story, Rule]] = {
    "an answer on a stream that the client has opened": (_story(OWN, OWN, LISTENING), Rule.WRONG_STREAM),
    "an answer on the stream of another request": (_story(OWN, OWN, answers(2)), Rule.WRONG_STREAM),
    "progress on a stream that the client has opened": (_story(LISTENING, OWN, OWN), Rule.WRONG_STREAM),
    "an event that came before": (_story(OWN, OWN, OWN, ids=("1", "2", "2")), Rule.EVENT_TWICE),
    "an event on two streams": (_story(OWN, LISTENING, OWN, ids=("1", "1", "2")), Rule.EVENT_TWICE),
    "a message on two streams": (
        _story(OWN, OWN, OWN).gets("one", Came(LISTENING, 0, "9"), method=LOG, params={"data": str(ONE)}),
        Rule.TWICE,
    ),
    "a message on a stream whose answer has come": (
        _story(OWN, LISTENING, OWN).asks(SECOND).gets("one", Came(OWN, 1, "9"), method="x").is_answered(SECOND),
        Rule.WRONG_STREAM,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_breach_is_found_and_nothing_else(what: str) -> None:
    story, rule = WRONG[what]
    assert story.rules == [rule]
