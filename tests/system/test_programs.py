"""Programs are found as Windows names them, by `PATH` and `PATHEXT`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynamic_mcp.system.programs import find_on_windows, find_program


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    first, second, current = tmp_path / "a b", tmp_path / "c", tmp_path / "current"
    for folder in (first, second, current):
        folder.mkdir()
    monkeypatch.chdir(current)
    for file in (first / "npx", first / "npx.cmd", second / "npx.exe", second / "uvx.exe", current / "evil.exe"):
        file.touch()
    (first / "tool.py").touch()
    (second / "tool.v2.exe").touch()
    return first, second


def find(command: str, folders: tuple[Path, Path], cwd: Path | None = None, **variables: str) -> Path:
    path = f'"{folders[0]}";;relative;{folders[1]}'
    return Path(find_on_windows(command, {"Path": path, **variables}, cwd=None if cwd is None else str(cwd)))


def test_a_name_without_a_suffix_is_what_windows_can_start_and_no_shell_script(folders: tuple[Path, Path]) -> None:
    first, second = folders
    assert find("npx", folders) == first / "npx.cmd"
    assert find("npx.exe", folders) == second / "npx.exe"
    assert find("uvx", folders) == second / "uvx.exe"
    assert find("tool.v2", folders) == second / "tool.v2.exe"


def test_the_first_suffix_of_pathext_wins_and_one_that_needs_another_program_is_passed_over(
    folders: tuple[Path, Path],
) -> None:
    first, _ = folders
    (first / "both.exe").touch()
    (first / "both.cmd").touch()
    assert find("both", folders) == first / "both.exe"
    assert find("both", folders, PATHEXT=".PY;.CMD;.EXE") == first / "both.cmd"
    with pytest.raises(FileNotFoundError):
        find("tool", folders, PATHEXT=".PY")


@pytest.mark.parametrize("command", ["evil", "evil.exe", "missing", ""])
def test_nothing_is_found_in_the_current_directory(folders: tuple[Path, Path], command: str) -> None:
    with pytest.raises(FileNotFoundError):
        find(command, folders)


def test_a_path_starts_at_the_directory_of_the_program(folders: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = folders
    assert find("./npx", folders, cwd=first) == first / "npx.cmd"
    assert find(str(first / "npx"), folders, cwd=tmp_path) == first / "npx.cmd"
    assert find(str(first / "tool.py"), folders) == first / "tool.py"  # which the system refuses
    with pytest.raises(FileNotFoundError):
        find("./npx", folders, cwd=tmp_path)


def test_a_program_is_the_file_that_the_system_starts_or_none(folders: tuple[Path, Path]) -> None:
    first, _ = folders
    environment = {"PATH": str(first)}
    assert find_program("npx", environment, platform="win32") == str(first / "npx.cmd")
    assert find_program("evil", environment, platform="win32") is None


@pytest.mark.posix_only("Windows knows a program by its suffix")
def test_elsewhere_a_program_is_a_file_that_may_be_run(folders: tuple[Path, Path]) -> None:
    first, second = folders
    environment = {"PATH": f"{first}{os.pathsep}{second}"}
    (second / "npx").touch(mode=0o755)
    assert find_program("npx", environment) == str(second / "npx")
    assert find_program("./npx", environment, cwd=str(second)) == str(second / "npx")
    assert find_program("./npx", environment, cwd=str(first)) is None
