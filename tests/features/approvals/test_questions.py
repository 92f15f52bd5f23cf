"""What a person allows counts for one request, as long as it may, and for nothing that differs from it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from dynamic_mcp.features.approvals.questions import (
    DENIALS_WITHIN_S,
    HOUR_S,
    MAX_DENIALS,
    MAX_GRANTS_OF_ONE_PRINCIPAL,
    MAX_OF_ONE_ASKER,
    MAX_OPEN,
    MAX_OPEN_OF_ALL,
    ApprovalKey,
    ApprovalQuestion,
    Approvals,
    Verdict,
)
from dynamic_mcp.features.approvals.store import Scope
from dynamic_mcp.identity import Principal
from tests.examples import examples

ANN, BOB = Principal("idp", "ann"), Principal("idp", "bob")
VALID_FOR_S = 600.0
SESSION, OTHER_SESSION = "session 1", "session 2"


def key_of(principal: Principal = ANN, arguments: bytes | None = b"a", **changes: object) -> ApprovalKey:
    key = ApprovalKey(principal, "server", "tool", "delete", b"definition", "rules", "roles.dev[0]", arguments)
    return structs.replace(key, **changes)


class Time:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """Questions and grants, with a clock and ids of the test's own."""

    def __init__(self, ids: list[str] | None = None) -> None:
        self.time = Time()
        numbers = (f"Q{number}" for number in itertools.count(1))
        own = iter(ids) if ids else numbers
        self.approvals = Approvals(self.time, lambda: next(own), VALID_FOR_S)

    def ask(self, key: ApprovalKey | None = None) -> ApprovalQuestion:
        question = self.approvals.ask(key or key_of())
        assert question is not None
        return question

    def allow(self, key: ApprovalKey, scope: Scope = "once", session: str = SESSION) -> None:
        self.approvals.decide(self.ask(key), Verdict("allowed", scope=scope), session)

    def allows(self, key: ApprovalKey, session: str = SESSION) -> bool:
        grant = self.approvals.use(key, session)
        return grant is not None and grant.verdict.is_allowed


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_allowed_once_is_used_once(scene: Scene) -> None:
    scene.allow(key_of())
    assert scene.allows(key_of())
    assert not scene.allows(key_of())


def test_an_approval_that_is_not_used_in_time_is_gone(scene: Scene) -> None:
    scene.allow(key_of())
    scene.time.now = VALID_FOR_S
    assert not scene.allows(key_of())


def test_an_hour_is_for_any_arguments_in_any_session_and_ends(scene: Scene) -> None:
    scene.allow(key_of(), "hour")
    scene.time.now = HOUR_S - 1
    for arguments in (b"a", b"b", b"b"):
        assert scene.allows(key_of(arguments=arguments), OTHER_SESSION)
    scene.time.now = HOUR_S
    assert not scene.allows(key_of())


def test_a_session_is_for_any_arguments_and_dies_with_it(scene: Scene) -> None:
    scene.allow(key_of(), "session")
    scene.time.now = 10 * HOUR_S
    assert scene.allows(key_of(arguments=b"b"))
    assert not scene.allows(key_of(), OTHER_SESSION)
    scene.approvals.release(SESSION)
    assert not scene.allows(key_of())


OTHERS: dict[str, object] = {
    "principal": BOB,
    "server": "another server",
    "kind": "prompt",
    "name": "delete_all",
    "definition": b"another",
    "rules": "other rules",
    "rule": "roles.dev[1]",
    "arguments": b"b",
    "session": OTHER_SESSION,
    "state": b"state",
}


@examples(100)
@given(st.sets(st.sampled_from(sorted(OTHERS)), min_size=1), st.sampled_from(["once", "hour", "session"]))
def test_a_grant_for_one_call_never_serves_another(changed: set[str], scope: Scope) -> None:
    scene = Scene()
    scene.allow(key_of(session=SESSION), scope)
    other = structs.replace(key_of(session=SESSION), **{name: OTHERS[name] for name in changed})
    session = OTHER_SESSION if "session" in changed else SESSION

    is_served = scene.allows(other, session)

    may_differ = {"arguments", "state"} if scope != "once" else set[str]()
    assert is_served == (changed <= may_differ)
    assert scene.allows(key_of(session=SESSION)), "the grant is still there for its own call"


