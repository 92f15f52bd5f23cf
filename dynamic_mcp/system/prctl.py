"""Attributes of this process set with Linux's prctl(2). On other systems these functions do nothing."""

from __future__ import annotations

import sys

# <linux/prctl.h>
_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36
_SIGTERM = 15


def become_subreaper() -> bool:
    """Become the parent of orphaned descendants; return whether the system supports it."""
    return _set(_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> bool:
    """Have SIGTERM sent to this process when the thread that has started it ends."""
    return _set(_SET_PDEATHSIG, _SIGTERM)


def forbid_inspection() -> bool:
    """Keep other processes of this user from reading this one's environment and memory, and from tracing it."""
    return _set(_SET_DUMPABLE, 0)


def _set(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # only processes that start servers need it

        result: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, or a C library without prctl
        return False
    return result == 0
