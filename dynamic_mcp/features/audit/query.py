"""Filters and counts of lines of the audit log, as SQL for the index."""

from __future__ import annotations

import functools
import math
import sqlite3
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dynamic_mcp.features.audit.days import LinePlace

Subject = Literal["person", "group", "tool"]

# The events that are requests of clients to a server.
CALLS = ("call", "read", "prompt")
# A call that waits for a person may still succeed.
NO_ERRORS = ("success", "pending")

# The columns that calls are counted by, and the index that covers the query.
_KEYS = {"person": ("who", "lines_who"), "group": ("grp, name", "lines_grp"), "tool": ("grp, name", "lines_grp")}
# Calls are counted by how long they took, in steps of 3 %.
_STEPS = 30


class LineFilter(Struct, frozen=True, kw_only=True):
    """A filter of lines; what is empty or None matches all.

    `since` and `until` are milliseconds since 1970; `who`, `client`, `group`, `tool` and `event` are globs with `*`
    and `?`. A `tool` may also be a prompt or the URI of a resource. `slow_ms` is the shortest duration.
    """

    since: int | None = None
    until: int | None = None
    who: str = ""
    client: str = ""
    group: str = ""
    tool: str = ""
    event: str = ""
    decision: str = ""
    config: str = ""
    only_errors: bool = False
    slow_ms: float | None = None


class CallCount(Struct, frozen=True):
    """Calls of the same user, or of the same tool of a group, with about the same duration; see `ms_of`."""

    key: tuple[str, ...]
    pace: int
    calls: int
    errors: int
    denied: int
    bytes: int


def pace_of(ms: float) -> int:
    """Return the step that a duration is counted with; each is 3 % longer than the one before."""
    return int(math.log(max(ms, 0.0) * 1000 + 1) * _STEPS)


def ms_of(pace: int) -> float:
    """Return the duration in the middle of a step."""
    return (math.exp((pace + 0.5) / _STEPS) - 1) / 1000


def find_places(connection: sqlite3.Connection, wanted: LineFilter, most: int | None = None) -> Iterator[LinePlace]:
    """Yield the places of matching lines, the oldest first: all, or only the last ones."""
    where, values = _where(wanted)
    # always in the order of time: the other indexes are slow if many lines match
    columns = (
        "SELECT lines.id AS id, at, files.name, start, lines.size"
        " FROM lines INDEXED BY lines_at JOIN files ON files.id = file"
    )
    if most is None:
        rows = connection.execute(f"{columns} WHERE {where} ORDER BY at, lines.id", values)
    else:
        last = f"{columns} WHERE {where} ORDER BY at DESC, lines.id DESC LIMIT ?"
        rows = connection.execute(f"SELECT * FROM ({last}) ORDER BY at, id", [*values, most])  # noqa: S608
    return (LinePlace(*row[2:]) for row in rows)


def find_new_places(
    connection: sqlite3.Connection, wanted: LineFilter, after: int, heads: dict[str, int]
) -> Iterator[LinePlace]:
    """Yield the places of matching lines that were added after the row `after`, in the order of their files.

    `seen` has, for the first line of each file that is known, how far its lines are known already.
    """
    where, values = _where(wanted)
    rows = connection.execute(
        "SELECT files.head, files.name, start, lines.size FROM lines JOIN files ON files.id = file"  # noqa: S608
        f" WHERE lines.id > ? AND {where} ORDER BY files.name, start",
        [after, *values],
    )
    return (LinePlace(*row[1:]) for row in rows if row[2] >= heads.get(row[0], 0))


def count_lines(connection: sqlite3.Connection, wanted: LineFilter) -> int:
    """Return the number of matching lines."""
    where, values = _where(wanted)
    found: int = connection.execute(f"SELECT count(*) FROM lines NOT INDEXED WHERE {where}", values).fetchone()[0]  # noqa: S608
    return found


def count_calls(connection: sqlite3.Connection, wanted: LineFilter, by: Subject) -> Iterator[CallCount]:
    """Yield the matching calls by user, or by group and tool; those of one key follow each other."""
    where, values = _where(wanted)
    key, index = _KEYS[by]
    is_covered = not (wanted.client or wanted.decision or wanted.slow_ms is not None or wanted.tool) and not (
        wanted.group if by == "person" else wanted.who
    )
    rows = connection.execute(
        f"SELECT {key}, pace, count(*), sum(failed), sum(denied), sum(bytes)"  # noqa: S608
        f" FROM lines {f'INDEXED BY {index}' if is_covered else 'NOT INDEXED'}"
        f" WHERE event IN ({_WORD}, {_WORD}, {_WORD}) AND {where} GROUP BY {key}, pace",
        [*CALLS, *values],
    )
    width = len(key.split(", "))
    word = functools.cache(lambda id: _read_word(connection, id))
    return (CallCount(tuple(map(word, row[:width])), *row[width:]) for row in rows)


def _read_word(connection: sqlite3.Connection, id: int) -> str:
    found: str = connection.execute("SELECT text FROM words WHERE id = ?", [id]).fetchone()[0]
    return found


def _where(wanted: LineFilter) -> tuple[str, list[object]]:
    """Return a condition, and the values in it."""
    parts: list[tuple[str, list[object]]] = []
    if wanted.since is not None:
        parts.append(("at >= ?", [wanted.since]))
    if wanted.until is not None:
        parts.append(("at < ?", [wanted.until]))
    if wanted.only_errors:
        parts.append(("failed", []))
    if wanted.slow_ms is not None:
        parts.append(("took >= ?", [int(wanted.slow_ms * 1000)]))
    globs = {"who": wanted.who, "client": wanted.client, "grp": wanted.group, "event": wanted.event}
    parts += [(f"{column} IN ({_WORDS})", [_glob(glob)]) for column, glob in globs.items() if glob]
    if wanted.tool:
        parts.append((f"(lines.name IN ({_WORDS}) OR shown IN ({_WORDS}))", [_glob(wanted.tool)] * 2))
    exact = {"decision": wanted.decision, "config": wanted.config}
    parts += [(f"{column} = {_WORD}", [text]) for column, text in exact.items() if text]
    condition = " AND ".join(part for part, _ in parts) or "1"
    return condition, [value for _, values in parts for value in values]


_WORD = "(SELECT id FROM words WHERE text = ?)"
_WORDS = "SELECT id FROM words WHERE text GLOB ?"


def _glob(pattern: str) -> str:
    """Return a glob of ours as one of SQLite, which also knows sets of characters."""
    return pattern.replace("[", "[[]")
