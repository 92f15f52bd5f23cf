"""What a profile shows of what the config presents, and which profile a client has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.access import Profile, ProfileTools
from dynamic_mcp.config.resolved import Presentation, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.errors import NotFound
from dynamic_mcp.proxy.profiles import choose, narrow, require
from tests.examples import examples
from tests.fakes import config_of, group_config

NAMES = ("docs", "docs_dev", "git", "git__hub", "read_me")
TOOLS = ("read", "read_page", "write", "hub__read", "a__b", "b")
names = st.sampled_from(NAMES)
parts = st.sampled_from(("*", "?", "re*", "read", "docs", "git", "hub", "__", "a", "b", "write", ""))
globs = st.lists(st.lists(parts, max_size=4).map("".join), max_size=3).map(tuple)
profiles = st.builds(
    Profile,
    name=st.just("p"),
    servers=st.one_of(st.just(("*",)), globs),
    tools=st.builds(ProfileTools, include=st.one_of(st.just(("*",)), globs), exclude=globs),
    direct=st.sampled_from((None, DirectTools(), DirectTools(is_all=True))),
)


def _presentations(
    *servers: str, include: tuple[str, ...] = ("*",), exclude: tuple[str, ...] = ()
) -> dict[str, Presentation]:
    tools = ToolFilter(include, exclude)
    return {name: group_config(name, tools=tools).presentation for name in servers}


def _shown(presentations: dict[str, Presentation]) -> set[tuple[str, str]]:
    """Return every tool that may be listed and called, with its server."""
    return {(name, tool) for name, each in presentations.items() for tool in TOOLS if each.tools.allows(tool)}


@examples(100)
@given(profiles, st.lists(names, unique=True), globs, globs)
def test_a_profile_never_shows_what_the_config_does_not(
    profile: Profile, servers: list[str], include: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    whole = _presentations(*servers, include=include, exclude=exclude)
    narrowed = narrow(whole, profile)
    assert _shown(narrowed) <= _shown(whole)
    assert list(narrowed) == [name for name in whole if name in narrowed]
    for name, each in narrowed.items():
        assert each.features == whole[name].features
        assert each.answers == whole[name].answers
        assert each.effects == whole[name].effects


@examples(100)
@given(profiles, st.lists(names, unique=True))
def test_equal_profiles_of_equal_presentations_are_equal(profile: Profile, servers: list[str]) -> None:
    assert narrow(_presentations(*servers), profile) == narrow(_presentations(*servers), profile)


def test_a_profile_that_names_nothing_changes_nothing() -> None:
    whole = _presentations("docs", "git", exclude=("write",))
    assert narrow(whole, Profile("all")) == whole


def test_servers_are_chosen_by_globs_in_the_order_of_the_config() -> None:
    assert list(narrow(_presentations("git", "docs", "docs_dev"), Profile("p", servers=("docs*", "git")))) == [
        "git",
        "docs",
        "docs_dev",
    ]
    assert list(narrow(_presentations("git", "docs", "docs_dev"), Profile("p", servers=("docs_*",)))) == ["docs_dev"]
    assert narrow(_presentations("git"), Profile("p", servers=())) == {}


@pytest.mark.parametrize(
    ("include", "exclude", "shown"),
    [
        (("read*",), (), {("docs", "read"), ("docs", "read_page"), ("git", "read"), ("git", "read_page")}),
        (("git__read",), (), {("git", "read")}),
        (("git__*",), ("*write", "*page"), {("git", "read"), ("git", "hub__read"), ("git", "a__b"), ("git", "b")}),
        (("a__b",), (), {("docs", "a__b"), ("git", "a__b")}),
        ((), (), set()),
        (("*",), ("*",), set()),
        (("READ",), (), set()),
    ],
)
def test_tools_are_chosen_by_their_names_or_with_their_server(
    include: tuple[str, ...], exclude: tuple[str, ...], shown: set[tuple[str, str]]
) -> None:
    narrowed = narrow(_presentations("docs", "git"), Profile("p", tools=ProfileTools(include, exclude)))
    assert _shown(narrowed) == shown


def test_a_pattern_without_a_server_means_no_server_by_accident() -> None:
    narrowed = narrow(_presentations("read_me"), Profile("p", tools=ProfileTools(("read_*",))))
    assert _shown(narrowed) == {("read_me", "read_page")}


@pytest.mark.parametrize(
    ("direct", "expected"),
    [
        (None, {"read"}),
        (DirectTools(), set()),
        (DirectTools(is_all=True), {"read", "write", "docs__read"}),
        (DirectTools(globs=("git__w*",)), {"write"}),
        (DirectTools(globs=("docs__read",)), set()),
    ],
)
def test_how_tools_are_listed_may_be_said_by_the_profile(direct: DirectTools | None, expected: set[str]) -> None:
    whole = {name: group_config(name, direct=DirectTools(globs=("read",))).presentation for name in ("git", "docs")}
    listed = narrow(whole, Profile("p", direct=direct))["git"].direct
    assert {tool for tool in ("read", "write", "docs__read") if listed.shows(tool)} == expected


def test_a_profile_can_list_tools_in_a_group_that_the_config_lists_by_themselves() -> None:
    whole = {"git": group_config("git", direct=DirectTools(is_all=True)).presentation}
    assert not narrow(whole, Profile("p", direct=DirectTools()))["git"].direct.shows_some


def test_a_client_that_has_chosen_none_has_the_first_profile_for_one_of_its_roles() -> None:
    first, second = Profile("first", roles=("dev", "ops")), Profile("second", roles=("ops",))
    known = {"none": Profile("none"), "first": first, "second": second}
    assert choose(known, None, ("ops",)) is first
    assert choose(known, None, ("guest", "dev")) is first
    assert choose(known, None, ("guest",)) is None
    assert choose(known, None, ()) is None
    assert choose(known, "second", ("dev",)) is second


def test_a_profile_that_has_gone_has_no_servers_and_says_so() -> None:
    profile = choose({}, "old", ())
    assert profile is not None
    assert narrow(_presentations(*NAMES), profile) == {}
    assert "`old`" in profile.instructions


def test_an_unknown_name_is_answered_with_the_closest_and_all_names() -> None:
    config = config_of(profiles={"review": Profile("review"), "write": Profile("write")})
    assert require(config, "review").name == "review"
    with pytest.raises(NotFound) as raised:
        require(config, "reviw")
    assert raised.value.near == ("review",)
    assert "no profile is named `reviw`" in str(raised.value)
    assert "are `review`, `write`" in str(raised.value)
    assert raised.value.exit_code == 2


def test_where_there_are_no_profiles_the_error_says_so() -> None:
    with pytest.raises(NotFound, match="has no `profiles`"):
        require(config_of(), "review")
