"""Commands that change files while others do: none loses another's change, and what is only tried changes nothing."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.windows import home_variables

TOOLS = {
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "qwen-code": ".qwen/settings.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "kiro": ".kiro/settings/mcp.json",
    "copilot-cli": ".copilot/mcp-config.json",
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home with six AI tools, each with a server of its own and one that all have."""
    home = tmp_path / "person"
    for tool, file in TOOLS.items():
        (home / file).parent.mkdir(parents=True)
        servers = {tool: {"command": tool}, "common": {"command": "common", "args": ["--same"]}}
        (home / file).write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
    for name, value in home_variables(home).items():
        monkeypatch.setenv(name, value)
    return home


def test_imports_at_once_bring_in_every_server(cli: CliRunner, home: Path) -> None:
    done = cli.run_at_once(*(["import", tool, "--yes", "-o", str(cli.config)] for tool in TOOLS))

    assert [each.code for each in done] == [0] * len(TOOLS), [each.err for each in done if each.code]
    assert set(json.loads(cli.config.read_text(encoding="utf-8"))["mcpServers"]) == {"full", "common", *TOOLS}


def test_installs_at_once_are_all_made_and_can_all_be_undone(cli: CliRunner, home: Path) -> None:
    files = [home / file for file in TOOLS.values()]
    before = [file.read_bytes() for file in files]

    done = cli.run_at_once(*(["install", tool, "-c", str(cli.config)] for tool in TOOLS))

    assert [each.code for each in done] == [0] * len(TOOLS), [each.err for each in done if each.code]
    assert all("dynamic-mcp" in json.loads(file.read_text(encoding="utf-8"))["mcpServers"] for file in files)
    ids = [deed["id"] for deed in cli.run("undo", "--list", "--json").json]
    assert len(ids) == len(TOOLS)
    undone = cli.run_at_once(*(["undo", id] for id in ids))
    assert [each.code for each in undone] == [0] * len(TOOLS), [each.err for each in undone if each.code]
    assert [file.read_bytes() for file in files] == before


def test_undone_at_once_a_change_is_undone_once(cli: CliRunner, home: Path) -> None:
    cli.run("install", "cursor", "-c", str(cli.config))

    done = cli.run_at_once(*[("undo", "1")] * 6)

    assert [each.code for each in done] == [0] * 6
    assert sum("undone: install cursor" in each.err for each in done) == 1


def test_where_nothing_was_done_there_is_nothing_to_undo(cli: CliRunner, home: Path) -> None:
    assert cli.run("undo", "--yes", XDG_STATE_HOME=str(home / "state")).err == "error: nothing to undo\n"


# --- what is only tried ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["undo"], ["undo", "1"], ["uninstall", "cursor"]], ids=" ".join)
def test_a_dry_run_says_what_would_be_taken_back_and_changes_nothing(
    cli: CliRunner, home: Path, command: list[str]
) -> None:
    cli.run("install", "cursor", "-c", str(cli.config))
    file = home / TOOLS["cursor"]
    installed = file.read_bytes()

    done = cli.run(*command, "--dry-run")

    assert (done.code, file.read_bytes()) == (0, installed)
    assert f"`{file}` will be restored" in done.err
    assert cli.run("undo", "1").code == 0
    assert file.read_bytes() != installed


# --- whose files they are --------------------------------------------------------------------------------


@pytest.mark.posix_only("modes are those of POSIX; tests/system/test_acl.py")
def test_what_is_made_for_oneself_is_for_oneself_alone(cli: CliRunner, home: Path, tmp_path: Path) -> None:
    config = tmp_path / "home" / "dynamic-mcp" / "dynamic-mcp.json"

    assert cli.run("import", "cursor", "--yes", "-o", str(config)).code == 0

    made = [config.parent, *(each for each in Path(tmp_path, "home").rglob("*") if each.is_dir())]
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}


def test_settings_that_are_read_only_stay_as_they_are(cli: CliRunner, home: Path) -> None:
    file = home / TOOLS["cursor"]
    before = file.read_bytes()
    file.chmod(0o444)

    done = cli.run("install", "cursor", "-c", str(cli.config))

    assert (done.code, file.read_bytes()) == (1, before)
    assert f"error: {file}: cannot be written: it is read-only" in done.err
