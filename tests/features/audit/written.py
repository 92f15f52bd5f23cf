"""Writes audit logs as the program does, and as nobody should."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Raw, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import VERSION, AuditLine

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def line(event: str = "call", *, at: datetime = NOON, **members: object) -> AuditLine:
    """Return a line as the caller of the log makes it, at a time; the log adds the rest."""
    when = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return structs.replace(AuditLine(v=VERSION, event=event, at=when), **members)


def calls(count: int, *, begin: datetime = NOON, every: timedelta = timedelta(seconds=1)) -> Iterator[AuditLine]:
    """Yield calls of several persons, tools and outcomes."""
    for number in range(count):
        is_failure = number % 10 == 9
        yield line(
            at=begin + every * number,
            id=f"{begin:%m%d}-{number}",
            subject=("ann", "bob", "eve")[number % 3],
            client="cursor",
            group=("github", "db")[number % 2],
            kind="tool",
            name=("create_issue", "query", "search")[number % 3],
            access="write",
            decision="allow",
            rule="roles.dev[0]",
            outcome="failure" if is_failure else "success",
            error="tool_error" if is_failure else "",
            arguments=Raw(b'{"names":["title"],"digest":"hmac:00"}'),
            result_bytes=100 + number,
            ms=float(number % 50) + 0.5,
        )


def write_log(directory: Path, lines: Iterable[AuditLine], *, prev: str = chain.ZERO, n: int = 0) -> str:
    """Append lines to the files of their days, chained; return the hash of the last. `n` is of the line before."""
    directory.mkdir(parents=True, exist_ok=True)
    day = ""
    for each in lines:
        if day and each.at[:10] != day:
            n = 0
        n, day = n + 1, each.at[:10]
        data, prev = chain.finish(chain.encode(structs.replace(each, n=n, prev=prev)))
        with days.file_of(directory, day).open("ab") as file:
            file.write(data)
    return prev
