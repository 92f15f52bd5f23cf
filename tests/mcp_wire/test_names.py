"""A qualified name is valid for every client, always the same, and leads back to its owner."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.mcp import names
from tests.examples import examples

# What JSON can hold and UTF-8 can write.
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)


@pytest.mark.parametrize(
    ("group", "name", "listed"),
    [
        ("git", "commit", "git__commit"),
        ("my-group", "a_b-C3", "my-group__a_b-C3"),
        ("g", "x" * 61, "g__" + "x" * 61),
    ],
)
def test_a_name_that_clients_take_is_listed_behind_its_group(group: str, name: str, listed: str) -> None:
    assert names.qualified_name(group, name) == listed


@pytest.mark.parametrize("name", ["x" * 62, "with space", "näme", "a/b", "a.b", "\n", "\x00", "日本語"])
def test_a_name_that_clients_do_not_take_is_shortened_to_one_that_begins_alike(name: str) -> None:
    listed = names.qualified_name("group", name)

    assert re.fullmatch(r"group__[A-Za-z0-9_-]{0,48}_[0-9a-f]{8}", listed)


def test_the_short_form_of_a_name_never_changes() -> None:
    # saved chats and allow lists hold it: another digest breaks them
    assert names.qualified_name("git", "näme with spaces") == "git__n_me_with_spaces_663c88a3"
    assert names.hashed_name("git", "commit") == "git__commit_60b121f5"


@examples(100)
@given(words, words)
@example("g" * 100, "n")
def test_every_name_fits_every_client(group: str, name: str) -> None:
    for listed in (names.qualified_name(group, name), names.hashed_name(group, name)):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", listed)
    assert names.qualified_name(group, name) == names.qualified_name(group, name)


@examples(100)
@given(st.lists(st.tuples(words, words), unique=True, max_size=20))
@example([("a", "b__c"), ("a__b", "c")])
@example([("a", "x" * 70 + "1"), ("a", "x" * 70 + "2")])
@example([("a", "x y"), ("a", "x_y"), ("a", "x/y")])
def test_the_short_forms_of_different_names_are_different(pairs: list[tuple[str, str]]) -> None:
    assert len({names.hashed_name(group, name) for group, name in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("file:///a/b c.txt", "dynamic-mcp://git/file%3A%2F%2F%2Fa%2Fb%20c.txt"),
        ("café://x?y=1#z", "dynamic-mcp://git/caf%C3%A9%3A%2F%2Fx%3Fy%3D1%23z"),
        ("a%20b", "dynamic-mcp://git/a%2520b"),
    ],
)
def test_a_uri_of_a_group_holds_the_groups_name_and_the_encoded_uri(uri: str, named: str) -> None:
    assert names.group_uri("git", uri) == named
    assert names.split_group_uri(named) == ("git", uri)


@examples(100)
@given(words, words)
@example("a/b", "dynamic-mcp://a/b")
@example("%2F", "%")
def test_every_uri_of_a_group_leads_back_to_the_group_and_the_uri(group: str, uri: str) -> None:
    assert names.split_group_uri(names.group_uri(group, uri)) == (group, uri)


@pytest.mark.parametrize("made", ["file:///a%2Fb", "x:{id}", "any:%7B"])
def test_what_a_groups_template_makes_leads_to_the_group_and_stays_as_it_was_made(made: str) -> None:
    named = names.group_template("my/group", made)
    assert named == f"dynamic-mcp://my%2Fgroup/{made}"
    assert names.split_group_uri(named) == ("my/group", made)


@pytest.mark.parametrize(
    "uri",
    ["file:///a", "dynamic-mcp:/a/b", "dynamic-mcp://", "dynamic-mcp://a", "dynamic-mcp://a/", "dynamic-mcp:///a"],
)
def test_another_uri_names_no_group(uri: str) -> None:
    assert names.split_group_uri(uri) is None
