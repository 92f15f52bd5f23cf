"""Finds the file of a program as the system does that starts it: on Windows by `PATH` and `PATHEXT`.

A name is never looked up in the current directory, as some functions of Windows and of Python do.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

INSTALL_IT = "install it, or give its full path"
# What Windows can start without asking which program opens such files.
_RUNNABLE = (".com", ".exe", ".bat", ".cmd")


def find_program(
    command: str, environment: Mapping[str, str], *, cwd: str | None = None, platform: str = sys.platform
) -> str | None:
    """Return the file that the system runs for a command, or None. A relative path starts at `cwd`."""
    if platform == "win32":
        try:
            return find_on_windows(command, environment, cwd=cwd)
        except FileNotFoundError:
            return None
    import shutil

    if os.sep in command and cwd is not None:
        command = str(Path(cwd) / command)
    return shutil.which(command, path=environment.get("PATH", os.defpath))


def advise_missing(command: str, environment: Mapping[str, str], otherwise: str = INSTALL_IT) -> str:
    """Return what to do about a command that was not found: `otherwise`, unless its arguments are in it."""
    first, *args = command.split() or [""]
    if args and find_program(first, environment) is not None:
        words = ", ".join(json.dumps(each, ensure_ascii=False) for each in args)
        return (
            f'the arguments belong in `args`: `"command": {json.dumps(first, ensure_ascii=False)}, "args": [{words}]`'
        )
    return otherwise


def find_on_windows(command: str, environment: Mapping[str, str], *, cwd: str | None = None) -> str:
    """Return the file of a command, looked up in `PATH` and `PATHEXT` of `environment`. Raises FileNotFoundError.

    `npx` is `npx.cmd` where that exists, and not the shell script `npx` beside it. A relative path starts at `cwd`.
    """
    variables = {name.upper(): value for name, value in environment.items()}
    has_directory = os.path.splitdrive(command)[0] or "/" in command or "\\" in command
    folders = [cwd or "."] if has_directory else list(_absolute(variables.get("PATH", "")))
    for folder in folders:
        for name in _names(command, variables.get("PATHEXT", "")):
            file = Path(folder, name)
            if file.is_file():
                return str(file.absolute())
    file = Path(folders[0], command) if has_directory else Path()
    if has_directory and file.exists():
        return str(file.absolute())  # a directory, or without the name of a program: the system says what is wrong
    raise FileNotFoundError


def _names(command: str, pathext: str) -> Iterator[str]:
    """Yield the names under which a command may be found: with the suffix that it has, or else with each."""
    suffixes = [each for each in pathext.lower().split(";") if each in _RUNNABLE] or _RUNNABLE
    if command.lower().endswith(_RUNNABLE):
        yield command
    yield from (command + suffix for suffix in suffixes)


def _absolute(path: str) -> Iterator[str]:
    """Yield the absolute directories of a `PATH`; some installers put quotes around theirs."""
    folders = (each.strip().strip('"') for each in path.split(";"))
    return (each for each in folders if os.path.isabs(each))  # noqa: PTH117 - of a text that may be no path
