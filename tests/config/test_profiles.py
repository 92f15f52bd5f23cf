"""Profiles in the config: their names and defaults, and the command line that chooses one."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.access import Profile, ProfileTools
from dynamic_mcp.config.location import choose_profile, split_profile
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.errors import ConfigError
from tests.config.fixtures import ReadConfig

words = st.lists(st.sampled_from(("a.json", "serve", "--http", "-v", "tools", "")), max_size=4)


@pytest.mark.parametrize("name", ["", " ", "a/b", "/", ".", "..", "a\nb", "a\0", "x" * 65])
def test_a_name_that_cannot_be_part_of_a_path_is_refused(read_config: ReadConfig, name: str) -> None:
    with pytest.raises(ConfigError, match="the name of a profile must be 1 to 64 printable characters"):
        read_config({"mcpServers": {"a": {"command": "x"}}, "profiles": {name: {}}})


@pytest.mark.parametrize("name", ["review", "x-ray", "two words é", "...", "a%2Fb", "profile", "x" * 64])
def test_other_names_are_taken_as_they_are(read_config: ReadConfig, name: str) -> None:
    config = read_config({"mcpServers": {"a": {"command": "x"}}, "profiles": {name: {}}})
    assert config.profiles == {name: Profile(name)}


def test_profiles_keep_their_order_and_their_fields(read_config: ReadConfig) -> None:
    given_profiles = {
        "z": {"servers": ["a*"], "tools": {"include": ["r*"], "exclude": ["x"]}, "direct": True},
        "a": {"servers": [], "direct": False, "instructions": "Hello.", "roles": ["dev"]},
    }
    config = read_config({"mcpServers": {"a": {"command": "x"}}, "profiles": given_profiles})
    assert list(config.profiles.values()) == [
        Profile("z", servers=("a*",), tools=ProfileTools(("r*",), ("x",)), direct=DirectTools(is_all=True)),
        Profile("a", servers=(), direct=DirectTools(), instructions="Hello.", roles=("dev",)),
    ]


@pytest.mark.parametrize("settings", [{}, {"scripts": False}])
def test_a_profile_that_runs_scripts_needs_the_packages_for_them(
    read_config: ReadConfig, monkeypatch: pytest.MonkeyPatch, settings: dict[str, bool]
) -> None:
    def read(*, scripts: bool) -> Config:
        profiles = {"a": {"scripts": scripts}, "b": {}}
        return read_config({"mcpServers": {"a": {"command": "x"}}, "settings": settings, "profiles": profiles})

    monkeypatch.setitem(sys.modules, "pydantic_monty", pytest)
    assert read(scripts=True).scripts is None
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    assert read(scripts=False).scripts is None
    with pytest.raises(ConfigError, match="`scripts` needs packages that are missing"):
        read(scripts=True)


@given(words, words, st.sampled_from(("review", "", "--profile=x", "serve")))
def test_the_one_profile_is_taken_out_of_a_command_line(before: list[str], after: list[str], name: str) -> None:
    if not name.startswith("--profile"):
        assert split_profile([*before, "--profile", name, *after]) == ([*before, *after], name)
    assert split_profile([*before, f"--profile={name}", *after]) == ([*before, *after], name)
    assert split_profile([*before, *after]) == ([*before, *after], None)


@pytest.mark.parametrize(
    "line", [["--profile"], ["a.json", "--profile"], ["--profile", "a", "--profile=b"], ["--profiles", "x"]]
)
def test_a_command_line_that_is_not_plain_is_left_to_those_who_can_say_what_is_wrong(line: list[str]) -> None:
    assert split_profile(line) == (line, None)


def test_the_option_comes_before_the_variable_and_an_empty_variable_is_none() -> None:
    assert choose_profile("a", {"DYNAMIC_MCP_PROFILE": "b"}) == "a"
    assert choose_profile(None, {"DYNAMIC_MCP_PROFILE": "b"}) == "b"
    assert choose_profile(None, {"DYNAMIC_MCP_PROFILE": ""}) is None
    assert choose_profile("", {"DYNAMIC_MCP_PROFILE": "b"}) == ""
