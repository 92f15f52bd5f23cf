"""Runs the command line many times, each in a fork of one process that has loaded it: a run costs milliseconds.

Requests and answers are lines of JSON on stdin and stdout. A run that does not end within its bound is killed with
all that it started.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from typing import Any

from dynamic_mcp.__main__ import main
from dynamic_mcp.cli.main import run

BOUND_S = 20.0
_MOST_MEMORY = 4 << 30
_NO_BOUND = "does not end"


def serve() -> None:
    """Answer requests until stdin ends."""
    _load()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _load() -> None:
    """Load what the runs need, so that each of them finds it in memory."""
    with contextlib.redirect_stdout(io.StringIO()):
        run(["--help"])
    for name in (
        "client",
        "own_client",
        "catalog_view",
        "tool_call",
        "startup",
        "import_flow",
        "installer",
        "diagnosis",
        "login",
    ):
        importlib.import_module(f"dynamic_mcp.cli.{name}")


def _answer(request: dict[str, Any]) -> dict[str, object]:  # Any: JSON
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(bytes.fromhex(request["stdin"]))
        stdin.seek(0)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            _run(request, (stdin.fileno(), stdout.fileno(), stderr.fileno()))
        status = _wait(pid)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    code: object = _NO_BOUND if status is None else os.waitstatus_to_exitcode(status)
    return {"code": code, "out": texts[0], "err": texts[1]}


def _wait(pid: int) -> int | None:
    """Wait for a run; None where it has to be killed."""
    killed: list[int] = []

    def kill(number: int, frame: object) -> None:
        killed.append(number)
        os.killpg(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, BOUND_S)
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return None if killed else status


def _run(request: dict[str, Any], files: tuple[int, int, int]) -> None:  # Any: JSON
    """Be the program that was asked for, as far as a fork can be; never returns."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    os.chdir(request["folder"])
    os.environb.clear()
    os.environ.update(request["environment"])
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 64)
    for number in request["closed"]:
        os.close(number)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        is_open = number not in request["closed"]
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False) if is_open else None)
    sys.argv = ["dynamic-mcp", *request["args"]]
    code = 1
    try:
        main()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter would show it
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
