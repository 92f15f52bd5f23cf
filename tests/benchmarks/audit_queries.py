"""Measure how fast the audit log answers: a million lines over ten days, indexed once, then asked.

    python -m tests.benchmarks.audit_queries [--lines 1000000] [--rounds 5] [--keep DIRECTORY]

It judges nothing; the aim is an answer within a second.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec import Raw

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.features.audit.index import AuditIndex, file_for
from dynamic_mcp.features.audit.query import LineFilter, Subject

DAYS = 10
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
FOURTH = int((BEGIN + timedelta(days=3)).timestamp() * 1000)


def write_lines(directory: Path, count: int) -> None:
    """Write a log of so many lines."""
    prev, made = chain.ZERO, random.Random(1)  # noqa: S311 - any numbers do
    for day in range(DAYS):
        begin = BEGIN + timedelta(days=day)
        with days.file_of(directory, f"{begin:%Y-%m-%d}").open("wb") as file:
            for n, line in enumerate(_lines(made, begin, count // DAYS), start=1):
                data, prev = chain.finish(chain.encode(_chained(line, n, prev)))
                file.write(data)


def _chained(line: dict[str, object], n: int, prev: str) -> AuditLine:
    return AuditLine(v=VERSION, n=n, prev=prev, **line)  # type: ignore[arg-type]


def _lines(made: random.Random, begin: datetime, count: int) -> Iterator[dict[str, object]]:
    for number in range(count):
        at = begin + timedelta(seconds=86_000 * number / count)
        is_rare = made.random() < 0.0001
        group = made.randrange(20)
        is_failure = made.random() < 0.02
        is_denied = not is_failure and made.random() < 0.01
        yield {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "id": f"{made.getrandbits(128):032x}",
            "event": "call",
            "outcome": "failure" if is_failure else "denied" if is_denied else "success",
            "issuer": "https://idp.example.com",
            "subject": "rare@example.com" if is_rare else f"person{made.randrange(200)}@example.com",
            "roles": ("dev", "reader"),
            "auth": "jwt",
            "client": "claude-code",
            "client_version": "2.1.0",
            "address": f"10.0.{made.randrange(256)}.{made.randrange(256)}:40000",
            "session": f"{made.getrandbits(64):016x}",
            "request": str(number),
            "config": "/home/someone/.config/dynamic-mcp/dynamic-mcp.json",
            "pid": 4711,
            "group": f"server{group}",
            "kind": "tool",
            "name": f"tool_{group}_{made.randrange(50)}",
            "access": "write",
            "decision": "deny" if is_denied else "allow",
            "rule": f"roles.dev[{made.randrange(10)}]",
            "arguments": Raw(b'{"names":["owner","repo","title"],"digest":"hmac:%064x"}' % made.getrandbits(256)),
            "result_bytes": 0 if is_denied else int(made.lognormvariate(7, 1)),
            "error": "tool_error" if is_failure else "",
            "ms": round(made.lognormvariate(4, 1), 3),
            "upstream": "server",
            "upstream_version": "1.2.3",
            "definition": f"{made.getrandbits(128):032x}",
        }


def measure(name: str, rounds: int, work: Callable[[], object]) -> None:
    """Print the median time of some work, and how much of that the processor was busy with it."""
    times, busy = [], []
    for _ in range(rounds):
        began, began_busy = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - began)
        busy.append(time.process_time() - began_busy)
    print(f"{name:44} {statistics.median(times) * 1000:8.1f} ms, busy {statistics.median(busy) * 1000:8.1f} ms")


QUESTIONS = {
    "the last 100": LineFilter(),
    "the last 100 of one person": LineFilter(who="person7@*"),
    "the last 100 of somebody rare": LineFilter(who="rare@example.com"),
    "the last 100 of nobody": LineFilter(who="nobody"),
    "the last 100 of a tool, by a glob": LineFilter(tool="tool_3_1*"),
    "the last 100 errors": LineFilter(only_errors=True),
    "the last 100 denied": LineFilter(decision="deny"),
    "the last 100 slower than 2 s": LineFilter(slow_ms=2000),
    "the last 100 of a group, slow errors": LineFilter(group="server1*", slow_ms=2000, only_errors=True),
    "the last 100 of one day of ten": LineFilter(since=FOURTH, until=FOURTH + 86_400_000),
}


def _list(index: AuditIndex, wanted: LineFilter) -> list[StoredLine]:
    return list(index.find(wanted, 100))


def ask(directory: Path, rounds: int) -> None:
    """Print how long the index takes, and how long each question."""
    file_for(directory).unlink(missing_ok=True)
    began, began_busy = time.perf_counter(), time.process_time()
    index = AuditIndex(directory)
    index.refresh()
    print(f"made the index in {time.perf_counter() - began:.1f} s, busy {time.process_time() - began_busy:.1f} s")
    file = file_for(directory)
    log = sum(each.stat().st_size for each in days.list_files(directory))
    print(f"the log has {log / 1e6:.0f} MB, the index {file.stat().st_size / 1e6:.0f} MB")
    measure("refresh, nothing new", rounds, index.refresh)
    for name, wanted in QUESTIONS.items():
        measure(name, rounds, partial(_list, index, wanted))
    measure("count of all", rounds, lambda: index.count(LineFilter()))
    measure("count of one person", rounds, lambda: index.count(LineFilter(who="person7@*")))
    subjects: tuple[Subject, ...] = ("person", "group", "tool")
    for by in subjects:
        measure(f"stats by {by}", rounds, partial(index.count_calls, LineFilter(), by))
    wanted = QUESTIONS["the last 100 of one day of ten"]
    measure("stats by tool of one day of ten", rounds, lambda: index.count_calls(wanted, "tool"))
    index.close()


def main(lines: int, rounds: int, keep: str | None) -> None:
    """Write a log, unless it is there already, and ask it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        directory = Path(keep or f"{folder}/audit")
        if not directory.is_dir():
            directory.mkdir(parents=True)
            began = time.perf_counter()
            write_lines(directory, lines)
            print(f"wrote {lines} lines in {time.perf_counter() - began:.1f} s")
        ask(directory, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", metavar="DIRECTORY")
    options = parser.parse_args()
    main(options.lines, options.rounds, options.keep)
