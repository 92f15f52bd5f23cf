"""GuardRules: what they find in arguments, what they cannot judge, and who is asked."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.config.access import Effect
from dynamic_mcp.errors import RefusedByGuard
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.guards.guards import GuardRules
from dynamic_mcp.policy.globs import fold
from tests.examples import examples

Json = Any  # whatever JSON a test writes down


def judge(arguments: Json, *guards: Guard, tool: str = "query") -> str:
    """Return what follows: nothing, `ask …` or `deny …` with the rules behind it; bytes are JSON already."""
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    try:
        decision = GuardRules(guards, "db").judge(tool, Raw(raw))
    except RefusedByGuard as exc:
        return f"deny {exc.rule}"
    if decision is None:
        return ""
    assert decision.effect is Effect.ASK
    return f"ask {decision.rule}"


def deny(pattern: str, path: str | None = None, *, id: str = "g0", **members: Json) -> Guard:
    return Guard(id, path=path, deny=pattern, **members)


def allow(pattern: str, path: str | None = None, *, id: str = "g0", **members: Json) -> Guard:
    return Guard(id, path=path, allow=pattern, **members)


# --- what is found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        ({"sql": "DROP TABLE a"}, True),
        ({"sql": "select 1", "then": {"do": ["x", {"y": "drop it"}]}}, True),
        ({"sql": "select 1;\n drop table a"}, True),
        (b'{"sql":"\\u0044rop"}', True),
        ({"sql": "dropped"}, False),
        ({"drop": "a name is no text"}, False),
        ({"n": 1, "b": True, "z": None}, False),
        ({}, False),
    ],
)
def test_what_is_denied_is_found_in_every_text(arguments: Json, is_refused: bool) -> None:
    assert judge(arguments, deny(r"(?i)\bdrop\b")) == ("deny g0" if is_refused else "")


def test_what_is_denied_is_found_across_lines() -> None:
    assert judge({"a": "rm\n-rf"}, deny("rm.*-rf")) == "deny g0"


@pytest.mark.parametrize("pattern", ["^drop$", r"\Adrop\z", r"(?-s)^drop$", r"\Qdrop", "(?P<n>drop)"])
def test_ends_quotes_and_flags_mean_one_text_and_one_guard(pattern: str) -> None:
    others = [deny("^never$", id="g1"), deny("(?P<n>never)", id="g2")]
    assert judge({"a": "b", "c": "drop"}, deny(pattern), *others) == "deny g0"
    assert judge({"a": "b", "c": "dropped"}, deny(r"^drop$"), deny(r"\Adrop\z"), *others) == ""


def test_parts_of_two_texts_are_no_match() -> None:
    assert judge({"a": "rm", "b": "-rf"}, deny(r"rm\s+-rf")) == ""
    assert judge({"a": "-rf", "b": "rm"}, deny(r"(?s)rm.*-rf|-rf.*rm")) == ""


def test_every_text_must_match_as_a_whole_what_is_allowed() -> None:
    guard = allow("[a-z]+")
    assert judge({"a": "abc", "b": ["d"]}, guard) == ""
    assert judge({"a": "abc", "b": ["d", "e1"]}, guard) == "deny g0"
    assert judge({"a": "abc\n"}, allow(".*")) == "deny g0"


@pytest.mark.parametrize("arguments", [b"{}", b"", b"null", b'{"other":"x"}', b'{"n":1}'])
def test_a_missing_argument_is_nothing_to_deny_and_not_what_is_allowed(arguments: bytes) -> None:
    assert judge(arguments, deny("", "$.sql")) == ""
    assert judge(arguments, allow(".*", "$.sql")) == "deny g0"


def test_no_text_at_all_is_not_what_is_allowed() -> None:
    assert judge({"n": 1}, allow(".*")) == "deny g0"


def test_no_arguments_are_like_an_empty_object() -> None:
    assert GuardRules([deny("")], "db").judge("query", None) is None
    with pytest.raises(RefusedByGuard):
        GuardRules([allow("")], "db").judge("query", None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x y", "x y"),
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        ([1, "ä"], '[1,"ä"]'),
        ({"b": 1, "a": {"d": 2.0, "c": []}}, '{"a":{"c":[],"d":2},"b":1}'),
    ],
)
def test_a_value_of_a_path_that_is_no_text_is_judged_as_compact_json(value: Json, text: str) -> None:
    assert judge({"a": value}, allow(re.escape(text), "$.a")) == ""
    assert judge({"a": value}, deny(f"^{re.escape(text)}$", "$.a")) == "deny g0"


@pytest.mark.parametrize("number", [b"1000", b"1000.0", b"1e3", b"10E+2"])
def test_a_number_is_judged_however_it_is_written(number: bytes) -> None:
    assert judge(b'{"a":%s}' % number, deny("^1000$", "$.a")) == "deny g0"


def test_only_the_values_of_the_path_are_judged() -> None:
    arguments = {"rows": [{"sql": "a"}, {"sql": "drop"}], "note": "drop"}
    assert judge(arguments, deny("drop", "$.rows[*].sql")) == "deny g0"
    assert judge(arguments, deny("drop", "$.rows[0].sql")) == ""


def test_a_guard_is_about_its_tools_however_a_server_may_read_their_names() -> None:
    guard = deny("x", tools=("run_*",))
    assert judge({"a": "x"}, guard, tool="run_it") == judge({"a": "x"}, guard, tool="Run_It") == "deny g0"
    assert judge({"a": "x"}, guard, tool="query") == ""


# --- what cannot be judged ---------------------------------------------------------------------------------------

UNCLEAR = [
    b'{"sql":"a","sql":"b"}',
    b'{"x":{"sql":"a","sql":"b"}}',
    b'{"sql":"a","s\\u0071l":"b"}',
    b'{"SQL":"a","sql":"b"}',
    b'{"x":[{"sql":"a","\\uff33ql":"b"}]}',
    b'{"sql":"\\ud800"}',
    b'{"sql":',
    b'{"n":NaN}',
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'["sql"]',
    b'"sql"',
]


@pytest.mark.parametrize("arguments", UNCLEAR, ids=lambda each: each[:30].decode())
@pytest.mark.parametrize("guard", [deny("never"), allow(".*"), deny("never", effect="ask"), deny("never", "$.other")])
def test_what_cannot_be_judged_is_refused(arguments: bytes, guard: Guard) -> None:
    assert judge(arguments, guard) == "deny g0"


def test_an_argument_that_is_also_written_in_another_case_is_refused() -> None:
    assert judge({"sql": "a", "SQL": "drop"}, deny("drop", "$.sql")) == "deny g0"
    assert judge({"SQL": "drop"}, deny("drop", "$.sql")) == "deny g0"


def test_a_number_that_is_too_large_is_refused() -> None:
    assert judge(b'{"a":[1e400]}', deny("never", "$.a")) == "deny g0"
    assert judge(b'{"a":%s}' % (b"9" * 5000), deny("never")) == "deny g0"


def test_a_tool_without_guards_takes_what_cannot_be_judged() -> None:
    assert judge(b'{"a":1,"a":2}', deny("x", tools=("other",))) == ""


# --- several guards ----------------------------------------------------------------------------------------------


def test_a_guard_that_refuses_wins_over_one_that_asks() -> None:
    asking, refusing = deny("a", id="g0", effect="ask"), deny("b", id="g1")
    assert judge({"x": "ab"}, asking, refusing) == judge({"x": "ab"}, refusing, asking) == "deny g1"
    assert judge({"x": "a"}, asking, refusing) == "ask g0"


def test_guards_that_ask_are_asked_about_together() -> None:
    guards = [
        deny("a", id="g0", effect="ask"),
        deny("b", id="g1", effect="ask"),
        allow("a+", "$.x", id="g2", effect="ask"),
    ]
    assert judge({"x": "ab"}, *guards) == "ask g0, g1, g2"
    assert judge({"x": "a"}, *guards) == "ask g0"


def test_the_message_of_the_config_is_what_is_said() -> None:
    with pytest.raises(
        RefusedByGuard, match=r"`query` of group `db` was refused: read only, please; nothing was sent"
    ):
        GuardRules([deny("x", message="read only, please")], "db").judge("query", Raw(b'{"a":"x"}'))
    with pytest.raises(RefusedByGuard) as caught:
        GuardRules([deny("secret-pattern")], "db").judge("query", Raw(b'{"a":"secret-pattern-1"}'))
    assert "`g0` does not allow these arguments" in str(caught.value)
    assert "secret" not in str(caught.value)


# --- all texts, whatever their shape -----------------------------------------------------------------------------

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)


def objects(values: st.SearchStrategy[Json]) -> st.SearchStrategy[dict[str, Json]]:
    """Return objects none of whose keys can be taken for another one."""
    members = st.lists(st.tuples(TEXTS, values), max_size=4, unique_by=lambda member: fold(member[0]))
    return members.map(dict)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), objects(inner)),
    max_leaves=12,
)
PATTERNS = st.lists(
    st.sampled_from(["^a", "b$", r"\bc\b", r"\B.", "a.b", r"(?i)X", r"\Aq", r"z\z", "^$", "[^a]", "é|ß", r"\s"]),
    min_size=1,
    max_size=4,
)


def leaves(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in leaves(each)]


@examples(100)
@given(objects(VALUES), PATTERNS)
def test_several_guards_find_what_each_of_them_finds_in_each_text_alone(arguments: Json, patterns: list[str]) -> None:
    alone = {
        f"g{number}"
        for number, pattern in enumerate(patterns)
        for text in leaves(arguments)
        if judge({"text": text}, deny(pattern))
    }
    guards = [deny(pattern, id=f"g{number}", effect="ask") for number, pattern in enumerate(patterns)]
    found = judge(json.dumps(arguments).encode(), *guards).removeprefix("ask ")
    assert set(found.split(", ")) - {""} == alone


WANTED = st.sampled_from([".*", "(?s).*", "a|ab", "[^a]*", "(?m)^a$", r"\Qa", "(?i)[a-f]*", "", "a.b", "é|ß", r"\w*"])


@examples(100)
@given(
    st.one_of(TEXTS, st.sampled_from(["ab", "a\nb", "a\n", "A", "é"])),
    st.lists(st.tuples(st.booleans(), WANTED), min_size=1, max_size=4),
)
def test_guards_that_deny_and_that_allow_find_together_what_each_finds_alone(
    text: str, wanted: list[tuple[bool, str]]
) -> None:
    guards = [
        (allow if allows else deny)(pattern, "$.a", id=f"g{number}", effect="ask")
        for number, (allows, pattern) in enumerate(wanted)
    ]
    alone = [guard.id for guard in guards if judge({"a": text}, guard)]
    assert judge({"a": text}, *guards).removeprefix("ask ") == ", ".join(alone)


def test_each_of_several_texts_must_be_what_is_allowed() -> None:
    guards = allow("[a-z]+", "$.a[*]"), deny("x", "$.a[*]", id="g1")
    assert judge({"a": ["b", "c"]}, *guards) == ""
    assert judge({"a": ["b", "1"]}, *guards) == "deny g0"
    assert judge({"a": ["x", "c"]}, *guards) == "deny g1"


def escape_all(value: Json) -> str:
    """Write JSON with an escape for every character of a text."""
    if isinstance(value, str):
        units = value.encode("utf-16-be").hex()
        return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'
    if isinstance(value, dict):
        members = (f"{escape_all(name)} :\n{escape_all(inner)}" for name, inner in value.items())
        return "{ " + " , ".join(members) + " }"
    if isinstance(value, list):
        return "[\t" + ",".join(map(escape_all, value)) + "]"
    return json.dumps(value)


@examples(100)
@given(objects(VALUES))
def test_escapes_and_white_space_make_no_difference(arguments: Json) -> None:
    guards = [deny("[a-m]", effect="ask"), deny("é|ß", id="g1", effect="ask"), allow("[^x]*", id="g2", effect="ask")]
    plain = json.dumps(arguments, ensure_ascii=False).encode()
    assert judge(plain, *guards) == judge(escape_all(arguments).encode(), *guards)


# --- size --------------------------------------------------------------------------------------------------------

HOSTILE = ["(a+)+$", "(a|aa)+b", "(.*)*x", r"(\w+\s?)*!", "(?:a?){50}a{50}b", "a.*a.*a.*a.*b"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_ten_megabytes_are_judged_whatever_the_pattern_is(pattern: str) -> None:
    assert judge({"a": "a" * 10_000_000}, deny(pattern + "never")) == ""
