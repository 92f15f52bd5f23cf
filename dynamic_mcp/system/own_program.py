"""The command with which other programs start this one: a full path that stays valid."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.system.extras import is_temporary

_NAME = "dynamic-mcp"


def find_own_program() -> tuple[list[str], str]:
    """Return the command that starts this program, and a warning if it may disappear.

    It is the running script, else the one next to this Python, else the one on the `PATH`; one in a cache is the
    last resort. It is a full path, because a tool's `PATH` may differ from ours.
    """
    if sys.platform == "win32" and "WindowsApps" in Path(sys.base_prefix).parts:
        return _find_command()[0], (
            "this Python is from the Microsoft Store, and Windows hides from other programs what it creates below"
            " `AppData`, settings of AI tools among it; install dynamic-mcp with another Python"
        )
    return _find_command()


def _find_command() -> tuple[list[str], str]:
    scripts = list(dict.fromkeys(_find_scripts()))
    lasting = [file for file in scripts if not is_temporary(file)]
    if lasting:
        return [str(lasting[0])], ""
    if scripts:
        return [str(scripts[0])], (
            f"`{scripts[0]}` is in a cache that may be cleared; install dynamic-mcp permanently"
            " (`uv tool install` or `pipx install`) and run this command again"
        )
    # with -P, since the tool starts it in a project that may have a `dynamic_mcp` of its own
    return [sys.executable, "-P", "-m", "dynamic_mcp"], ""


def _find_scripts() -> Iterator[Path]:
    script = Path(sys.argv[0]).absolute()
    folders = [script.parent] if script.stem == _NAME else []
    if sys.platform == "win32":  # where `python.exe` is beside `Scripts`, except in virtual environments
        folders += [Path(sysconfig.get_path("scripts")), Path(sysconfig.get_path("scripts", "nt_user"))]
    for folder in (*folders, Path(sys.executable).parent):
        for file in (folder / _NAME, folder / f"{_NAME}.exe"):
            if file.is_file():
                yield file
    # Windows would also look into the current directory
    if (on_path := shutil.which(_NAME)) and (file := Path(on_path).absolute()).parent != Path.cwd():
        yield file
