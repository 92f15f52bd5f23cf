import os
import re
import stat
import sys
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS

from dynamic_mcp.system import paths

posix = pytest.mark.skipif(sys.platform == "win32", reason="file modes are a POSIX matter")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def check_places() -> None:
    places = [paths.state_dir(), paths.cache_dir(), paths.config_dir()]
    assert len(set(places)) == len(places)
    assert all("dynamic-mcp" in place.parts for place in places)
    assert not any(place.is_relative_to(paths.state_dir()) for place in places[1:])


def test_each_kind_of_file_has_a_place_of_its_own() -> None:
    check_places()


@posix
def test_each_kind_of_file_has_a_place_of_its_own_on_macos_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.delenv(f"XDG_{name}_HOME")
    monkeypatch.setattr(platformdirs, "PlatformDirs", MacOS)
    assert "Application Support" in str(paths.state_dir())
    check_places()


def test_what_is_written_replaces_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "token.json"

    paths.write_private(file, b"old, and longer")
    paths.write_private(file, b"new\r\n")

    assert file.read_bytes() == b"new\r\n"
    assert list(tmp_path.iterdir()) == [file]


@posix
def test_file_and_new_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "token.json"

    paths.write_private(file, b"x")

    assert [mode(path) for path in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]


@posix
def test_a_file_that_others_could_read_is_private_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    file.touch()
    file.chmod(0o644)

    paths.write_private(file, b"x")

    assert mode(file) == 0o600


@posix
def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    link = tmp_path / "token.json"
    link.symlink_to(precious)

    paths.write_private(link, b"x")

    assert precious.read_bytes() == b"mine"
    assert not link.is_symlink()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    (target / "full").mkdir(parents=True)

    with pytest.raises(OSError, match=re.escape(repr(os.fspath(target))[1:-1])):
        paths.write_private(target, b"x")

    assert list(tmp_path.iterdir()) == [target]


# --- a directory that must be nobody else's -----------------------------------------------------------------------


@posix
@pytest.mark.parametrize("wide", [0o755, 0o777, 0o770, 0o2775])
def test_our_own_directory_is_made_private(tmp_path: Path, caplog: pytest.LogCaptureFixture, wide: int) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    directory.chmod(wide)
    paths.claim_private_dir(directory)
    assert mode(directory) & 0o777 == 0o700
    assert f"{directory} could be used by others and is now private" in caplog.text


@posix
def test_a_directory_that_is_private_is_left_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths.claim_private_dir(tmp_path / "a" / "b")
    paths.claim_private_dir(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    assert caplog.text == ""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give directories away")
def test_a_directory_of_another_user_is_refused_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir(0o700)
    os.chown(directory, 65534, -1)
    with pytest.raises(PermissionError, match="belongs to another user; use a directory of your own"):
        paths.claim_private_dir(directory)
    assert mode(directory) == 0o700


def test_a_locked_file_is_locked_once_and_its_content_can_be_read_and_changed(tmp_path: Path) -> None:
    file = tmp_path / "held"
    holder, other = paths.open_to_append(file), paths.open_to_append(file)
    try:
        assert paths.try_lock(holder)
        assert not paths.try_lock(other)
        os.write(holder, b"one ")
        os.write(other, b"two")
        assert file.read_bytes() == b"one two"
        paths.unlock(holder)
        assert paths.try_lock(other)
    finally:
        os.close(holder)
        os.close(other)
    assert paths.FileLock(file).try_acquire()
