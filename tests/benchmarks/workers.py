"""Measure how several workers of one service compare with one process.

    python -m tests.benchmarks.workers [--rounds 3] [--seconds 2] [--sessions 1,32,256,1000] [--workers 0,1,2,4]

A cheap stdio server behind `serve --http`: without workers, and with so many. Each session calls over the connection
on which it began, as clients do. Rounds are interleaved; each figure is the median over the rounds. CPU is of the
service without its server, in microseconds a call; memory is what a session adds to it, with its connection. It judges
nothing: quote ratios of one run. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tests.benchmarks.cluster import cpu_s
from tests.benchmarks.http_face import call, running, serve, write_config
from tests.benchmarks.http_load import CallingSession, Target, Timings, open_all, record

_WARM_S = 0.5
_STARTS_WITHIN_S = 30.0
Figures = dict[str, float]


@contextlib.contextmanager
def service(folder: Path, workers: int) -> Iterator[tuple[int, list[int]]]:
    """Serve by so many workers, or by one process without any; hand out the port, and the processes that serve."""
    place = folder / str(workers)
    place.mkdir(exist_ok=True)
    config = write_config(place, 1, settings={"http": {"max_sessions": 100_000}})
    command = serve(config)
    options = ["--workers", str(workers)] if workers else []
    with running(lambda port: [*command(port), *options], place) as (port, pid, _):
        yield port, _wait_for(pid, workers) if workers else [pid]


def _wait_for(supervisor: int, workers: int) -> list[int]:
    """Return the processes of the workers once all listen."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        if len(children) == workers and all(_listens(each) for each in children):
            return [int(each) for each in children]
        time.sleep(0.1)
    raise SystemExit("the workers do not start")


def _listens(process: str) -> bool:
    """Return whether a worker has loaded all that it needs, by the end of its use of the processor."""
    before = cpu_s(int(process))
    time.sleep(0.5)
    return cpu_s(int(process)) - before < 0.02


async def measure(port: int, sessions: int, seconds: float, pids: list[int]) -> Figures:
    timings = Timings()
    target = Target(port, params=call("group0"))
    empty = sum(map(memory, pids))
    callers = [CallingSession(f"t{n}", target, timings) for n in range(sessions)]
    await open_all(callers)
    for each in callers:
        each.start()
    await record(timings, _WARM_S)
    timings.latencies_s.clear()
    before = sum(map(cpu_s, pids))
    await record(timings, seconds)
    used_s = sum(map(cpu_s, pids)) - before
    full = sum(map(memory, pids))
    for each in callers:
        each.close()
    figures = timings.figures()
    if figures["errors"]:
        raise SystemExit(f"{figures['errors']} errors, the first one: {figures['first_error']}")
    return {
        "calls/s": figures["rate"],
        "p50 ms": figures["p50_ms"],
        "p99 ms": figures["p99_ms"],
        "CPU us": used_s * 1e6 / max(1, figures["calls"]),
        "KiB/session": (full - empty) / 1024 / sessions,
    }


def memory(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--sessions", default="1,32,256,1000")
    options.add_argument("--workers", default="0,1,2,4")
    chosen = options.parse_args()
    rounds: dict[tuple[int, int], list[Figures]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(chosen.rounds):
            for workers in map(int, chosen.workers.split(",")):
                for sessions in map(int, chosen.sessions.split(",")):
                    with service(Path(folder), workers) as (port, pids):
                        measuring = measure(port, sessions, chosen.seconds, pids)
                        rounds.setdefault((workers, sessions), []).append(uvloop.run(measuring))
    print(f"{'workers':>8}{'sessions':>10}" + "".join(f"{key:>12}" for key in next(iter(rounds.values()))[0]))
    for (workers, sessions), found in rounds.items():
        cells = [statistics.median(each[key] for each in found) for key in found[0]]
        print(f"{workers or 'none':>8}{sessions:>10}" + "".join(f"{cell:>12,.2f}" for cell in cells))


if __name__ == "__main__":
    main()
