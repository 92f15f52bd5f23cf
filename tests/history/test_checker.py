"""The checker on histories that are written by hand: it finds the one thing that is wrong, and else nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.checker import UI, Rule, judge, show
from tests.history.record import ABRUPTLY, INPUT_ENDED, Event, Expect, Json, Kind, Nonce, Operation
from tests.history.story import ONE, PROGRESS, TWO, Story, message


def _good() -> Story:
    """Return a history with a bit of everything, in which nothing is wrong."""
    story = Story().asks(ONE, token=1, logs=1).asks(TWO, token=1)
    for nonce in (ONE, TWO):
        params = {"progressToken": 1, "progress": 1, "message": str(nonce)}
        story.gets(nonce.session, method=PROGRESS, params=params)
    story.gets("one", method="notifications/message", params={"data": str(ONE)})
    story.upstream_asks(1, TWO).gets("two", id=1, method="roots/list", params={"n": str(TWO)})
    story.sends("two", id=1, result={"roots": [str(TWO)]}).upstream_gets(id=1, result={"roots": [str(TWO)]})
    return story.is_answered(ONE).is_answered(TWO)


def _interrupted(*, is_withdrawn: bool) -> Story:
    """Return a history in which a daemon dies while it asks; another one answers, and serves the next request."""
    question: Json = {"id": 1, "method": "roots/list", "params": {"n": str(ONE)}}
    story = Story().asks(ONE).gets("one", **question).kills()
    if is_withdrawn:
        story.gets("one", method="notifications/cancelled", params={"requestId": 1})
    story.is_interrupted(ONE)
    ping = Operation(Nonce("one", 2), "ping", Expect.RESULT)
    story.events.append(Event("one", Kind.SENT, message(id=2, method="ping"), ping))
    return story.gets("one", id=2, result={})


def _subscribed() -> Story:
    nonce = Nonce("one", 2)
    story = Story().asks(nonce, method="resources/subscribe", params={"uri": "a://x"}, expect=Expect.RESULT)
    return story.is_answered(nonce, {})


def _app(*, reads: str) -> Story:
    """Return a story of a client that shows apps, reads a page of this server, and calls what is for apps of `up`."""
    capabilities: Json = {"extensions": {UI: {}}}
    story = Story().sends("one", id=0, method="initialize", params={"capabilities": capabilities})
    facts: Json = {"method": "resources/read", "params": {"uri": "ui://x"}, "origins": (reads,)}
    story.asks(ONE, **facts).is_answered(ONE, _page(ONE, "ui://x", reads))
    call = Nonce("one", 2)
    return story.asks(call, params={"name": "refresh"}).is_answered(call)


def _page(nonce: Nonce, uri: str, server: str) -> Json:
    return {"contents": [{"uri": uri, "text": f"origin-{server}-"}], "_meta": {"nonce": str(nonce)}}


def _read(result: Json) -> Story:
    """Return a story of a page of server `a` that is read, and answered so."""
    story = Story().asks(ONE, method="resources/read", params={"uri": "ui://x"}, origins=("a",))
    return story.is_answered(ONE, result)


def _skills(*listed: tuple[str, str], **members: Json) -> Story:
    """Return a story of a list of the skills of servers `a` and `b`: these servers, and their URIs."""
    entries = [{"uri": uri, "about": f"origin-{server}-"} for server, uri in listed]
    story = Story().asks(ONE, method="skills/list", origins=("a", "b"), expect=Expect.RESULT)
    return story.is_answered(ONE, {"skills": entries, **members})


def _with_task() -> Story:
    story = Story().asks(ONE, params={"task": {}})
    return story.is_answered(ONE, {"task": {"taskId": "t", "statusMessage": str(ONE)}})


def _common(*askable: str) -> Json:
    """Return how an upstream is greeted for clients of several names, which can be asked this."""
    return {"clientInfo": {"name": "dynamic-mcp"}, "capabilities": {each: {} for each in askable}}


def _errors(*texts: str) -> Story:
    """Return a story of two requests for what is not there, the second one for what another session has."""
    story = Story()
    for number, text in enumerate(texts, 1):
        nonce, subject = Nonce("one", number), f"subject-{number}"
        twin = Nonce("one", 1) if number == 2 else None
        story.asks(nonce, method="tasks/get", expect=Expect.ERROR, subject=subject, twin=twin)
        story.gets("one", id=number, error={"message": text.replace("SUBJECT", subject)})
    return story


def test_an_upstream_that_is_greeted_for_several_clients_may_be_called_for_each() -> None:
    story = Story().sends("one", id=0, method="initialize", params={"capabilities": {"roots": {}, "tasks": {}}})
    story.upstream_gets(id=0, method="initialize", params=_common("roots", "sampling"))

    assert story.asks(ONE).asks(TWO).is_answered(ONE).is_answered(TWO).rules == []


def test_nothing_is_wrong_with_a_good_history() -> None:
    for story in (_good(), _good().closes("one").closes("two"), _errors("no SUBJECT", "no SUBJECT")):
        assert story.rules == []


def _sent_to_the_next() -> Story:
    story = Story().asks(ONE).kills().is_interrupted(ONE)
    hello = message(id=0, method="initialize", params={"clientInfo": {"name": "client"}})
    again = message(id=1, method="tools/call", params={"_meta": {"nonce": str(ONE)}})
    story.events += [Event("next", Kind.GOT, line) for line in (hello, again)]
    story.events.append(Event("next", Kind.CLOSED))
    return story


def _outlives() -> Story:
    story = _good()
    story.events.append(Event("daemon", Kind.KILLED))
    return story


def _heard_of_late(parent: int) -> Story:
    """Return a history in which an upstream of this process is heard of only after the death of daemon 7."""
    story = Story().asks(ONE).sends("one", method="notifications/cancelled", params={"requestId": 1})
    upstream = [event for event in story.events if event.party == "up"]
    others = [event for event in story.events if event.party != "up"]
    late = [replace(event, party=f"up of {parent}") for event in (*upstream, Event("up", Kind.CLOSED))]
    story.events = [*others, Event("daemon 7", Kind.KILLED), *late]
    return story


def test_a_list_may_lack_a_server_that_it_says_is_missing_and_an_app_may_call_its_own_server() -> None:
    assert _skills(("a", "x"), _meta={"dynamic-mcp/missing": {"b": "not connected yet"}}).rules == []
    assert _skills(("a", "x"), ("b", "y")).rules == []
    assert _read(_page(ONE, "ui://x", "a")).rules == []
    assert _app(reads="up").rules == []


def test_an_upstream_of_a_dead_daemon_need_not_have_heard_all() -> None:
    assert _heard_of_late(7).rules == []
    assert _heard_of_late(8).rules == [Rule.NOT_CANCELLED]


def _two_in_one() -> Story:
    story = _good()
    story.events.append(Event("one", Kind.GOT, b'{"jsonrpc":{"jsonrpc":"2.0"}'))
    return story


WRONG: dict[str, tuple[Story, Rule]] = {
    "an answer of another session": (Story().asks(ONE).is_answered(ONE, {"a": f"{ONE} {TWO}"}), Rule.FOREIGN),
    "an answer of another request": (
        Story().asks(ONE).asks(Nonce("one", 2)).is_answered(ONE).is_answered(Nonce("one", 2), {"a": str(ONE)}),
        Rule.ANSWER,
    ),
    "an answer to nothing": (_good().gets("one", id=99, result={}), Rule.ANSWER),
    "an answer twice": (_good().gets("one", id=1, result={"a": str(ONE)}), Rule.ANSWER),
    "an error where a result must be": (Story().asks(ONE).gets("one", id=1, error={}), Rule.ANSWER),
    "a tool's error where a result must be": (
        Story().asks(ONE).gets("one", id=1, result={"isError": True, "a": str(ONE)}),
        Rule.ANSWER,
    ),
    "a result where an error must be": (Story().asks(ONE, expect=Expect.ERROR).is_answered(ONE), Rule.ANSWER),
    "no answer": (Story().asks(ONE), Rule.UNANSWERED),
    "a lost log line": (Story().asks(ONE, logs=1).is_answered(ONE), Rule.LOST_LOG),
    "lost progress": (Story().asks(ONE, token=1, steps=1).is_answered(ONE), Rule.LOST_PROGRESS),
    "progress twice": (
        Story()
        .asks(ONE, token=1)
        .gets("one", method=PROGRESS, params={"progressToken": 1, "progress": 1, "message": str(ONE)})
        .gets("one", method=PROGRESS, params={"progressToken": 1, "progress": 1, "message": str(ONE)})
        .is_answered(ONE),
        Rule.TWICE,
    ),
    "a log line twice": (
        _good().gets("one", method="notifications/message", params={"data": str(ONE)}),
        Rule.TWICE,
    ),
    "progress after the answer": (
        _good().gets("one", method=PROGRESS, params={"progressToken": 1, "progress": 2, "message": str(ONE)}),
        Rule.TOKEN,
    ),
    "progress with no token of its own": (
        Story().asks(ONE).gets("one", method=PROGRESS, params={"progressToken": 7}).is_answered(ONE),
        Rule.TOKEN,
    ),
    "progress of another request": (
        Story()
        .asks(ONE, token=1)
        .gets("one", method=PROGRESS, params={"progressToken": 1, "message": "nonce-one-2-"})
        .is_answered(ONE),
        Rule.TOKEN,
    ),
    "a question for no call": (
        Story().gets("one", id=1, method="roots/list", params={"n": str(ONE)}),
        Rule.QUESTION_WITHOUT_CALL,
    ),
    "a question's id twice": (
        Story()
        .asks(ONE)
        .gets("one", id=1, method="roots/list", params={"n": str(ONE)})
        .gets("one", id=1, method="roots/list", params={"n": str(ONE)})
        .is_answered(ONE),
        Rule.QUESTION_ID,
    ),
    "a question withdrawn that was not asked": (
        Story().gets("one", method="notifications/cancelled", params={"requestId": 1}),
        Rule.CANCELLED_UNASKED,
    ),
    "an update that nobody wanted": (
        _subscribed().gets("two", method="notifications/resources/updated", params={"uri": "a://x"}),
        Rule.NOT_SUBSCRIBED,
    ),
    "the status of an unknown task": (
        _with_task().gets("two", method="notifications/tasks/status", params={"taskId": "t"}),
        Rule.TASK,
    ),
    "a task that somebody else cancelled": (
        _with_task().gets(
            "one",
            method="notifications/tasks/status",
            params={"taskId": "t", "status": "cancelled", "statusMessage": str(ONE)},
        ),
        Rule.TASK,
    ),
    "an error that tells": (_errors("no SUBJECT", "SUBJECT is not yours"), Rule.TELLTALE),
    "a line after the end": (
        _good().closes("one").gets("one", method="notifications/tools/list_changed"),
        Rule.AFTER_CLOSE,
    ),
    "a call on an upstream that greeted another client": (
        Story()
        .upstream_gets(id=0, method="initialize", params={"clientInfo": {"name": "x"}})
        .asks(ONE)
        .is_answered(ONE),
        Rule.GREETING,
    ),
    "a call on an upstream that greeted several without what this one can be asked": (
        Story()
        .sends("one", id=0, method="initialize", params={"capabilities": {"sampling": {}, "roots": {}}})
        .upstream_gets(id=0, method="initialize", params=_common("roots"))
        .asks(ONE)
        .is_answered(ONE),
        Rule.GREETING,
    ),
    "a page of another server": (_read(_page(ONE, "ui://x", "b")), Rule.ORIGIN),
    "a page of two servers": (_read(_page(ONE, "ui://x", "a-origin-b")), Rule.ORIGIN),
    "a page of no server": (_read({"text": str(ONE)}), Rule.ORIGIN),
    "another page": (_read(_page(ONE, "ui://y", "a")), Rule.ORIGIN),
    "a list without a server": (_skills(("a", "x")), Rule.ORIGIN),
    "a list with a skill twice": (_skills(("a", "x"), ("b", "y"), ("b", "z")), Rule.ORIGIN),
    "a list with two skills of one URI": (_skills(("a", "x"), ("b", "x")), Rule.TWICE),
    "a call for an app of another server": (_app(reads="b"), Rule.NOT_OPENED),
    "a call for an app by a client that shows none": (
        Story().asks(ONE, params={"name": "refresh"}).is_answered(ONE),
        Rule.NOT_OPENED,
    ),
    "a reply of another client": (
        Story().upstream_asks(1, TWO).upstream_gets(id=1, result={"roots": [str(ONE)]}),
        Rule.REPLY,
    ),
    "a call sent twice": (
        Story()
        .asks(ONE)
        .upstream_gets(id=9, method="tools/call", params={"_meta": {"nonce": str(ONE)}})
        .is_answered(ONE),
        Rule.SENT_TWICE,
    ),
    "a call of a session that ended": (Story().asks(ONE).closes("one"), Rule.NOT_CANCELLED),
    "a cancelled call": (
        Story().asks(ONE).sends("one", method="notifications/cancelled", params={"requestId": 1}).closes("up"),
        Rule.NOT_CANCELLED,
    ),
    "a cancellation that nobody wanted": (
        Story()
        .asks(ONE)
        .upstream_gets(method="notifications/cancelled", params={"requestId": str(ONE)})
        .is_answered(ONE),
        Rule.CANCELLED_WANTED,
    ),
    "an interruption where nothing died": (Story().asks(ONE).is_interrupted(ONE).closes("up"), Rule.INTERRUPTED),
    "an interruption long after the death": (
        _interrupted(is_withdrawn=True).asks(Nonce("one", 3)).is_interrupted(Nonce("one", 3)),
        Rule.INTERRUPTED,
    ),
    "an interruption of what is served anew": (
        Story().asks(ONE, method="resources/subscribe", params={"uri": "a://x"}).kills().is_interrupted(ONE),
        Rule.INTERRUPTED,
    ),
    "no answer after a death": (Story().asks(ONE).kills(), Rule.UNANSWERED),
    "an interruption twice": (Story().asks(ONE).kills().is_interrupted(ONE).is_interrupted(ONE), Rule.ANSWER),
    "an interrupted call sent to the next server": (_sent_to_the_next(), Rule.SENT_TWICE),
    "a question of a dead daemon": (_interrupted(is_withdrawn=False), Rule.NOT_WITHDRAWN),
    "a question withdrawn by each daemon": (
        _interrupted(is_withdrawn=True)
        .kills()
        .gets("one", method="notifications/cancelled", params={"requestId": 1}),
        Rule.CANCELLED_UNASKED,
    ),
    "a late answer to another question of the session": (
        Story().upstream_asks(1, ONE).upstream_gets(id=1, result={"roots": [str(Nonce("one", 2))]}),
        Rule.REPLY,
    ),
    "a server that outlives its daemon": (_outlives(), Rule.OUTLIVES),
    "half a line": (Story().gets_part("one", b'{"jsonrpc":').closes("one", INPUT_ENDED), Rule.HALF_LINE),
    "two lines in one": (_two_in_one(), Rule.HALF_LINE),
    "a request that an orderly end leaves open": (
        Story().asks(ONE).closes("up").closes("one", INPUT_ENDED),
        Rule.UNANSWERED,
    ),
    "a subscription of a session that ended": (_subscribed().closes("one"), Rule.NOT_UNSUBSCRIBED),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_breach_is_found_and_nothing_else(what: str) -> None:
    story, rule = WRONG[what]
    assert story.rules == [rule]


def test_what_a_death_may_do_is_not_wrong() -> None:
    killed = Story().asks(ONE).gets_part("one", b'{"jsonrpc":').closes("up").closes("one", ABRUPTLY)
    assert killed.rules == []
    assert _interrupted(is_withdrawn=True).rules == []
    cancelled = Story().asks(ONE).sends("one", method="notifications/cancelled", params={"requestId": 1}).kills()
    assert cancelled.rules == []


def test_the_end_of_an_instance_stands_for_the_cancellations_of_those_that_left() -> None:
    assert Story().asks(ONE).closes("one").closes("up").rules == []
    assert _subscribed().closes("one").closes("up").rules == []


def test_a_cancelled_request_needs_no_answer_once_its_upstream_knows() -> None:
    story = Story().asks(ONE).sends("one", method="notifications/cancelled", params={"requestId": 1})
    assert story.upstream_gets(method="notifications/cancelled", params={"requestId": str(ONE)}).rules == []


def test_a_question_may_be_refused_only_where_it_could_be_for_several() -> None:
    for may_be_refused in (True, False):
        operation = Operation(ONE, "ask", may_be_refused=may_be_refused)
        story = Story()
        story.events.append(Event("one", Kind.SENT, message(id=1, method="tools/call", params={}), operation))
        story.gets("one", id=1, result={"text": f"{ONE} refused"})
        assert story.rules == ([] if may_be_refused else [Rule.REFUSED])


def test_what_is_shown_has_the_seed_the_breaches_and_the_lines_of_those_concerned() -> None:
    story = _good().gets("one", id=1, result={"a": str(ONE)})
    text = show(judge(story.events), story.events, 42)
    assert "seed 42: 1 violations" in text
    assert "ANSWER 1 times" in text
    assert text.count(" one ") > 5
    assert " two " not in text


def _lost(*kinds: Kind) -> Story:
    """Return a story of a request at its server, whose session is lost, and of which these things are noted."""
    story = Story().asks(ONE)
    story.events.append(Event("one", Kind.LOST))
    story.events += [Event("one", kind, detail="1") for kind in kinds]
    return story.closes("up").closes("one", ABRUPTLY)


def test_what_is_lost_with_one_of_several_processes_may_have_run_unless_it_was_refused() -> None:
    assert _lost().rules == _lost(Kind.CUT).rules == []
    assert _lost(Kind.REFUSED).rules == [Rule.RAN]
    interrupted = Story().asks(ONE)
    interrupted.events.append(Event("one", Kind.LOST))
    assert interrupted.is_interrupted(ONE).rules == []
    assert Story().asks(ONE).is_interrupted(ONE).rules == [Rule.INTERRUPTED]


def test_only_a_request_to_a_server_that_is_lost_may_be_interrupted_for_others() -> None:
    for server, rules in (("a", []), ("b", [Rule.INTERRUPTED])):
        story = Story().asks(ONE, params={"arguments": {"group": "a"}})
        story.events.append(Event("daemon 1", Kind.HOME_KILLED, detail=server))
        assert story.is_interrupted(ONE).rules == rules


def test_a_request_whose_connection_was_cut_needs_no_answer_though_its_session_goes_on() -> None:
    story = Story().asks(ONE)
    assert story.rules == [Rule.UNANSWERED]
    story.events.append(Event("one", Kind.CUT, detail="1"))
    assert story.rules == []
