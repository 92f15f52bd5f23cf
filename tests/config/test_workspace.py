"""One config file, resolved for several workspaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.read import parse, read_all
from dynamic_mcp.config.resolved import Broken, Config, Program
from dynamic_mcp.config.workspace import Workspace, launch_of

TOKEN = {"command": "x", "env": {"TOKEN": "${TOKEN}"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dynamic-mcp.json"


def save(file: Path, *servers: object, **settings: object) -> None:
    entries = {f"s{number}": server for number, server in enumerate(servers)}
    file.write_text(json.dumps({"mcpServers": entries, "settings": settings}))


def program(config: Config) -> Program:
    upstream = config.groups[0].upstream
    assert isinstance(upstream, Program)
    return upstream


def test_a_parsed_config_is_resolved_for_each_workspace_without_its_file(file: Path) -> None:
    save(file, TOKEN)
    parsed = parse(file)
    file.unlink()

    tokens = [program(parsed.resolve_for(Workspace("/w", {"TOKEN": each}))).env["TOKEN"] for each in ("a", "b")]

    assert tokens == ["a", "b"]


def test_a_program_without_a_directory_starts_in_that_of_the_workspace_or_else_in_the_proxys_own(file: Path) -> None:
    save(file, {"command": "x"}, {"command": "x", "cwd": "sub"})
    configs = read_all(file, {}, [workspace := Workspace("/work", {})])

    def directories(config: Config) -> list[object]:
        return [each.upstream.cwd for each in config.groups if isinstance(each.upstream, Program)]

    assert directories(configs.base) == [None, str(file.parent / "sub")]
    assert directories(configs.by_workspace[workspace]) == ["/work", str(file.parent / "sub")]


def test_a_missing_variable_breaks_a_server_for_its_own_workspace_only(file: Path) -> None:
    save(file, {"command": "${TOOL}"})
    able, unable = Workspace("/w", {"TOOL": "x"}), Workspace("/w", {})

    by_workspace = read_all(file, {}, [able, unable]).by_workspace

    assert isinstance(by_workspace[able].groups[0].upstream, Program)
    assert isinstance(by_workspace[unable].groups[0].upstream, Broken)


def test_the_env_files_of_every_workspace_are_files_of_the_config(file: Path) -> None:
    save(file, {"command": "x", "env_file": "${NAME:-base}.env"})

    configs = read_all(file, {}, [Workspace("/w", {"NAME": "mine"})])

    assert configs.files == {file, file.parent / "base.env", file.parent / "mine.env"}


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"TERM": "a", "COLORTERM": "b", "LC_TERMINAL": "c", "XDG_SESSION_ID": "1"}, {"TERM": "z"}, True),
        ({"NOT_PASSED_ON": "a"}, {"NOT_PASSED_ON": "b", "NOR_THIS": "c"}, True),
        ({"LANG": "a"}, {"LANG": "b"}, False),
        ({"TOKEN": "a"}, {"TOKEN": "b"}, False),
        ({"DISPLAY": ":0"}, {"DISPLAY": ":1"}, False),
    ],
)
def test_programs_start_the_same_unless_they_get_another_variable_that_means_something_to_them(
    file: Path, first: dict[str, str], second: dict[str, str], *, is_same: bool
) -> None:
    save(file, {"command": "x", "inherit_env": ["TOKEN"]})
    one, other = (launch_of(parse(file).resolve(each).groups[0].upstream) for each in (first, second))

    assert (one == other) is is_same


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"PSMODULEPATH": "C:\\Windows"}, {"PSMODULEPATH": "C:\\Users\\me;C:\\Windows"}, True),
        ({"PATHEXT": ".COM;.EXE"}, {"PATHEXT": ".COM;.EXE;.CPL"}, True),
        ({"PATHEXT": ".COM;.EXE"}, {"PATHEXT": ".COM"}, False),
    ],
)
def test_on_windows_programs_start_the_same_from_power_shell_as_from_an_editor(
    file: Path, first: dict[str, str], second: dict[str, str], *, is_same: bool
) -> None:
    save(file, {"command": "x"})
    one, other = (
        launch_of(parse(file, platform="win32").resolve(each).groups[0].upstream, platform="win32")
        for each in (first, second)
    )

    assert (one == other) is is_same


@pytest.mark.parametrize(("platform", "is_same"), [("win32", True), ("linux", False)])
def test_on_windows_the_case_of_a_directory_does_not_count(file: Path, platform: str, *, is_same: bool) -> None:
    save(file, {"command": "x"})
    one, other = (
        launch_of(parse(file).resolve_for(Workspace(each, {})).groups[0].upstream, platform=platform)
        for each in ("/work/A", "/work/a")
    )

    assert (one == other) is is_same


def test_a_variable_of_a_window_counts_where_the_config_sets_it(file: Path) -> None:
    save(file, {"command": "x", "env": {"TERM": "${TERM}"}})
    one, other = (launch_of(parse(file).resolve({"TERM": each}).groups[0].upstream) for each in ("a", "b"))

    assert one != other


def test_neither_a_workspace_nor_a_parsed_config_shows_what_may_be_secret(file: Path) -> None:
    save(file, {"command": "x", "env": {"TOKEN": "hunter2"}})

    assert repr(Workspace("/work", {"TOKEN": "hunter2"})) == "<Workspace /work>"
    assert "hunter2" not in repr(parse(file))


def test_a_version_differs_if_only_workspaces_still_to_come_would_notice(file: Path) -> None:
    save(file, {"command": "x", "args": ["${A:-one}"]})
    served = read_all(file, {"A": "set"})
    assert not read_all(file, {"A": "set"}).differs_from(served)

    save(file, {"command": "x", "args": ["${A:-two}"]})

    assert read_all(file, {"A": "set"}).differs_from(served)
