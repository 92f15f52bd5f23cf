"""Places that are exchanged together, or not at all."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

import pytest

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.backup import restoration
from dynamic_mcp.features.backup.inventory import StateLocation
from dynamic_mcp.features.backup.restoration import Staged, exchange
from tests.features.backup.kept import write


class Mounted(Staged):
    """A place that cannot be exchanged, as where something is mounted."""

    @property
    def is_used(self) -> bool:
        return True

    def take_place(self) -> None:
        raise DynamicMcpError("mounted")


class Written(Staged):
    """A place with something in it that is to take the place of what is there."""

    @property
    def is_used(self) -> bool:
        return True


@pytest.mark.parametrize("is_there", [True, False])
def test_where_one_place_cannot_be_exchanged_the_others_stay_as_they_were(tmp_path: Path, *, is_there: bool) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    if is_there:
        write(folder / "x", "old")
        write(file, "old")
    one, other = Written(StateLocation("elsewhere/a", folder)), Written(StateLocation("elsewhere/b", file))
    write(one.path / "x", "new")
    write(other.path, "new")
    with pytest.raises(DynamicMcpError):
        exchange([one, other, Mounted(StateLocation("state", tmp_path / "state"))])
    assert (folder.exists(), file.exists()) == (is_there, is_there)
    if is_there:
        assert ((folder / "x").read_text(), file.read_text()) == ("old", "old")
    assert ((one.path / "x").read_text(), other.path.read_text()) == ("new", "new")

    exchange([one, other])
    assert ((folder / "x").read_text(), file.read_text()) == ("new", "new")


def refuse(path: Path) -> None:
    raise PermissionError(errno.EACCES, "a file is open", str(path))


def test_what_another_program_uses_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, which renames no directory of which a file is open."""
    first, used = tmp_path / "first", tmp_path / "used"
    staged = [Written(StateLocation("elsewhere/a", first)), Written(StateLocation("state", used))]
    for each in staged:
        write(each.target / "x", "old")
        write(each.path / "x", "new")
    rename = Path.rename
    monkeypatch.setattr(restoration, "_exchange_at_once", lambda *_: False)
    monkeypatch.setattr(Path, "rename", lambda path, to: refuse(path) if path == used else rename(path, to))
    with pytest.raises(DynamicMcpError, match="cannot be replaced, and is as it was: a file is open"):
        exchange(staged)
    assert [(each / "x").read_text() for each in (first, used)] == ["old", "old"]
    for each in staged:
        each.remove()
    assert sorted(tmp_path.iterdir()) == [first, used]


def test_what_cannot_be_given_back_is_kept_and_named_and_the_rest_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, used = tmp_path / "first", tmp_path / "used"
    staged = [Written(StateLocation(f"elsewhere/{each.name}", each)) for each in (first, used)]
    for each in staged:
        write(each.target / "x", "old")
        write(each.path / "x", "new")

    class Failing(Mounted):
        def take_place(self) -> None:
            monkeypatch.setattr(restoration, "_exchange_at_once", lambda *_: False)
            monkeypatch.setattr(Path, "rename", lambda path, to: refuse(path) if path == used else rename(path, to))
            super().take_place()

    rename = Path.rename
    with pytest.raises(DynamicMcpError, match="mounted"), caplog.at_level(logging.ERROR):
        exchange([*staged, Failing(StateLocation("state", tmp_path / "state"))])
    for each in staged:
        each.remove()
    (kept,) = tmp_path.glob(".used.kept-*")
    assert [(each / "x").read_text() for each in (first, used, kept)] == ["old", "new", "old"]
    assert f"what was there is in `{kept}`" in caplog.text
    assert sorted(tmp_path.iterdir()) == [kept, first, used]


def test_what_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged = Written(StateLocation("state", tmp_path / "state"))
    write(staged.path / "x", "new")
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(shutil, "rmtree", refuse)
        staged.remove()
    assert f"`{staged.path}` may have secrets, and cannot be removed: a file is open" in caplog.text
