"""The processes of this machine as far as this user can see them, and the memory of a process with its children."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

_WAIT_FOR_PS_S = 5.0


class ProcessInfo(Struct, frozen=True):
    """A process: its parent, and its resident memory in bytes."""

    parent: int
    resident: int


class MemoryUse(Struct, frozen=True):
    """The memory of a proxy and of its servers, in bytes."""

    proxy: int
    servers: int


def measure_memory(pid: int, table: Mapping[int, ProcessInfo], workers: Iterable[int] = ()) -> MemoryUse | None:
    """Return the memory of a process, with its workers, and that of its other descendants.

    None if the system does not list the process.
    """
    if pid not in table:
        return None
    own = sum(table[each].resident for each in {pid, *workers} & table.keys())
    return MemoryUse(own, measure_tree(pid, table) - own)


def measure_servers(pid: int, servers: Iterable[int | None], table: Mapping[int, ProcessInfo]) -> dict[int, int]:
    """Return the memory of each server of a proxy with its descendants, in bytes, by its pid.

    A pid that is no longer a descendant of the proxy has been reused, and is left out.
    """
    family = list_family(pid, table)
    return {each: measure_tree(each, table) for each in servers if each is not None and each in family}


def measure_tree(pid: int, table: Mapping[int, ProcessInfo]) -> int:
    """Return the memory of a process together with its descendants, in bytes."""
    return sum(table[each].resident for each in list_family(pid, table))


def list_family(pid: int, table: Mapping[int, ProcessInfo]) -> set[int]:
    """Return the ids of a process and of its descendants; none if the system does not list the process."""
    family = {pid} & table.keys()
    children = family
    while children:
        children = {each for each, process in table.items() if process.parent in family} - family
        family |= children
    return family


def read_processes() -> dict[int, ProcessInfo]:
    """Return the processes that this user can see, by their id; none on Windows."""
    if sys.platform == "win32":
        return {}
    if Path("/proc/self/stat").exists():
        return {int(entry.name): process for entry in Path("/proc").iterdir() if (process := _read_proc(entry))}
    ps = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss="], capture_output=True, text=True, timeout=_WAIT_FOR_PS_S, check=False
    )
    return parse_ps(ps.stdout)


def parse_ps(output: str) -> dict[int, ProcessInfo]:
    """Parse the output of `ps -axo pid=,ppid=,rss=`, which macOS and the BSDs have."""
    rows = (line.split() for line in output.splitlines())
    return {int(pid): ProcessInfo(int(parent), int(kilobytes) << 10) for pid, parent, kilobytes in rows}


def _read_proc(entry: Path) -> ProcessInfo | None:
    if sys.platform == "win32" or not entry.name.isdigit():
        return None
    try:
        # the name before it may contain spaces and brackets
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None
    return ProcessInfo(int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
