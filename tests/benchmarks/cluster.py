"""Measure what it costs that a request comes to another replica than that of its session.

    python -m tests.benchmarks.cluster [--rounds 3] [--seconds 2] [--sessions 1,32,256]

Two replicas serve the same cheap stdio server. All sessions begin at the first one; then they call there, or at the
second one, which passes each call on. Rounds are interleaved; each figure is the median over the rounds. CPU is of
both replicas, in microseconds a call. It judges nothing: quote ratios of one run. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tests.benchmarks.http_face import call, running, serve, write_config
from tests.benchmarks.http_load import CallingSession, Target, Timings, open_all, record
from tests.journeys.remote_server import free_port

_KEY = "a-key-for-the-measurement-that-is-long-enough"
_WARM_S = 0.5
Figures = dict[str, float]


@contextlib.contextmanager
def two_replicas(folder: Path) -> Iterator[list[tuple[int, int]]]:
    """Run two replicas that know each other; hand out the port and the process of each."""
    ports = [free_port(), free_port()]
    peers = [f"http://127.0.0.1:{port}" for port in ports]
    with contextlib.ExitStack() as stack:
        started = []
        for name, port in zip("ab", ports, strict=True):
            place = folder / name
            place.mkdir(exist_ok=True)
            cluster = {"name": name, "peers": peers, "keys": [_KEY]}
            config = write_config(place, 1, settings={"cluster": cluster, "http": {"max_sessions": 100_000}})
            _, pid, _ = stack.enter_context(running(serve(config), place, port))
            started.append((port, pid))
        yield started


async def measure(first: int, then: int, sessions: int, seconds: float, pids: list[int]) -> Figures:
    """Begin sessions at one port, and let them call at another one."""
    timings = Timings()
    params = call("group0")
    begun = [CallingSession(f"t{n}", Target(first, params=params), timings) for n in range(sessions)]
    await open_all(begun)
    callers = [CallingSession(f"t{n}", Target(then, params=params), timings) for n in range(sessions)]
    for each, caller in zip(begun, callers, strict=True):
        each.close()
        await caller.join(each.id)
        caller.start()
    await _pause(timings, _WARM_S)
    before = sum(map(cpu_s, pids))
    await record(timings, seconds)
    used_s = sum(map(cpu_s, pids)) - before
    for caller in callers:
        caller.close()
    figures = timings.figures()
    if figures["errors"]:
        raise SystemExit(f"{figures['errors']} errors, the first one: {figures['first_error']}")
    calls = max(1, figures["calls"])
    return {
        "calls/s": figures["rate"],
        "p50 ms": figures["p50_ms"],
        "p99 ms": figures["p99_ms"],
        "CPU us": used_s * 1e6 / calls,
    }


async def _pause(timings: Timings, seconds: float) -> None:
    await record(timings, seconds)
    timings.latencies_s.clear()


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--sessions", default="1,32,256")
    chosen = options.parse_args()
    rounds: dict[tuple[str, int], list[Figures]] = {}
    with tempfile.TemporaryDirectory() as folder, two_replicas(Path(folder)) as replicas:
        ports, pids = zip(*replicas, strict=True)
        for _ in range(chosen.rounds):
            for sessions in map(int, chosen.sessions.split(",")):
                for name, then in (("at its replica", ports[0]), ("at the other", ports[1])):
                    measuring = measure(ports[0], then, sessions, chosen.seconds, list(pids))
                    rounds.setdefault((name, sessions), []).append(uvloop.run(measuring))
    print(f"{'':24}" + "".join(f"{key:>12}" for key in next(iter(rounds.values()))[0]))
    for (name, sessions), found in rounds.items():
        cells = [statistics.median(each[key] for each in found) for key in found[0]]
        print(f"{name:16}{sessions:>8}" + "".join(f"{cell:>12,.2f}" for cell in cells))


if __name__ == "__main__":
    main()
