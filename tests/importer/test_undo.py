"""What `undo` asks and says, and which changes it refuses to undo."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.journal import ChangeJournal, FileChange
from dynamic_mcp.system import paths
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


def test_a_change_that_fails_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    journal, first, second = ChangeJournal(tmp_path / "journal"), tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"old")

    def changes() -> Iterator[FileChange]:
        yield FileChange(first, b"old", b"new")
        assert first.read_bytes() == b"new", "the next change may depend on it"
        yield FileChange(second, None, b"new")
        raise DynamicMcpError("no")

    with pytest.raises(DynamicMcpError, match="no"):
        journal.apply("both", "", "now", changes())

    assert (first.read_bytes(), second.exists(), journal.entries()) == (b"old", False, [])


def test_an_undone_file_has_the_mode_again_that_it_had_before_the_change(tmp_path: Path) -> None:
    journal, file = ChangeJournal(tmp_path / "journal"), tmp_path / "a"
    file.write_bytes(b"old")
    before = stat.S_IMODE(file.stat().st_mode)
    entry = journal.apply("keep", "", "now", [FileChange(file, b"old", b"secret", is_private=True)])
    changed = stat.S_IMODE(file.stat().st_mode)
    journal.undo(entry)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"old", before)
    assert os.name != "posix" or changed == 0o600


def note_of_first_change() -> Path:
    (note,) = paths.state_dir().glob("journal/1/entry.json")
    return note


def test_a_file_that_has_changed_since_is_named_with_the_lines_and_the_backup_and_nothing_is_undone(
    world: World,
) -> None:
    file = replaced(world)
    first = world.output.read_bytes()
    file.write_text(
        file.read_text(encoding="utf-8").replace('"dynamic-mcp": {', '"dynamic-mcp": {"env": {},'), encoding="utf-8"
    )
    changed = file.read_bytes()
    for command in (["undo", "--yes"], ["undo", "2"], ["undo", "2", "1"], ["undo"], ["undo", "--dry-run"]):
        ran = world.run(*command)
        assert ran.code == 1
        assert f"`{file}` has changed since install cursor (2), so nothing was undone" in ran.err
        assert " differs" in ran.err
        assert "`dynamic-mcp uninstall cursor` removes the entry alone" in ran.err
        (backup,) = paths.state_dir().glob("journal/2/0.before")
        assert str(backup) in ran.err
        assert json.loads(backup.read_text(encoding="utf-8")) == {"mcpServers": SERVERS}
    assert (file.read_bytes(), world.output.read_bytes()) == (changed, first)


@pytest.mark.parametrize("command", [["undo", "--yes"], ["uninstall", "cursor"]], ids=" ".join)
def test_a_tool_that_has_saved_its_file_again_gets_its_servers_back_and_keeps_what_it_wrote(
    world: World, command: list[str]
) -> None:
    file = replaced(world)
    now = json.loads(file.read_text(encoding="utf-8"))
    now["mcpServers"]["c"]["command"] = "cc"
    now["mcpServers"]["new"] = {"command": "new"}
    file.write_text(json.dumps({"startups": 7, **now}), encoding="utf-8")

    ran = world.run(*command)

    assert (ran.code, f"`{file}` was restored; what has changed in it since stays" in ran.err) == (0, True)
    restored = json.loads(file.read_text(encoding="utf-8"))
    assert restored.pop("startups") == 7
    changed = {"c": {**SERVERS["c"], "command": "cc"}, "new": {"command": "new"}}
    assert restored == {"mcpServers": {**SERVERS, **changed}}


@pytest.mark.parametrize(
    ("name", "before"), [(".codex/config.toml", 'model = "x" # mine\n'), (".cursor/mcp.json", None)]
)
def test_an_entry_is_taken_out_of_a_file_that_has_other_servers_since(
    world: World, name: str, before: str | None
) -> None:
    file = world.home / name
    if before is not None:
        world.write(name, before)
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    tool = name.split("/")[0].removeprefix(".")
    assert world.run("install", tool, "-c", str(world.output)).code == 0
    if before is not None:
        file.write_text(file.read_text(encoding="utf-8") + '[mcp_servers.new]\ncommand = "new"\n', encoding="utf-8")
    else:
        now = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(
            json.dumps({"mcpServers": {**now["mcpServers"], "new": {"command": "new"}}}), encoding="utf-8"
        )

    assert world.run("undo", "--yes").code == 0

    assert "dynamic-mcp" not in file.read_text(encoding="utf-8")
    assert "new" in file.read_text(encoding="utf-8")
    assert file.read_text(encoding="utf-8").startswith(before or "{")


def test_of_several_changes_all_are_undone_or_none(world: World) -> None:
    file = replaced(world)
    world.run("disable", "a", "-c", str(world.output))
    before = file.read_bytes()
    ran = world.run("undo", "2", "1")
    assert f"`{world.output}` has changed since import cursor (1)" in ran.err
    assert file.read_bytes() == before


def test_an_entry_that_has_changed_is_removed_and_the_rest_of_the_file_stays(world: World) -> None:
    file = replaced(world)
    file.write_text(
        file.read_text(encoding="utf-8").replace('"dynamic-mcp": {', '"dynamic-mcp": {"env": {},'), encoding="utf-8"
    )
    dry = world.run("uninstall", "cursor", "--dry-run")
    assert f"the entry `dynamic-mcp` would be removed from `{file}`" in dry.err
    assert "differs from what `install` wrote: its other changes of the file stay" in dry.err
    assert world.run("uninstall", "cursor").code == 0
    assert list(json.loads(file.read_text(encoding="utf-8"))["mcpServers"]) == ["c"]


@pytest.mark.parametrize("damage", ['"changes": 1', '"changes": [{}]', '"x": 1'])
def test_a_note_that_is_not_of_this_form_is_said_and_changes_nothing(world: World, damage: str) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    note = note_of_first_change()
    text = note.read_text(encoding="utf-8")
    note.write_text(text.replace('"changes": [', f'{damage}, "y": [', 1), encoding="utf-8")
    assert note.read_text(encoding="utf-8") != text

    for command in (["undo", "--yes"], ["undo", "1"]):
        ran = world.run(*command)
        assert ran.code != 0
        assert "change 1 is skipped: " in ran.err
    assert world.output.exists()


def test_the_note_of_a_newer_version_is_named_and_left_alone(world: World) -> None:
    world.cursor(**SERVERS)
    world.run("import", "cursor", "--yes")
    note = note_of_first_change()
    newer = note.read_text(encoding="utf-8").replace('"form": 1', '"form": 2')
    note.write_text(newer, encoding="utf-8")

    for command in (["undo", "--yes"], ["undo", "--list"]):
        ran = world.run(*command)
        assert "change 1 is skipped: " in ran.err
        assert "was written by a newer version of dynamic-mcp" in ran.err
    assert "nothing to undo" in world.run("undo", "--yes").err
    assert world.output.exists()
    assert note.read_text(encoding="utf-8") == newer
