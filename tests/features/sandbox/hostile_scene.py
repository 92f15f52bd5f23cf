"""What a hostile program tries to change: files, another process, sockets and shared memory; and whether it has."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.program import BOUND_S, UPSTREAMS

PYTHON = "/usr/bin/python3"
NOBODY = 65534
_SEGMENT_BYTES, _CREATE = 4096, 0o1666
_WITH_ATTRIBUTES = hasattr(os, "listxattr")


class Scene:
    """A directory, a process and sockets that do not belong to a confined program, which works in `inside`."""

    def __init__(self, folder: Path, user: int | None, victim: int, abstract: str, segment: int) -> None:
        self.outside, self.inside, self.home = folder / "outside", folder / "inside", folder / "home"
        self.user = user
        self._victim = victim
        self._target = {"outside": str(self.outside), "victim": victim, "abstract": abstract, "segment": segment}

    def attack(
        self, words: Mapping[str, object] | None, *, path: str | None = None, only: Iterable[str] = ()
    ) -> dict[str, str]:
        """Run the hostile program confined by these words, and return what came of each attempt, or only of some."""
        arguments = [str(UPSTREAMS / "hostile.py"), json.dumps(self._target), str(self.outside), *only]
        result = self.run(words, PYTHON, arguments, path=path)
        assert result.get("code") == 0, result
        attempts: dict[str, str] = json.loads(result["stdout"])
        return attempts

    def run(
        self, words: Mapping[str, object] | None, command: str, arguments: list[str], *, path: str | None = None
    ) -> dict[str, Any]:  # Any: JSON
        """Run a program confined by these words; `path` is the `PATH` in which our own helpers are found."""
        program = {"command": command, "args": arguments, "cwd": str(self.inside)}
        all_words = None if words is None else {"server": "hostile", "home": str(self.home), **words}
        runner = Path(__file__).with_name("confined_run.py")
        user = [] if self.user is None else [str(self.user)]
        done = subprocess.run(
            [sys.executable, str(runner), json.dumps(all_words), json.dumps(program), *user],
            env={
                **os.environ,
                "HOME": str(self.home),
                "XDG_STATE_HOME": str(self.home / "state"),
                "XDG_CONFIG_HOME": str(self.home / "config"),
                "PYTHONPATH": str(Path(__file__).parents[3]),
                "PATH": os.environ["PATH"] if path is None else path,
            },
            capture_output=True,
            timeout=BOUND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    def look(self) -> list[object]:
        """Return all that a hostile program could have changed."""
        return [*_look_at(self.outside), _look_at_process(self._victim)]


def _look_at(folder: Path) -> Iterator[object]:
    for each in (folder, *sorted(folder.rglob("*"))):
        status = each.lstat()
        attributes = os.listxattr(each, follow_symlinks=False) if _WITH_ATTRIBUTES else []
        content = each.read_bytes() if each.is_file() else b""
        times = 0 if each.is_socket() else status.st_mtime_ns
        yield (
            str(each),
            status.st_mode,
            status.st_uid,
            status.st_nlink if each.is_file() else 0,
            times,
            attributes,
            content,
        )


def _look_at_process(pid: int) -> object:
    limits = [line.split() for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line]
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return limits, os.getpriority(os.PRIO_PROCESS, pid), state in "RSD"


@contextmanager
def hostile_scene(folder: Path, user: int | None) -> Iterator[Scene]:
    """Set the scene, for a program of this user; None is the one that runs the tests."""
    with ExitStack() as stack:
        if user is not None:  # no other user gets into the folders of tests
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        outside = folder / "outside"
        for each in (outside, folder / "inside", folder / "home"):
            each.mkdir()
        (outside / "file").write_text("as before")
        shutil.copy("/bin/true", outside / "tool")
        (outside / "tool").chmod(0o4755)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(outside / "socket"))
        listener.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("")
        abstract.listen()
        identity: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        victim = stack.enter_context(subprocess.Popen(["/bin/sleep", "600"], **identity))
        stack.callback(victim.kill)
        segment = ctypes.CDLL(None).shmget(0, _SEGMENT_BYTES, _CREATE)
        stack.callback(ctypes.CDLL(None).shmctl, segment, 0, None)
        if user is not None:
            for each in (folder, *folder.rglob("*")):
                os.chown(each, user, user)
        yield Scene(folder, user, victim.pid, abstract.getsockname()[1:].decode(), segment)
