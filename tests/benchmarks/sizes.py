"""Measure what one service needs for so many people: processor, memory, descriptors, and space for the audit log.

    python -m tests.benchmarks.sizes [--people 1,10,100,1000] [--seconds 20] [--every 10]

Each person has a token, two sessions, and calls in each every so many seconds, through access rules and with the
audit log, one of ten cheap stdio servers that all share. The service is started anew for each number of people. Its
memory is without the servers. It judges nothing. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

import uvloop

from tests.benchmarks.cluster import cpu_s
from tests.benchmarks.http_face import call, resident_kib, running, serve, write_config
from tests.benchmarks.http_load import CallingSession, Target, Timings, open_all, record

_SERVERS = 10
_SESSIONS_OF_ONE = 2
_WARM_S = 2.0
Figures = dict[str, float]


class PersonSession(CallingSession):
    """A session of a person, who shows a token, and has an address of this machine."""

    def __init__(self, number: int, target: Target, timings: Timings, every_s: float) -> None:
        super().__init__(f"t{number}", target, timings, every_s)
        self._person = number // _SESSIONS_OF_ONE
        self._token = token_of(self._person)

    async def _connect(self) -> None:
        source = (f"127.0.1.{1 + self._person % 200}", 0)  # as many of one address are refused
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._target.port, local_addr=source)

    def _fields(self) -> str:
        return f"Authorization: Bearer {self._token}\r\n{super()._fields()}"


def token_of(person: int) -> str:
    return f"token-of-person-{person:05}-k3W9x2QmZ7vR4tLp"


def settings_for(people: int) -> dict[str, object]:
    """Return what a team has: tokens, rules, and the audit log."""
    tokens = [{"token": token_of(each), "subject": f"person{each}", "roles": ["member"]} for each in range(people)]
    return {
        "http": {"auth": [{"kind": "bearer", "tokens": tokens}], "max_sessions": 10_000},
        "access": {"roles": {"member": [{}, {"tools": ["blob"], "effect": "deny"}]}},
        "audit": True,
        "defaults": {"share": "all"},
    }


async def measure(people: int, port: int, pid: int, seconds: float, every_s: float) -> Figures:
    """Let so many people call, and return what that has taken."""
    timings = Timings()
    sessions = []
    for number in range(people * _SESSIONS_OF_ONE):
        target = Target(port, params=call(f"group{number % _SERVERS}"))
        sessions.append(PersonSession(number, target, timings, every_s))
    await open_all(sessions)
    for each in sessions:
        each.start()
    await record(timings, max(_WARM_S, every_s))
    timings.latencies_s.clear()
    before = cpu_s(pid)
    await record(timings, seconds)
    used_s = cpu_s(pid) - before
    files = count_files(pid)
    memory = resident_kib(pid) / 1024
    for each in sessions:
        each.close()
    if timings.errors:
        raise SystemExit(f"{timings.errors} errors, the first one: {timings.first_error}")
    found = timings.figures()
    return {
        "calls/s": found["rate"],
        "p50 ms": found["p50_ms"],
        "p99 ms": found["p99_ms"],
        "% of a core": 100 * used_s / seconds,
        "us a call": 1e6 * used_s / max(1, found["calls"]),
        "MiB": memory,
        "files": files,
    }


def count_files(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--people", default="1,10,100,1000")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--every", type=float, default=10.0)
    chosen = options.parse_args()
    is_first = True
    for people in map(int, chosen.people.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ["XDG_STATE_HOME"] = str(folder / "state")
            config = write_config(folder, _SERVERS, settings=settings_for(people))
            with running(serve(config), folder) as (port, pid, _):
                found = uvloop.run(measure(people, port, pid, chosen.seconds, chosen.every))
        if is_first:
            print(f"{'people':>8}" + "".join(f"{key:>13}" for key in found))
            is_first = False
        print(f"{people:>8}" + "".join(f"{cell:>13,.2f}" for cell in found.values()), flush=True)


if __name__ == "__main__":
    main()
