"""Why a program could not be started, in words, and what helps."""

from __future__ import annotations

import errno
from pathlib import Path

from dynamic_mcp.config.resolved import Program


def explain_failure(program: Program, exc: Exception) -> str:
    """Say why a program could not be started."""
    if program.cwd and isinstance(exc, FileNotFoundError | NotADirectoryError) and not Path(program.cwd).is_dir():
        return f"the directory `{program.cwd}` does not exist"
    command = f"the command `{program.command}`"
    match exc:
        case FileNotFoundError():
            return f"{command} was not found"
        case PermissionError() if Path(program.cwd or "", program.command).is_dir():
            return f"{command} is a directory"
        case PermissionError():
            return f"{command} is not executable"
        case OSError(errno=errno.E2BIG):
            name = max(program.env, key=lambda each: len(program.env[each]), default="")
            return f"{command} cannot be started: its arguments and environment are too long, above all `{name}`"
        case OSError(errno=errno.EAGAIN):
            return f"{command} cannot be started: the system allows no more processes"
        case OSError(strerror=str(why)):
            return f"{command} cannot be started: {why.lower()}"
        case _:
            return f"{command} cannot be started: {exc}"


def suggest_remedy(exc: Exception) -> str:
    """Say what a person can do about it; empty if nothing is known."""
    match exc:
        case FileNotFoundError():
            return "install it, or give its full path; the `PATH` of the AI tool may not be that of your shell"
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "let programs have more open files (`ulimit -n`), or enable fewer servers"
        case OSError(errno=errno.EAGAIN):
            return "let programs start more processes (`ulimit -u`), or enable fewer servers"
        case _:
            return ""
