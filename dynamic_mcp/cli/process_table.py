"""The processes of this machine, and how much memory they use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

_WAIT_FOR_PS_S = 5.0


class Process(msgspec.Struct, frozen=True):
    """A process: its parent, and its resident memory in bytes."""

    parent: int
    resident: int


class Memory(msgspec.Struct, frozen=True):
    """The memory of a proxy and of all that it has started, in bytes."""

    proxy: int
    servers: int


def measure_memory(pid: int, table: Mapping[int, Process]) -> Memory | None:
    """Return the memory of a process and of its descendants; None if the system does not list the process."""
    if pid not in table:
        return None
    return Memory(table[pid].resident, measure_tree(pid, table) - table[pid].resident)


def measure_tree(pid: int, table: Mapping[int, Process]) -> int:
    """Return the memory of a process together with its descendants, in bytes."""
    return sum(table[each].resident for each in list_family(pid, table))


def list_family(pid: int, table: Mapping[int, Process]) -> set[int]:
    """Return the ids of a process and of its descendants; none if the system does not list the process."""
    family = {pid} & table.keys()
    children = family
    while children:
        children = {each for each, process in table.items() if process.parent in family} - family
        family |= children
    return family


def read_processes() -> dict[int, Process]:
    """Return the processes that this user can see, by their id; none on Windows."""
    if sys.platform == "win32":
        return {}
    if Path("/proc/self/stat").exists():
        return {int(entry.name): process for entry in Path("/proc").iterdir() if (process := _read_proc(entry))}
    ps = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss="], capture_output=True, text=True, timeout=_WAIT_FOR_PS_S, check=False
    )
    return parse_ps(ps.stdout)


def parse_ps(output: str) -> dict[int, Process]:
    """Parse the output of `ps -axo pid=,ppid=,rss=`, which macOS and the BSDs have."""
    rows = (line.split() for line in output.splitlines())
    return {int(pid): Process(int(parent), int(kilobytes) << 10) for pid, parent, kilobytes in rows}


def _read_proc(entry: Path) -> Process | None:
    if not entry.name.isdigit():
        return None
    try:
        # the name before it may contain anything, spaces and brackets too
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None
    return Process(int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
