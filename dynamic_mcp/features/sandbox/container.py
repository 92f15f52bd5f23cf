"""Runs a program in a container, by Podman or Docker, with the same places as without one.

The client of a container is no parent of what runs in it: its container is removed by name once the client has ended.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from dynamic_mcp.config.confinement import CannotConfine, ConfinedChild
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.config.workspace import SERVER_MARK
from dynamic_mcp.features.sandbox.places import state_folder
from dynamic_mcp.features.sandbox.words import Restrictions
from dynamic_mcp.system import paths

assert sys.platform != "win32"

_ENGINES = ("podman", "docker")
_MOST_PROCESSES = 2048
_TMPFS = "/tmp:rw,nosuid,nodev,size=1g"  # noqa: S108 - of the container
_REMOVED_WITHIN_S = 20.0


def launch(
    words: Restrictions, program: Program, environment: Mapping[str, str], streams: tuple[int, int, int]
) -> ConfinedChild:
    """Start a program in a container of its image. Raises CannotConfine and OSError."""
    engine = find_engine()
    if engine is None:
        raise CannotConfine(
            "neither `podman` nor `docker` is installed", "install one of them, or leave out `container`"
        )
    paths.make_private_dir(state_folder(words.server))
    name = f"dynamic-mcp-{secrets.token_hex(8)}"
    child = subprocess.Popen(
        [
            engine,
            "run",
            *_list_options(engine, words, program, environment, name),
            str(words.container),
            program.command,
            *program.args,
        ],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        env={**os.environ, **environment},
        cwd="/",
        start_new_session=True,
    )

    def remove() -> None:
        subprocess.run(
            [engine, "rm", "--force", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_REMOVED_WITHIN_S,
            check=False,
        )

    return ConfinedChild(child, remove)


@cache
def find_engine() -> str | None:
    """Return the file of the first engine that is installed."""
    return next((file for each in _ENGINES if (file := shutil.which(each)) is not None), None)


def _list_options(
    engine: str, words: Restrictions, program: Program, environment: Mapping[str, str], name: str
) -> Iterator[str]:
    """Yield the options of `run`. What the config names is at the same paths as outside."""
    options = ["--interactive", "--rm", "--name", name, "--read-only", "--tmpfs", _TMPFS, "--env", "TMPDIR=/tmp"]
    options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", str(_MOST_PROCESSES)]
    if words.hosts is not None:
        options += ["--network", "none"]
    if os.getuid() != 0:  # files are to have the same owner as outside
        is_podman = Path(engine).name == "podman"
        options += ["--userns", "keep-id"] if is_podman else ["--user", f"{os.getuid()}:{os.getgid()}"]
    for path, mode in _mounts(words, program):
        options += ["--volume", f"{path}:{path}:{mode}"]
    if program.cwd is not None:
        options += ["--workdir", program.cwd]
    for variable in sorted((program.own | program.requested | {SERVER_MARK}) & environment.keys()):
        options += ["--env", variable]  # its value is in the environment of the engine
    yield from options


def _mounts(words: Restrictions, program: Program) -> Iterator[tuple[str, str]]:
    write = [*words.write, *words.roots, str(state_folder(words.server))]
    if program.cwd is not None:
        write.append(program.cwd)
    read = [each for each in words.read or () if each not in write]
    places = [*((each, "ro") for each in read), *((each, "rw") for each in dict.fromkeys(write))]
    for path, mode in places:
        if ":" in path:
            raise CannotConfine(f"`{path}` has a colon, which a container cannot be given")
        if path and Path(path).exists():
            yield path, mode
