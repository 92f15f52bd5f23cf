"""The program of a server is looked for as it will be started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.doctor.files import find_program


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere a name has no suffix")
def test_the_script_of_a_program_is_found_and_one_of_the_current_directory_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "npx.cmd"
    script.write_text("@echo off\n")
    monkeypatch.chdir(tmp_path)
    assert find_program(Program(command="npx", args=(), env={"PATH": str(tmp_path)}, cwd=None)) == str(script)
    assert find_program(Program(command="npx", args=(), env={"PATH": ""}, cwd=None)) is None
