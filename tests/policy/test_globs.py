"""Globs of names and of URI templates."""

from __future__ import annotations

import fnmatch
import itertools
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.policy.globs import Globs
from tests.examples import examples

TEXTS = st.text("ab*?[]{}", max_size=8)
PATTERNS = st.text("ab*?[", min_size=1, max_size=8)


def _expected(pattern: str, text: str) -> bool:
    return fnmatch.fnmatchcase(text, re.sub(r"\[", "[[]", pattern))


@examples(100)
@given(st.lists(PATTERNS, max_size=4), TEXTS)
def test_stars_and_question_marks_are_wildcards_and_nothing_else_is(patterns: list[str], text: str) -> None:
    assert Globs(patterns).matches(text) == any(_expected(pattern, text) for pattern in patterns)


def test_case_counts_and_line_breaks_do_not() -> None:
    globs = Globs(["Read_*", "a?c*d"])
    assert not globs.matches("read_x")
    assert globs.matches("Read_\n")
    assert globs.matches("a\nc\nd")
    assert globs.matches("a\ud800c\udfffd")


@pytest.mark.parametrize(
    "variant",
    [
        "DELETE_REPO",
        " delete_repo\n",
        "\ufeffdelete\u200b_repo",
        "delete\u00ad_repo\U000e0041",
        "\uff44elete_rep\uff4f",
        "delete_repo\ufe0f",
        "dele\u034fte_repo",
    ],
)
@pytest.mark.parametrize("pattern", ["delete_repo", "delete_*", "*_repo", "Delete_rep?", "d*o"])
def test_variants_of_a_name_match_what_the_name_matches(pattern: str, variant: str) -> None:
    assert Globs([pattern]).matches_variant(variant)


def test_composition_makes_no_difference_to_variants() -> None:
    assert Globs(["caf\u00e9_*"]).matches_variant("cafe\u0301_x")
    assert Globs(["cafe\u0301_?"]).matches_variant("CAF\u00c9_x")
    assert not Globs(["cafe_*"]).matches_variant("caf\u00e9_x")


def test_a_wide_wildcard_is_a_character() -> None:
    assert Globs(["a\uff0a"]).matches_variant("a*")
    assert not Globs(["a\uff0a"]).matches_variant("ab")


@examples(100)
@given(st.lists(PATTERNS, max_size=4), st.text(max_size=8))
def test_what_matches_as_written_matches_as_a_variant(patterns: list[str], text: str) -> None:
    globs = Globs(patterns)
    assert globs.matches_variant(text) or not globs.matches(text)


# All texts that matter: two patterns of three characters have one of six in common, if any.
SHORT = ["".join(each) for size in range(7) for each in itertools.product("ab", repeat=size)]
GLOBS = st.text("ab*?", min_size=1, max_size=3)
TEMPLATES = st.lists(st.sampled_from(["a", "b", "{x}"]), min_size=1, max_size=3).map("".join)


def _expansions(template: str) -> list[str]:
    return [text for text in SHORT if _expected(template.replace("{x}", "*"), text)]


@examples(300)
@given(GLOBS, TEMPLATES)
def test_a_glob_may_match_a_template_if_it_matches_an_expansion(pattern: str, template: str) -> None:
    some = any(_expected(pattern, text) for text in _expansions(template))
    assert Globs([pattern]).may_match(template) == some


@examples(300)
@given(st.lists(GLOBS, max_size=3), TEMPLATES)
def test_a_template_is_covered_only_if_every_expansion_matches(patterns: list[str], template: str) -> None:
    globs = Globs(patterns)
    assert not globs.covers(template) or all(map(globs.matches, _expansions(template)))


@pytest.mark.parametrize(
    ("pattern", "template", "expected"),
    [
        ("?a?a", "{x}aa{x}", True),
        ("?b?b", "{x}aa{x}", False),
        ("??ab?", "{x}a{y}{z}", True),
        ("aba?", "{x}b{x}aa", True),
        ("aba?", "a{x}ba{x}ba", False),
        ("a*b", "{x}ba", False),
        ("a*c*b", "{x}", True),
        ("a?", "a?", True),
    ],
)
def test_a_glob_meets_a_template(pattern: str, template: str, expected: bool) -> None:
    assert Globs([pattern]).may_match(template) is expected


def test_a_prefix_covers_a_template_below_it() -> None:
    globs = Globs(["file:///secret/*", "db://?/t*"])
    assert globs.covers("file:///secret/{path}")
    assert globs.covers("db://x/t{name}/{id}")
    assert not globs.covers("db://{x}/tables")
    assert not globs.covers("file:///{path}")


def test_a_hostile_template_is_answered() -> None:
    template = "{x}a" * 200_000
    globs = Globs(["a*b", "?" * 1000])
    assert not globs.may_match(template)
    assert not globs.covers(template)


def test_many_long_globs_are_compiled() -> None:
    globs = Globs([f"*a{number}.*b{'?' * 900}" for number in range(300)])
    assert globs.matches("xa299.b" + "c" * 900)
    assert not globs.matches("xa300.b" + "c" * 900)


@pytest.mark.parametrize(("patterns", "is_loaded"), [(["a", "b*", "*"], False), (["a*b"], True)])
def test_regular_expressions_come_with_the_first_glob_that_needs_them(patterns: list[str], is_loaded: bool) -> None:
    program = (
        f"import sys; from dynamic_mcp.policy.globs import Globs; Globs({patterns!r}); print('re2' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == str(is_loaded)
