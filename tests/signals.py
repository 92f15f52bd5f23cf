"""How tests end and interrupt a process by its id, and see its end, on every system."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from tests import windows

_CTRL_C, _CTRL_BREAK = 0, 1


def kill(pid: int) -> None:
    """End a process at once: it cannot handle this."""
    os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)


def interrupt(pid: int) -> None:
    """Have a process handle Ctrl-C."""
    if sys.platform == "win32":
        windows.send_console_event(pid, _CTRL_C)
    else:
        os.kill(pid, signal.SIGINT)


def ask_to_end(pid: int) -> None:
    """Ask a process to end, as a service manager does: by SIGTERM, or as Ctrl-Break does on Windows."""
    if sys.platform == "win32":
        windows.send_console_event(pid, _CTRL_BREAK)
    else:
        os.kill(pid, signal.SIGTERM)


def has_ended(pid: int, within_s: float) -> bool:
    """Return whether a process has ended, or does within this time. It may be nobody's child (Linux, Windows)."""
    if sys.platform == "win32":
        return windows.has_ended(pid, within_s)
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            return bool(select.select([process], [], [], within_s)[0])
        finally:
            os.close(process)
    return True
