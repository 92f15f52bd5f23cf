"""What `install`, `uninstall`, `undo` and `init` have changed is in the audit log of the config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importer.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = World(tmp_path, monkeypatch, capsys)
    made.output.write_text(
        json.dumps({"mcpServers": {}, "settings": {"audit": {"path": str(tmp_path / "audit")}}}), encoding="utf-8"
    )
    return made


def told(world: World) -> list[tuple[str, Any]]:  # Any: whatever is on a line
    files = sorted((world.project.parent / "audit").glob("????-??-??.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert {line["config"] for line in lines} <= {str(world.output)}
    return [(line["event"], line["detail"]) for line in lines]


def test_what_is_installed_and_taken_away_is_recorded(world: World) -> None:
    world.cursor(time={"command": "uvx"})
    assert world.run("install", "cursor", "--dry-run").code == 0
    assert told(world) == []
    world.run("install", "cursor")
    world.run("install", "cursor")  # which changes nothing
    world.run("uninstall", "cursor", "--dry-run")
    world.run("uninstall", "cursor")
    assert told(world) == [
        ("tool.changed", {"command": "install", "tool": "cursor", "scope": "user"}),
        ("tool.changed", {"command": "uninstall", "tool": "cursor", "scope": "user"}),
    ]


def test_servers_that_an_install_replaces_are_recorded_by_name(world: World) -> None:
    world.cursor(time={"command": "uvx", "env": {"TOKEN": "hunter2"}})
    world.run("import", "cursor", "--yes")
    world.run("install", "cursor", "--replace")
    event, detail = told(world)[-1]
    assert (event, detail["command"], detail.get("removed") or detail.get("disabled")) == (
        "tool.changed",
        "install",
        ["time"],
    )
    assert "hunter2" not in json.dumps(told(world))


@pytest.mark.parametrize("command", [("import", "cursor", "--yes"), ("install", "cursor")])
def test_what_is_undone_is_recorded_with_what_it_was(world: World, command: tuple[str, ...]) -> None:
    world.cursor(time={"command": "uvx"})
    world.run(*command)
    world.run("undo", "--dry-run")
    assert len(told(world)) == 1
    world.run("undo", "--yes")
    event, detail = told(world)[-1]
    assert (event, detail["command"]) == ("change.undone", "undo")
    assert detail["of"].startswith(command[0])
    assert world.run("undo", detail["change"]).code == 0  # it is undone already
    assert len(told(world)) == 2


def test_a_setup_is_recorded_with_its_servers_and_tools(world: World) -> None:
    world.cursor(time={"command": "no-such-program"})
    ran = world.run("init", "--yes")
    assert ran.code == 0, ran.err
    (event, detail), *_ = told(world)
    assert (event, detail["command"]) == ("config.changed", "init")
    assert detail["tools"] == ["cursor"]