def test_a_retry_passes_once_with_the_state_that_it_was_given_and_no_other(scene: Scene) -> None:
    scene.allow(key_of())
    grant = scene.approvals.use(key_of(), SESSION)
    assert grant is not None
    scene.approvals.allow_retry(key_of(), b"state", grant)

    assert not scene.allows(key_of(state=b"forged"))
    assert not scene.allows(key_of(arguments=b"b", state=b"state"))
    assert not scene.allows(key_of())
    assert scene.allows(key_of(state=b"state"))
    assert not scene.allows(key_of(state=b"state"))


def test_equal_requests_join_one_question_and_are_told_in_their_order(scene: Scene) -> None:
    question, told = scene.ask(), list[str]()
    assert scene.ask() is question
    for name in ("first", "second"):
        question.join(lambda name=name: told.append(name))  # type: ignore[misc]
    scene.approvals.decide(question, Verdict("allowed"), SESSION)
    assert told == ["first", "second"]
    assert [scene.allows(key_of()) for _ in told] == [True, False]


def test_a_denial_that_nobody_waits_for_is_told_once(scene: Scene) -> None:
    scene.approvals.decide(scene.ask(), Verdict("denied", reason="no"), SESSION)
    grant = scene.approvals.use(key_of(), SESSION)
    assert grant is not None
    assert (grant.verdict.outcome, grant.verdict.reason) == ("denied", "no")
    assert scene.approvals.use(key_of(), SESSION) is None


def test_a_denial_that_somebody_waits_for_is_not_kept(scene: Scene) -> None:
    question = scene.ask()
    question.join(lambda: None)
    scene.approvals.decide(question, Verdict("denied"), SESSION)
    assert scene.approvals.use(key_of(), SESSION) is None


def test_what_nobody_answers_in_time_is_denied(scene: Scene) -> None:
    question, told = scene.ask(), list[int]()
    question.join(lambda: told.append(1))
    scene.time.now = VALID_FOR_S - 1
    assert scene.approvals.expire() == []
    scene.time.now = VALID_FOR_S
    assert scene.approvals.expire() == [question]
    assert question.verdict is not None
    assert not question.verdict.is_allowed
    assert told == [1]


def test_a_question_about_one_session_ends_with_it_and_others_stay(scene: Scene) -> None:
    own, other = scene.ask(key_of(session=SESSION)), scene.ask(key_of())
    assert scene.approvals.release(SESSION) == [own]
    assert scene.approvals.find(other.id) is other


def test_dropping_leaves_neither_questions_nor_grants(scene: Scene) -> None:
    scene.allow(key_of())
    scene.allow(key_of(name="other"), "session")
    question = scene.ask(key_of(arguments=b"b"))
    assert scene.approvals.drop("changed") == [question]
    assert not scene.allows(key_of())
    assert not scene.allows(key_of(name="other"))


def test_a_principal_has_so_many_questions_and_others_have_their_own(scene: Scene) -> None:
    asked = [scene.ask(key_of(arguments=b"%d" % number)) for number in range(MAX_OF_ONE_ASKER)]
    assert scene.approvals.ask(key_of(arguments=b"one more")) is None
    assert scene.approvals.ask(asked[0].key) is asked[0]
    assert scene.approvals.ask(key_of(BOB)) is not None
    scene.approvals.forget(asked[0])
    assert scene.approvals.ask(key_of(arguments=b"one more")) is not None


