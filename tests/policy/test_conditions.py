"""Conditions of a rule on arguments."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from dynamic_mcp.config.access import Condition, Effect
from dynamic_mcp.policy.arguments import Arguments, ConditionError
from dynamic_mcp.policy.conditions import Conditions

OTHERS = (Effect.ASK, Effect.DENY)
EVERY = tuple(Effect)


def evaluate(arguments: object, *conditions: Condition, effect: Effect = Effect.ALLOW) -> bool:
    return Conditions(conditions).evaluate(Raw(json.dumps(arguments).encode()), effect)


@pytest.mark.parametrize("effect", EVERY)
def test_no_conditions_hold_without_arguments(effect: Effect) -> None:
    assert Conditions(()).evaluate(None, effect)


@pytest.mark.parametrize("effect", EVERY)
@pytest.mark.parametrize("raw", [None, Raw(), Raw(b"null"), Raw(b"[1]"), Raw(b'"text"')])
def test_missing_arguments_match_no_path(raw: Raw | None, effect: Effect) -> None:
    assert not Conditions([Condition("$")]).evaluate(raw, effect)


@pytest.mark.parametrize("effect", EVERY)
def test_a_path_that_matches_nothing_is_not_fulfilled(effect: Effect) -> None:
    assert not evaluate({"other": 1}, Condition("$.database"), effect=effect)
    assert not evaluate({"ids": []}, Condition("$.ids[*]"), effect=effect)


@pytest.mark.parametrize("effect", EVERY)
def test_all_paths_must_hold(effect: Effect) -> None:
    conditions = Condition("$.a", values=(1,)), Condition("$.b", values=(2,))
    assert evaluate({"a": 1, "b": 2}, *conditions, effect=effect)
    assert not evaluate({"a": 1, "b": 3}, *conditions, effect=effect)
    assert not evaluate({"a": 1}, *conditions, effect=effect)


def test_every_match_must_fulfil_what_allows_and_one_what_asks_or_denies() -> None:
    condition = Condition("$.tables[*]", values=("a",))
    assert evaluate({"tables": ["a", "a"]}, condition)
    assert not evaluate({"tables": ["a", "b"]}, condition)
    for effect in OTHERS:
        assert evaluate({"tables": ["b", "a"]}, condition, effect=effect)
        assert not evaluate({"tables": ["b"]}, condition, effect=effect)


@pytest.mark.parametrize(
    ("value", "listed", "is_equal"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        (True, 1, False),
        (1, True, False),
        (False, 0, False),
        (None, False, False),
        (None, None, True),
        ("1", 1, False),
        ("a", "A", False),
        (2**53 + 1, float(2**53), False),
        ([1], 1, False),
        ({}, None, False),
    ],
)
def test_values_are_compared_as_json(value: object, listed: str | float | None, is_equal: bool) -> None:
    assert evaluate({"a": value}, Condition("$.a", values=(listed,))) is is_equal


@pytest.mark.parametrize("effect", EVERY)
def test_a_pattern_matches_the_whole_text(effect: Effect) -> None:
    condition = Condition("$.a", pattern="stage|prod")
    assert evaluate({"a": "prod"}, condition, effect=effect)
    assert not evaluate({"a": "prod2"}, condition, effect=effect)
    assert not evaluate({"a": "prod\n"}, condition, effect=effect)


def test_a_line_break_gets_past_neither_what_allows_nor_what_denies() -> None:
    text = {"a": "ls\nrm -rf /"}
    assert not evaluate(text, Condition("$.a", pattern="ls.*"))
    for effect in OTHERS:
        assert evaluate(text, Condition("$.a", pattern=".*rm .*"), effect=effect)


def test_numbers_have_bounds() -> None:
    condition = Condition("$.a", minimum=1, maximum=2.5)
    assert [evaluate({"a": value}, condition) for value in (0.9, 1, 2.5, 2.6)] == [False, True, True, False]


@pytest.mark.parametrize("effect", EVERY)
@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (5, Condition("$.a", pattern=".*")),
        (None, Condition("$.a", pattern=".*")),
        (["x"], Condition("$.a", pattern=".*")),
        ("\ud800", Condition("$.a", pattern=".*")),
        ("5", Condition("$.a", minimum=1)),
        (True, Condition("$.a", maximum=3)),
    ],
)
def test_a_value_of_another_type_is_an_error(value: object, condition: Condition, effect: Effect) -> None:
    with pytest.raises(ConditionError):
        evaluate({"a": value}, condition, effect=effect)


@pytest.mark.parametrize("effect", EVERY)
@pytest.mark.parametrize(
    "raw",
    [
        *(
            b'{"a": 1, "a": 2}',
            b'{"b": {"a": 1, "a": 1}}',
            b'{"a": NaN}',
            b'{"a": ',
            b'{"a":' + b"[" * 200_000,
            b"\xff",
        ),
        *(b'{"a": 1, "A": 2}', b'{"A": 2, "a": 1}', b'{"a": 1, "b": [{"c": 1, "C": 1}]}'),
    ],
)
def test_arguments_that_servers_may_read_differently_are_an_error(raw: bytes, effect: Effect) -> None:
    with pytest.raises(ConditionError):
        Conditions([Condition("$.a")]).evaluate(Raw(raw), effect)


@pytest.mark.parametrize("effect", EVERY)
@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("$.database", {"Database": "prod"}),
        ("$.database", {"database": "stage", "DATABASE": "prod"}),
        ("$.database", {"DATABASE": "prod", "database": "stage"}),
        ("$.database", {"DATABASE": "stage", "database": "stage"}),
        ("$.database", {"database": "stage", "\uff24atabase": "prod"}),
        ("$.database", {"database": "stage", "data\u200bbase": "prod"}),
        ("$.gr\u00f6\u00dfe", {"gro\u0308sse": "stage"}),
        ("$.kind", {"\u212aind": "stage"}),
        ("$.Database", {"database": "prod"}),
        ("$.Db.Name", {"db": {"name": "prod"}}),
        ("$..name", {"list": [{"name": "stage"}, {"Name": "prod"}]}),
        ("$['data base']", {"Data Base": 1}),
    ],
)
def test_a_key_in_another_case_is_an_error(path: str, arguments: object, effect: Effect) -> None:
    with pytest.raises(ConditionError):
        evaluate(arguments, Condition(path, values=("stage",)), effect=effect)


def test_the_case_of_other_keys_makes_no_difference() -> None:
    arguments = {"Type": "A", "dataBase": "Stage", "tags": {"X": 1, "y": 2}, "list": [{"Kind": "A", "ok": True}]}
    assert evaluate(arguments, Condition("$.dataBase", values=("Stage",)))
    assert evaluate(arguments, Condition("$.list[0].ok", values=(True,)))
    assert not evaluate(arguments, Condition("$.missing"))


def test_an_error_does_not_matter_if_the_answer_is_known_without_it() -> None:
    wrong, right = Condition("$.a", pattern="x"), Condition("$.b", values=(1,))
    for effect in EVERY:
        assert not evaluate({"a": 5, "b": 2}, wrong, right, effect=effect)
        with pytest.raises(ConditionError):
            evaluate({"a": 5, "b": 1}, wrong, right, effect=effect)
    assert evaluate({"a": [5, "x"]}, Condition("$.a[*]", pattern="x"), effect=Effect.DENY)
    assert not evaluate({"a": [5, "y"]}, Condition("$.a[*]", pattern="x"))


def test_too_many_matches_are_an_error() -> None:
    with pytest.raises(ConditionError):
        evaluate({"a": [0] * 100_001}, Condition("$.a[*]", values=(1,)), effect=Effect.DENY)


def test_an_error_does_not_tell_the_values_of_arguments() -> None:
    with pytest.raises(ConditionError) as caught:
        evaluate({"a": 424242}, Condition("$.a", pattern="x"))
    assert "424242" not in str(caught.value)
    assert "$.a" in str(caught.value)


def test_arguments_of_several_rules_are_parsed_once() -> None:
    arguments = Arguments(Raw(b'{"a": 1}'))
    first = arguments.value
    assert Conditions([Condition("$.a", values=(1,))]).evaluate(arguments, Effect.ALLOW)
    assert arguments.value is first
