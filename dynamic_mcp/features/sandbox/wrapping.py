"""Confines a program that a library starts by itself: by an executable file, which starts it in the sandbox."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from dynamic_mcp.config.confinement import NO_SANDBOX, CannotConfine
from dynamic_mcp.features.sandbox.places import Places
from dynamic_mcp.features.sandbox.seccomp import Filter


def explain_missing() -> str:
    """Return why no program can be wrapped here; empty if one can."""
    if sys.platform != "linux":
        return NO_SANDBOX
    from dynamic_mcp.features.sandbox import bubblewrap

    return bubblewrap.explain_missing()


def wrap(file: str, folder: Path) -> str:
    """Return an executable file in this folder, which passes its arguments and streams on to the program `file`.

    The program can read itself and what belongs to the system, write nothing, and reach no network and no other
    process. The folder must be private, and stay as long as the file is used. Raises CannotConfine and OSError.
    """
    if sys.platform != "linux":
        raise CannotConfine(NO_SANDBOX)
    from dynamic_mcp.features.sandbox import bubblewrap

    if why_not := bubblewrap.explain_missing():
        raise CannotConfine(why_not, bubblewrap.suggest())
    rules = folder / "system-calls"
    rules.write_bytes(Filter(denies_unix_sockets=True, allows_namespaces=False).build())
    places = Places(file=file, cwd="", state="/", read=(file,), write=(), env={})
    command = bubblewrap.list_command(places, file, rules=9)
    starter = folder / "start"
    starter.write_text(
        f'#!/bin/sh\nulimit -c 0\nexec {shlex.join(command)} "$@" 9<{shlex.quote(str(rules))}\n', encoding="utf-8"
    )
    starter.chmod(0o700)
    return str(starter)
