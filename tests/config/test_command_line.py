"""A server that is a command line program, as the config describes it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.config.resolved import Broken, CommandLine, Config
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]
PACK = {
    "name": "it",
    "program": "it-program",
    "description": "Does it.",
    "environment": {"IT_PROMPT": "0"},
    "inherit": ["IT_SOCKET"],
    "ceiling": "IT_CEILING",
    "commands": [
        {
            "name": "show",
            "description": "Shows.",
            "effect": "read",
            "stdin": True,
            "flags": [
                {"name": "--output", "aliases": ["-o"], "type": "path", "effect": "write"},
                {"name": "--all", "type": "boolean"},
            ],
        },
        {"name": "remote show", "description": "Shows.", "effect": "read"},
        {
            "name": "remove",
            "description": "Removes.",
            "flags": [{"name": "--id", "type": "string", "required": True}],
        },
    ],
}


@pytest.fixture
def pack(tmp_path: Path) -> str:
    """A pack beside the config."""
    (tmp_path / "it.json").write_text(json.dumps(PACK))
    return "./it.json"


def server(**cli: Any) -> dict[str, Any]:  # Any: JSON
    return {"mcpServers": {"it": {"cli": {"use": "./it.json", "commands": ["*"], **cli}}}}


def line(config: Config) -> CommandLine:
    (group,) = config.groups
    assert isinstance(group.upstream, CommandLine), group.upstream
    return group.upstream


def reason(config: Config) -> str:
    (group,) = config.groups
    assert isinstance(group.upstream, Broken)
    return group.upstream.reason


def test_only_the_named_commands_are_left(read_config: ReadConfig, pack: str) -> None:
    config = read_config(server(commands=["rem*e"]))

    assert [each.name for each in line(config).commands] == ["remove"]


def test_there_is_no_default_for_the_commands(refuse: Refuse, pack: str) -> None:
    assert "mcpServers.it.cli.commands" in str(refuse({"mcpServers": {"it": {"cli": {"use": "git"}}}}))
    assert "must not be empty" in str(refuse(server(commands=[])))


def test_a_command_that_the_pack_lacks_breaks_the_server_and_names_the_closest(
    read_config: ReadConfig, pack: str
) -> None:
    assert "did you mean `show`" in reason(read_config(server(commands=["shwo"])))
    assert "no command `nothing*`" in reason(read_config(server(effects={"nothing*": "read"})))


def test_a_denied_flag_is_gone_by_any_of_its_names(read_config: ReadConfig, pack: str) -> None:
    for glob in ("--output", "-o", "--out*"):
        (show,) = line(read_config(server(commands=["show"], deny_flags=[glob]))).commands
        assert [flag.name for flag in show.flags] == ["--all"]
        assert show.worst_effect == "read"


def test_a_denied_flag_that_no_command_has_is_a_warning_with_the_closest(read_config: ReadConfig, pack: str) -> None:
    (warning,) = read_config(server(commands=["show"], deny_flags=["--outputt"])).warnings

    assert warning.startswith("mcpServers.it.cli.deny_flags: ")
    assert "`--output`" in warning


def test_a_command_cannot_be_used_without_a_flag_that_it_needs(read_config: ReadConfig, pack: str) -> None:
    assert "without `--id`" in reason(read_config(server(deny_flags=["--id"])))


def test_the_config_may_say_what_a_command_does(read_config: ReadConfig, pack: str) -> None:
    (show,) = line(read_config(server(commands=["show"], effects={"s*": "read"}))).commands

    assert show.worst_effect == "read"


def test_a_pack_of_a_scan_offers_no_dangerous_flag_and_is_warned_of(read_config: ReadConfig, tmp_path: Path) -> None:
    flags = [{"name": "--exec", "type": "string", "danger": "may run a program"}]
    show = {"name": "show", "description": "Shows.", "flags": flags}
    (tmp_path / "it.json").write_text(json.dumps({**PACK, "commands": [show], "reviewed": False}))
    config = read_config(server())
    assert [flag.name for each in line(config).commands for flag in each.flags] == []
    assert any("the pack `it` is not reviewed" in each for each in config.warnings)


def test_stdin_can_be_taken_away(read_config: ReadConfig, pack: str) -> None:
    (show,) = line(read_config(server(commands=["show"], stdin=False))).commands

    assert not show.stdin


def test_only_few_variables_reach_the_program(read_config: ReadConfig, pack: str, tmp_path: Path) -> None:
    programs, local = map(str, (tmp_path / "bin", tmp_path / "local"))
    path = os.pathsep.join([programs, ".", "rel", local])
    variables = {"PATH": path, "LC_ALL": "C", "IT_SOCKET": "s", "GIT_DIR": "x", "A_1": "1", "B": "b"}
    made = line(read_config(server(env=["A_*"]), platform=sys.platform, **variables))

    assert made.env == {
        "PATH": f"{programs}{os.pathsep}{local}",
        "LC_ALL": "C",
        "IT_SOCKET": "s",
        "A_1": "1",
        "PAGER": "cat",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "IT_PROMPT": "0",
    }


def test_a_pack_has_the_last_word_on_its_variables(read_config: ReadConfig, pack: str) -> None:
    assert line(read_config(server(env=["*"]), IT_PROMPT="1", PAGER="less")).env["IT_PROMPT"] == "0"
    assert line(read_config(server(env=["*"]), IT_PROMPT="1", PAGER="less")).env["PAGER"] == "cat"


def test_roots_are_beside_the_config_and_end_where_the_program_looks(
    read_config: ReadConfig, pack: str, tmp_path: Path
) -> None:
    made = line(read_config(server(cwd={"roots": ["work/../src", "${B}/x"]}), B="/b"))

    assert made.roots == (str(tmp_path / "src"), str(tmp_path / "/b/x"))
    assert made.cwd == str(tmp_path / "src")
    assert made.env["IT_CEILING"] == f"{tmp_path}{os.pathsep}{tmp_path / '/b'}"


def test_a_root_without_its_variable_breaks_the_server(read_config: ReadConfig, pack: str) -> None:
    assert "`${B}` is not set" in reason(read_config(server(cwd={"roots": ["${B}"]})))


def test_the_program_is_that_of_the_pack_or_of_the_config(read_config: ReadConfig, pack: str, tmp_path: Path) -> None:
    assert line(read_config(server())).command == "it-program"
    assert line(read_config(server(command="other"))).command == "other"
    assert line(read_config(server(command="bin/it"))).command == str(tmp_path / "bin/it")


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "it"}', None])
def test_a_bad_pack_breaks_the_server_and_no_other(read_config: ReadConfig, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "it.json").write_text(text)
    document = server()
    document["mcpServers"]["other"] = {"command": "x"}

    broken, other = read_config(document).groups

    assert isinstance(broken.upstream, Broken)
    assert broken.upstream.reason.startswith("mcpServers.it.cli.use: ")
    assert not isinstance(other.upstream, Broken)


def test_an_unknown_pack_names_those_that_there_are(read_config: ReadConfig) -> None:
    assert "there is no pack `gti`" in reason(read_config(server(use="gti")))


def test_the_file_of_a_pack_is_watched(read_config: ReadConfig, pack: str, tmp_path: Path) -> None:
    assert tmp_path / "it.json" in read_config(server()).env_files


def test_the_call_may_take_a_little_longer_than_the_program(read_config: ReadConfig, pack: str) -> None:
    (group,) = read_config(server(timeout="5s")).groups
    (slow,) = read_config({"settings": {"defaults": {"timeout": {"tools": "7m"}}}, **server()}).groups

    assert isinstance(group.upstream, CommandLine)
    assert isinstance(slow.upstream, CommandLine)
    assert (group.upstream.timeout_s, slow.upstream.timeout_s) == (5.0, 420.0)
    assert group.timeouts.tools_s > 5.0
    assert slow.timeouts.tools_s > 420.0


def test_what_a_pack_says_of_effects_is_believed(read_config: ReadConfig, pack: str) -> None:
    assert read_config(server()).presentations["it"].effects.trusts_annotations


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("deny_flags", ["force"], "dashes"),
        ("effects", {"show": "unknown"}, "must be"),
        ("cwd", "/x", "must be an object"),
        ("cwd", {"roots": []}, "must not be empty"),
        ("output_limit", "5", "at least 1000"),
        ("args", [], "unknown field"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    refuse: Refuse, pack: str, member: str, value: object, words: str
) -> None:
    error = str(refuse(server(**{member: value})))

    assert f"mcpServers.it.cli.{member}" in error
    assert words in error


def test_a_command_beside_it_is_an_unknown_field(refuse: Refuse, pack: str) -> None:
    document = server()
    document["mcpServers"]["it"]["command"] = "it"

    assert "`cli`" in str(refuse(document))


def test_variables_that_are_passed_by_name_are_needed(tmp_path: Path, pack: str) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps(server(env=["TOKEN_*"], cwd={"roots": ["${SRC}"]})))

    assert find_required_variables(file, {"TOKEN_A": "1", "OTHER": "2"}).names == ("SRC", "TOKEN_A")


def test_variables_that_a_shipped_pack_passes_on_are_needed_if_they_are_set(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps(server(use="git", commands=["fetch"])))

    assert find_required_variables(file, {"SSH_AUTH_SOCK": "/s", "HOME": "/h"}).names == ("SSH_AUTH_SOCK",)
    assert find_required_variables(file, {"HOME": "/h"}).names == ()
