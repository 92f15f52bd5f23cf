"""What is found wrong with command line programs, without starting them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Level


def findings(folder: Path, **cli: Any) -> dict[str, str]:  # Any: JSON
    """The errors in a config with one program, by their places."""
    file = folder / "dynamic-mcp.json"
    entry = {"use": "git", "commands": ["status"], **cli}
    file.write_text(json.dumps({"mcpServers": {"it": {"cli": entry}}}))
    _, found = check_file(file, {"PATH": str(folder)})
    return {each.where: each.what for each in found if each.level is Level.ERROR}


def test_a_pack_that_nobody_has_reviewed_is_a_warning_that_says_what_to_do(tmp_path: Path) -> None:
    command = {"name": "run", "description": "Runs.", "effect": "read"}
    pack = {"name": "it", "program": "it", "description": "It.", "reviewed": False, "commands": [command]}
    (tmp_path / "it.json").write_text(json.dumps(pack))
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": {"cli": {"use": "it.json", "commands": ["run"]}}}}))

    _, found = check_file(file, {"PATH": str(tmp_path)})

    [warning] = [each for each in found if each.level is Level.WARNING]
    assert (warning.where, warning.hint) == ("mcpServers.it.cli.use", "")
    assert "set its `reviewed` to true" in warning.what


def program(folder: Path, name: str) -> Path:
    file = folder / (f"{name}.exe" if sys.platform == "win32" else name)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_a_program_that_is_there_is_fine(tmp_path: Path) -> None:
    program(tmp_path, "git")

    assert findings(tmp_path, cwd={"roots": ["."]}) == {}


def test_a_program_that_is_not_on_the_path_is_found(tmp_path: Path) -> None:
    assert findings(tmp_path) == {"mcpServers.it.cli.command": "the command `git` was not found on its `PATH`"}


def test_a_path_that_is_no_program_is_found(tmp_path: Path) -> None:
    found = findings(tmp_path, command="./bin/git")

    assert "does not exist or is not executable" in found["mcpServers.it.cli.command"]


def test_a_root_that_is_no_directory_is_found(tmp_path: Path) -> None:
    program(tmp_path, "git")

    found = findings(tmp_path, cwd={"roots": [".", "gone"]})

    assert found == {"mcpServers.it.cli.cwd.roots[1]": f"the directory `{tmp_path / 'gone'}` does not exist"}


def test_an_unknown_command_is_found(tmp_path: Path) -> None:
    program(tmp_path, "git")

    assert "did you mean `status`" in findings(tmp_path, commands=["stauts"])["mcpServers.it"]
