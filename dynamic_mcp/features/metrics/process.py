"""What Prometheus wants to know of a process, by the names that all its libraries use; as far as the system tells."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.families import Definition, Values

_PROC = Path("/proc/self")
# Where `starttime`, `vsize` and `rss` stand in `stat`, counted after the name of the program (proc(5)).
_START, _VIRTUAL, _RESIDENT = 19, 20, 21


def process_families() -> Iterator[Values]:
    """Yield the metrics of this process. Memory and descriptors are read on Linux only."""
    yield _family(definitions.CPU, time.process_time())
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (_PROC / "stat").read_text(errors="replace").rpartition(")")[2].split()
        yield _family(definitions.RESIDENT_MEMORY, int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE"))
        yield _family(definitions.VIRTUAL_MEMORY, int(fields[_VIRTUAL]))
        yield _family(definitions.START_TIME, _boot_time() + int(fields[_START]) / os.sysconf("SC_CLK_TCK"))
        yield _family(definitions.OPEN_DESCRIPTORS, len(os.listdir(_PROC / "fd")))  # noqa: PTH208
    if sys.platform != "win32":
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield _family(definitions.MAX_DESCRIPTORS, float("inf") if limit == resource.RLIM_INFINITY else limit)


def _boot_time() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("btime ")))


def _family(definition: Definition, value: float) -> Values:
    family = Values(definition)
    family.set(value)
    return family
