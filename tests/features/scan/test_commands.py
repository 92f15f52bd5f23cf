"""`cli scan`, as a person or a script runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from tests.cli.commands import CliRunner
from tests.features.scan.programs import FakeProgram

HELP = """\
Usage: brew FILE

Brews coffee.

Options:
  --cups=N       how many
  --version      show the version
"""
SPEC = {"name": "brew", "cmd": {"flags": [{"long": ["cups"], "arg": {"name": "NUM"}}], "effect": "read"}}


@pytest.fixture
def brew(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path, {"--help": HELP})


def test_it_prints_a_pack_that_can_be_read(cli: CliRunner, brew: FakeProgram) -> None:
    done = cli.run("cli", "scan", str(brew.file), "--yes", "--from", "help")
    (command,) = library.decode(done.out.encode()).commands
    assert [(flag.name, flag.type, flag.source) for flag in command.flags] == [("--cups", "integer", "--help")]
    assert command.effect == "unknown"
    assert done.code == 0


def test_it_shows_what_it_runs_and_runs_nothing_before_somebody_agrees(cli: CliRunner, brew: FakeProgram) -> None:
    done = cli.run("cli", "scan", str(brew.file))
    assert done.code != 0
    assert f"{brew.file} [COMMAND…] --help" in done.err
    assert "--yes" in done.err
    assert brew.words == []


def test_it_writes_a_new_file_and_never_over_another(cli: CliRunner, brew: FakeProgram, tmp_path: Path) -> None:
    pack = tmp_path / "brew.json"
    assert cli.run("cli", "scan", str(brew.file), "-y", "--from", "help", "-o", str(pack)).code == 0
    assert library.read_file(pack).name == "brew"
    pack.write_text("reviewed")
    again = cli.run("cli", "scan", str(brew.file), "-y", "--from", "help", "-o", str(pack))
    assert (again.code, pack.read_text()) == (2, "reviewed")


def test_the_report_says_what_was_run_and_what_to_review(cli: CliRunner, brew: FakeProgram) -> None:
    report = cli.run("cli", "scan", str(brew.file), "-y", "--from", "help", "--json").json
    assert report["ran"] == [{"words": [str(brew.file), "--help"], "end": "exit code 0"}]
    assert report["review"]["effects"] == {"run": "unknown"}
    assert report["pack"]["name"] == "brew"


def test_a_spec_that_says_everything_runs_nothing(cli: CliRunner, brew: FakeProgram, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC))
    done = cli.run("cli", "scan", str(brew.file), "--spec", str(spec))
    (command,) = library.decode(done.out.encode()).commands
    assert (command.effect, [flag.source for flag in command.flags]) == ("read", ["usage spec"])
    assert brew.words == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-program",), "no program is named"),
        (("--", "-rf"), "not a program"),
        (("brew", "--from", "spec"), "needs a spec"),
    ],
)
def test_what_cannot_be_scanned_is_refused(cli: CliRunner, words: tuple[str, ...], said: str) -> None:
    done = cli.run("cli", "scan", *words)
    assert done.code == 2
    assert said in done.err


@pytest.mark.not_in_wine("there is no git; with one it is the same on Windows")
def test_the_output_of_a_program_is_printed_once_and_as_it_is(cli: CliRunner) -> None:
    repository = cli.folder / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    cli.configure({"git": {"cli": {"use": "git", "commands": ["status"], "cwd": {"roots": [str(repository)]}}}})
    done = cli.run("call", "git", "git_status")
    assert (done.code, done.out.count("No commits yet")) == (0, 1)
    assert "exitCode" not in done.out
    assert cli.run("call", "git", "git_status", "--json").json["structuredContent"]["exitCode"] == 0


def test_the_pack_can_be_served(cli: CliRunner, brew: FakeProgram, tmp_path: Path) -> None:
    pack = tmp_path / "brew.json"
    cli.run("cli", "scan", str(brew.file), "-y", "--from", "help", "-o", str(pack))
    cli.configure({"brew": {"cli": {"use": str(pack), "commands": ["*"], "command": str(brew.file)}}})
    assert [tool["name"] for tool in cli.run("tools", "--json").json] == ["brew_run"]
