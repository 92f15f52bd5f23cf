"""Runs `dynamic-mcp` in forks of one process that has loaded it, so that a start costs milliseconds.

    python fork_server.py DESCRIPTOR

The descriptor is a socket. A request is one message with descriptors: stdin, stdout, stderr, the status of the run,
to which its process id is written, and its exit code once it has ended, and a file with the rest as JSON. The client
is `own_process.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
import termios
import time
import traceback
from pathlib import Path
from typing import Any

_ENVIRONMENT_STARTS = 47  # among the fields of `/proc/self/stat` after the name; the end is the next one
_STANDARD = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def load() -> None:
    """Load what a run can need, so that each finds it in memory."""
    import dynamic_mcp
    from dynamic_mcp.cli.main import run

    with contextlib.redirect_stdout(io.StringIO()):
        run(["--help"])
    for module in pkgutil.walk_packages(dynamic_mcp.__path__, "dynamic_mcp."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError, AssertionError):  # for what is not here
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def fork_for_each(control: socket.socket) -> None:
    """Answer requests until the client is gone; returns in a fork for each of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: for the tests
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    _report_end(selector, key.fd, *key.data)
                    continue
                data, descriptors, _, _ = socket.recv_fds(control, 16, 5)
                if not data:
                    sys.exit()
                *streams, status, file = descriptors
                pid = os.fork()
                if pid == 0:
                    with os.fdopen(file) as text:
                        request = json.load(text)
                    _become(request, streams)
                    return
                for each in (*streams, file):
                    os.close(each)
                os.write(status, b"%d\n" % pid)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _report_end(selector: selectors.BaseSelector, pidfd: int, pid: int, status: int) -> None:
    selector.unregister(pidfd)
    os.close(pidfd)
    with contextlib.suppress(BrokenPipeError):  # the test no longer wants to know
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(status)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:  # Any: JSON
    """Take on the words, the environment, the folder and the streams of a run."""
    closed = request.get("closed", ())
    if request.get("has_own_group"):
        os.setpgid(0, 0)
    if request.get("has_terminal"):
        os.setsid()
        fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 1 << 16)
    for number in closed:
        os.close(number)
    for number, name, mode in _STANDARD:
        is_open = number not in closed
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False) if is_open else None
        if name == "stderr" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if 2 not in closed:
        faulthandler.enable(2)  # what a crash was in the middle of is in what the test shows of it
    if memory := request.get("memory"):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environb.clear()
    os.environ.update(request["environment"])
    time.tzset()
    _show_home(os.environ.get("HOME", ""))
    sys.path[0] = request["folder"]
    sys.argv = ["dynamic-mcp", *request["args"]]
    sys.orig_argv = [sys.executable, "-m", "dynamic_mcp", *request["args"]]


def _show_home(home: str) -> None:
    """Have `/proc` show the home of the run, by which tests find what they have started.

    It shows the memory in which this process got its own variables. `os.environ` is elsewhere once it was changed.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ENVIRONMENT_STARTS]), int(fields[_ENVIRONMENT_STARTS + 1])
    shown = os.fsencode(f"HOME={home}\0")[: end - start]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, shown, len(shown))


def run() -> None:
    """Run the command line; never returns. The interpreter is not torn down, which would copy all of its memory."""
    from dynamic_mcp.__main__ import main

    code = 1
    try:
        main()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - shown as the interpreter shows it
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    load()
    fork_for_each(socket.socket(fileno=int(sys.argv[1])))
    run()
