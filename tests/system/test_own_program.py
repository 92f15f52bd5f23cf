"""The command that AI tools are given to start this program."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from dynamic_mcp.system.own_program import find_own_program


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where Python is in one directory and nothing of ours is on the `PATH`."""
    python = tmp_path / "Python313" / "python.exe"
    python.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme="nt": str(tmp_path / scheme / name))
    return python.parent


@pytest.mark.parametrize("scheme", ["nt", "nt_user"])
def test_windows_has_the_script_in_a_directory_beside_python_or_in_the_users(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    script = nowhere.parent / scheme / "scripts" / "dynamic-mcp.exe"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setattr(sys, "platform", "win32")
    assert find_own_program() == ([str(script)], "")


def test_the_wrapper_of_windows_names_itself_without_its_suffix(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = nowhere / "Scripts" / "dynamic-mcp.exe"
    script.parent.mkdir()
    script.touch()
    monkeypatch.setattr(sys, "argv", [str(script.with_suffix(""))])
    assert find_own_program() == ([str(script)], "")


def test_without_a_script_python_runs_the_module_and_none_of_the_current_directory(nowhere: Path) -> None:
    assert find_own_program() == ([sys.executable, "-P", "-m", "dynamic_mcp"], "")


def test_a_program_in_the_current_directory_is_not_taken_for_ours(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = nowhere.parent / "project"
    project.mkdir()
    (project / "dynamic-mcp").touch(mode=0o755)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", ".")  # as Windows searches
    assert find_own_program()[0][0] == sys.executable


def test_a_python_of_the_microsoft_store_is_warned_of(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "base_prefix", str(nowhere / "WindowsApps" / "PythonSoftwareFoundation.Python.3.13"))
    command, caveat = find_own_program()
    assert command == [sys.executable, "-P", "-m", "dynamic_mcp"]
    assert "Microsoft Store" in caveat
