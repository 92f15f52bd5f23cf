"""Measure the start: how long until `initialize` is answered, against the imports of a bare program of this kind.

    python -m tests.benchmarks.start [--rounds 20]

Each round takes the rows in turn: the bare imports as a whole process; the first start of a config, with nothing in
the cache; a start of the same config again, with the catalogs of the one before; and, to compare, how long it takes
to refuse a config that is wrong. It prints the median and the minimum of wall and processor time, and the median of
the ratios to the bare imports of the same round. The memory is that of a proxy whose one group has answered a call.
It judges nothing: quote ratios of one run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.core import config, through_group
from tests.benchmarks.driver import Peer

PROGRAM = str(Path(sys.executable).with_name("dynamic-mcp"))
BARE = "import asyncio, msgspec, click; from pydantic import BaseModel"


@dataclass(frozen=True)
class Cost:
    """What one start took, in milliseconds."""

    wall: float
    cpu: float


def whole(argv: list[str]) -> Cost:
    """Run a program to its end, with nothing to read and nobody to hear it."""
    nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in (0, 1, 2)]
    began = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, os.environ, file_actions=nowhere)
    _, _, usage = os.wait4(child, 0)
    return Cost((time.perf_counter() - began) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3)


def start(file: str) -> Cost:
    """Start the program and take the time when it has answered `initialize`."""
    peer = Peer([PROGRAM, file])
    try:
        return Cost(peer.start() * 1e3, peer.cpu_s() * 1e3)
    finally:
        peer.close()


def resident_mib(file: str) -> float:
    """Return the memory of a proxy whose one group has answered a call."""
    peer = Peer([PROGRAM, file])
    try:
        peer.start()
        peer.until_works(through_group("echo", {"text": "hello"}))
        return peer.resident_mib()
    finally:
        peer.close()


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=20)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled once
        os.environ |= {"XDG_CACHE_HOME": str(cache), "XDG_STATE_HOME": f"{folder}/state"}
        file = config(Path(folder), 1)
        wrong = Path(folder, "wrong.json")
        wrong.write_text('{"mcpServers": {"a": {"command": 1}}}')
        whole([PROGRAM, str(wrong)])  # compiles what is not compiled yet
        resident_mib(file)

        def first() -> Cost:
            shutil.rmtree(cache, ignore_errors=True)
            return start(file)

        def again() -> Cost:
            resident_mib(file)  # keeps the catalog
            return start(file)

        runs: dict[str, Callable[[], Cost]] = {
            "bare imports": lambda: whole([sys.executable, "-c", BARE]),
            "first start": first,
            "started again": again,
            "wrong config": lambda: whole([PROGRAM, str(wrong)]),
        }
        rounds = [{name: run() for name, run in runs.items()} for _ in range(chosen.rounds)]
        show(rounds)
        sizes = [resident_mib(file) for _ in range(3)]
        print(f"\nmemory with one group: {statistics.median(sizes):.1f} MiB")


def show(rounds: list[dict[str, Cost]]) -> None:
    """Print a row for each kind of start."""
    columns = ("wall ms", "minimum", "ratio", "cpu ms", "minimum", "ratio")
    print(f"{'':16}" + "".join(f"{column:>10}" for column in columns))
    for name in rounds[0]:
        cells: list[str] = []
        for kind in ("wall", "cpu"):
            values = [getattr(each[name], kind) for each in rounds]
            ratios = [getattr(each[name], kind) / getattr(each["bare imports"], kind) for each in rounds]
            cells.append(f"{statistics.median(values):10.0f}{min(values):10.0f}{statistics.median(ratios):10.2f}")
        print(f"{name:16}" + "".join(cells))


if __name__ == "__main__":
    main()
