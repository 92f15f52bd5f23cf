"""The processes of this system and how they are related, as far as /proc shows it (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import Struct

# Where `starttime` and `env_start` stand in `stat`, counted after the name of the program.
_START = 19
_ENVIRONMENT = 47


class ProcessStat(Struct, frozen=True, gc=False):
    """What proc_pid_stat(5) says of a process. `start` is in clock ticks since boot."""

    parent: int
    group: int
    session: int
    start: int
    has_ended: bool
    """It is a zombie: nobody has reaped it yet."""
    environment: int = 0
    """Where its environment begins in its memory; 0 while it becomes another program, or if it may not be read."""


def has_table() -> bool:
    """Return whether this system has /proc."""
    return Path("/proc/self/stat").exists()


def now_in_ticks() -> int:
    """Return the time as `ProcessStat.start` has it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if has_table() else 0


def list_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - of hundreds, many times


def read_stat(pid: int) -> ProcessStat | None:
    """Return what is known of a process; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before it may contain anything
    parent, group, session = map(int, fields[1:4])
    has_ended, environment = fields[0] in b"ZX", int(fields[_ENVIRONMENT])
    return ProcessStat(parent, group, session, int(fields[_START]), has_ended, environment)


def read_table() -> dict[int, ProcessStat]:
    """Return all processes by their ids."""
    return {pid: stat for pid in list_pids() if (stat := read_stat(pid)) is not None}
