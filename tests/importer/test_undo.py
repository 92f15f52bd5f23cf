"""What `undo` asks before, what it says, and what becomes of files that their programs wrote anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.importer.world import World

SERVERS = {name: {"command": name, "args": ["-y", name]} for name in ("a", "b", "c", "d")}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def replaced(world: World, *, but: str = "c") -> Path:
    """Cursor with its four servers replaced but for one."""
    file = world.cursor(**SERVERS)
    world.run("import", "cursor", "--exclude", but, "--yes")
    assert world.run("install", "cursor", "--replace", "-c", str(world.output)).code == 0
    return file


def test_the_latest_change_is_undone_only_if_that_is_said(world: World) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    ran = world.run("undo")
    assert ran.code == 2
    assert f"`{world.output}` will be removed" in ran.err
    assert "dynamic-mcp undo 1" in ran.err
    assert world.output.exists()
    assert world.run("undo", "1").code == 0
    assert not world.output.exists()


def test_what_is_put_back_and_what_is_taken_out_of_a_changed_file_is_named(world: World) -> None:
    file = replaced(world)
    text = file.read_text().replace('"c"', '"kept"', 1)
    file.write_text(text)
    said = world.run("undo", "--yes").err
    assert "removed: `mcpServers.dynamic-mcp`" in said
    assert "restored: `mcpServers.a`, `mcpServers.b`, `mcpServers.d`" in said


@pytest.mark.parametrize("but", ["a", "b", "c", "d", "none"])
@pytest.mark.parametrize("indent", [4, "\t", 2, None])
def test_servers_go_back_among_their_neighbours_in_the_manner_of_a_file_that_was_written_anew(
    world: World, indent: Any, but: str
) -> None:
    file = replaced(world, but=but)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({"new": 1, **document}, indent=indent))
    world.run("undo", "--yes")
    assert file.read_text() == json.dumps({"new": 1, "mcpServers": SERVERS}, indent=indent)


def test_a_neighbour_that_is_gone_is_no_obstacle(world: World) -> None:
    file = replaced(world)
    document = json.loads(file.read_text())
    document["mcpServers"] = {"z": {"command": "z"}}
    file.write_text(json.dumps(document, indent=2))
    world.run("undo", "--yes")
    assert list(json.loads(file.read_text())["mcpServers"]) == ["z", "a", "b", "d"]


def test_comments_and_lines_around_what_goes_back_stay(world: World) -> None:
    text = (
        '{\n  "mcpServers": {\n    // first\n    "a": {"command": "a"}, // a\n    // second\n'
        '    "b": {"command": "b"},\n    // third\n    "c": {"command": "c"} // c\n  }\n}\n'
    )
    file = world.write(".cursor/mcp.json", text)
    world.run("import", "cursor", "--exclude", "b", "--yes")
    world.run("install", "cursor", "--replace", "-c", str(world.output))
    file.write_text(file.read_text().replace('"command": "b"', '"command": "bb"'))
    world.run("undo", "--yes")
    made = file.read_text()
    assert [made.count(each) for each in ("// first", "// second", "// third", '"bb"')] == [1, 1, 1, 1]
    assert list(world_servers(made)) == ["a", "b", "c"]


def world_servers(text: str) -> dict[str, Any]:
    from dynamic_mcp.config import jsonc

    document = jsonc.loads(text)
    assert isinstance(document, dict)
    servers: dict[str, Any] = document["mcpServers"]
    return servers


def note_of_first_change() -> Path:
    (note,) = Path(os.environ["XDG_STATE_HOME"]).glob("**/journal/1/deed.json")
    return note


@pytest.mark.parametrize("levels", [200, 900, 100_000])
def test_a_note_that_is_nested_too_deeply_is_no_change_that_could_be_undone(world: World, levels: int) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    note = note_of_first_change()
    nested = "[" * levels + "]" * levels
    note.write_text(note.read_text().replace('"edits": []', f'"edits": {nested}', 1))
    assert nested in note.read_text()

    ran = world.run("undo", "--yes")

    assert ran.code != 0
    assert "nothing to undo" in ran.err
    assert "Traceback" not in ran.err
    assert world.output.exists()


@pytest.mark.parametrize("damage", ['"edits": 1', '"edits": [1]', '"edits": [{}]', '"x": 1'])
def test_a_note_that_is_not_of_this_form_is_said_and_changes_nothing(world: World, damage: str) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    note = note_of_first_change()
    note.write_text(note.read_text().replace('"edits": []', damage, 1))

    ran = world.run("undo", "--yes")

    assert ran.code != 0
    assert "is not a note of this journal" in ran.err
    assert world.output.exists()


def test_the_note_of_a_newer_version_is_no_change_that_this_one_could_undo(world: World) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    note = note_of_first_change()
    newer = note.read_text().replace('"form": 1', '"form": 2')
    note.write_text(newer)

    ran = world.run("undo", "--yes")

    assert ran.code != 0
    assert "nothing to undo" in ran.err
    assert world.output.exists()
    assert note.read_text() == newer


def test_a_memory_that_cannot_be_read_stops_no_import_and_is_left_alone_until_something_is_imported(
    world: World,
) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    (memory,) = Path(os.environ["XDG_STATE_HOME"]).glob("**/imports/*.json")
    memory.write_text("{")

    tried = world.run("import", "cursor", "--dry-run", "-v")
    assert "so more may be asked" in tried.err
    assert memory.read_text() == "{"
    assert world.run("import", "cursor", "--yes").code == 0
    assert "servers" in memory.read_text()
