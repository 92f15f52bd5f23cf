"""Three-way merges: what a person changed stays, what they did not change follows the new version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.registry.merge import NOTHING, merge

_SCALARS = st.one_of(st.sampled_from(["a", "b", "c", 1, True, None]))
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)),
    max_leaves=8,
)
_WORD = st.sampled_from(["-y", "pkg@1", "/a", "/b", "--flag"])
WORDS = st.lists(_WORD, max_size=5)
DIFFERENT_WORDS = st.lists(_WORD, max_size=5, unique=True)
PLACES = st.sets(st.integers(0, 5), max_size=3)


@given(VALUES, VALUES)
def test_what_one_side_leaves_alone_is_as_the_other_has_it(base: object, changed: object) -> None:
    assert merge(base, base, changed).value == changed
    assert merge(base, changed, base).value == changed
    assert merge(base, changed, changed).value == changed
    assert merge(base, base, changed).clashes == ()


@given(WORDS, WORDS, PLACES)
def test_no_word_that_a_person_added_is_lost(base: list[str], theirs: list[str], places: set[int]) -> None:
    merged: Any = merge(base, with_own_words(base, places), theirs).value
    assert [word for word in merged if word.startswith("mine-")] == [f"mine-{number}" for number in sorted(places)]


@given(DIFFERENT_WORDS, DIFFERENT_WORDS, PLACES)
def test_the_other_words_are_those_of_the_new_version(base: list[str], theirs: list[str], places: set[int]) -> None:
    """With equal words in a list, nobody can tell which of them a person has added."""
    merged: Any = merge(base, with_own_words(base, places), theirs).value
    assert [word for word in merged if not word.startswith("mine-")] == theirs


def with_own_words(base: list[str], places: set[int]) -> list[str]:
    mine: list[str] = []
    for number in range(6):
        mine += [f"mine-{number}"] if number in places else []
        mine += base[number : number + 1]
    return mine


def test_a_version_is_updated_beside_arguments_of_a_person() -> None:
    base = {"command": "npx", "args": ["-y", "pkg@1", "/a"], "description": "d"}
    mine = {"command": "npx", "args": ["-y", "pkg@1", "/mine", "/b"], "timeout": {"tools": "5m"}}
    theirs = {"command": "npx", "args": ["-y", "pkg@2", "--new", "/a"], "description": "d", "env": {"A": "1"}}
    result = merge(base, mine, theirs)
    assert result.clashes == ()
    assert result.value == {
        "command": "npx",
        "args": ["-y", "pkg@2", "--new", "/mine", "/b"],
        "timeout": {"tools": "5m"},
        "env": {"A": "1"},
    }


def test_where_both_changed_the_same_the_person_wins_and_is_told() -> None:
    result = merge({"args": ["pkg@1"], "a": 1}, {"args": ["pkg"]}, {"args": ["pkg@2"], "a": 2})
    assert result.value == {"args": ["pkg"]}
    assert [each.at for each in result.clashes] == [("args", 0), ("a",)]


def test_without_a_known_base_nothing_of_a_person_changes() -> None:
    mine = {"args": ["pkg"], "env": {"A": "mine"}}
    result = merge(NOTHING, mine, {"args": ["pkg@2"], "env": {"A": "theirs", "B": "new"}})
    assert result.value == {"args": ["pkg"], "env": {"A": "mine", "B": "new"}}
    assert len(result.clashes) == 2