def test_two_sessions_of_a_principal_that_count_apart_do_not_use_up_each_others_questions(scene: Scene) -> None:
    for number in range(MAX_OF_ONE_ASKER):
        assert scene.approvals.ask(key_of(arguments=b"%d" % number), SESSION)
    assert scene.approvals.ask(key_of(arguments=b"one more"), SESSION) is None
    assert scene.approvals.ask(key_of(arguments=b"one more"), OTHER_SESSION)


def test_whoever_has_asked_nothing_may_still_ask_where_others_have_used_up_all(scene: Scene) -> None:
    for number in range(MAX_OPEN):
        asker = Principal("idp", str(number // MAX_OF_ONE_ASKER))
        scene.ask(key_of(asker, arguments=b"%d" % number))
    assert scene.approvals.ask(key_of(Principal("idp", "0"), arguments=b"one more")) is None
    assert scene.approvals.ask(key_of(ANN))
    assert scene.approvals.ask(key_of(ANN, arguments=b"one more")) is None
    assert scene.approvals.ask(key_of(BOB))


def test_all_together_have_so_many_questions(scene: Scene) -> None:
    for number in range(MAX_OPEN_OF_ALL):
        scene.ask(key_of(Principal("idp", str(number))))
    assert scene.approvals.ask(key_of()) is None


def deny(scene: Scene, times: int) -> None:
    for _ in range(times):
        question = scene.ask(key_of(arguments=b"%f" % scene.time.now))
        question.join(lambda: None)
        scene.approvals.decide(question, Verdict("denied"), SESSION)
        scene.time.now += 1


def test_what_was_denied_three_times_is_not_asked_about_for_the_rest_of_ten_minutes(scene: Scene) -> None:
    deny(scene, MAX_DENIALS - 1)
    assert scene.approvals.paused_s(key_of()) == 0
    deny(scene, 1)
    assert scene.approvals.paused_s(key_of()) == DENIALS_WITHIN_S - MAX_DENIALS
    for other in (key_of(BOB), key_of(name="other"), key_of(kind="prompt"), key_of(server="another server")):
        assert scene.approvals.paused_s(other) == 0
    scene.time.now = DENIALS_WITHIN_S
    assert scene.approvals.paused_s(key_of()) == 0


def test_denials_over_a_longer_time_pause_nothing(scene: Scene) -> None:
    for _ in range(2 * MAX_DENIALS):
        deny(scene, 1)
        scene.time.now += DENIALS_WITHIN_S / 2
        assert scene.approvals.paused_s(key_of()) == 0


def test_another_config_forgets_what_was_denied(scene: Scene) -> None:
    deny(scene, MAX_DENIALS)
    scene.approvals.drop("changed")
    assert scene.approvals.paused_s(key_of()) == 0


def test_what_was_asked_before_the_pause_can_still_be_answered(scene: Scene) -> None:
    question = scene.ask(key_of(arguments=b"before"))
    deny(scene, MAX_DENIALS)
    assert scene.approvals.paused_s(question.key) == 0
    assert scene.ask(question.key) is question


def test_the_grants_of_a_principal_are_bounded_and_push_out_no_one_elses(scene: Scene) -> None:
    scene.allow(key_of(BOB))
    for number in range(MAX_GRANTS_OF_ONE_PRINCIPAL + 1):
        scene.allow(key_of(arguments=b"%d" % number))
    assert not scene.allows(key_of(arguments=b"0"))
    assert scene.allows(key_of(arguments=b"1"))
    assert scene.allows(key_of(BOB))


def test_an_id_that_is_taken_is_not_given_again() -> None:
    scene = Scene(ids=["A", "A", "B"])
    assert [scene.ask(key_of(arguments=b"%d" % number)).id for number in range(2)] == ["A", "B"]


def test_changed_arguments_are_part_of_the_grant(scene: Scene) -> None:
    scene.approvals.decide(scene.ask(), Verdict("allowed", arguments=Raw(b'{"a":1}')), SESSION)
    grant = scene.approvals.use(key_of(), SESSION)
    assert grant is not None
    assert grant.verdict.arguments == Raw(b'{"a":1}')
