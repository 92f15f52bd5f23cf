"""Filters and counts of lines of the audit log, as SQL for the index."""

from __future__ import annotations

import functools
import itertools
import math
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Literal

from msgspec import Struct, structs

from dynamic_mcp.features.audit.days import LinePlace
from dynamic_mcp.identity import Principal

Subject = Literal["person", "group", "tool"]

# The events that are requests of clients to a server.
CALLS = ("call", "read", "prompt")
# A call that waits for a person may still succeed.
NO_ERRORS = ("success", "pending")

# The index counts what was used in steps of these.
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# The columns that calls are counted by, and the index that covers the query.
_KEYS = {"person": ("who", "lines_who"), "group": ("grp, name", "lines_grp"), "tool": ("grp, name", "lines_grp")}
# Calls are counted by how long they took, in steps of 3 %.
_STEPS = 30
_MOST_LISTED = 2000
# Returns what is in the parentheses of an IN for a glob, and the values in that.
FindWords = Callable[[str], tuple[str, list[object]]]


class LineFilter(Struct, frozen=True, kw_only=True):
    """A filter of lines; what is empty or None matches all.

    `since` and `until` are milliseconds since 1970; `who`, `client`, `group`, `tool` and `event` are globs with `*`
    and `?`. A `tool` may also be a prompt or the URI of a resource. `slow_ms` is the shortest duration. `only_calls`
    are requests of clients to a server, and `owner` whose lines. What the rules have refused is not for its owner: it
    looks like what does not exist, so with `only_allowed` nothing is left that was not found.
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
    outcome: str = ""
    only_calls: bool = False
    owner: Principal | None = None
    only_allowed: bool = False


class LineCursor(Struct, frozen=True, order=True):
    """The place of a line in the order of time: its time, and its row, for lines of the same millisecond."""

    at: int
    row: int


class UseCount(Struct, frozen=True):
    """What was used in one step of time, or of one tool (its group and name) or by one client (its name)."""

    key: tuple[str, ...]
    calls: int
    errors: int
    bytes: int = 0


class CallCount(Struct, frozen=True):
    """Calls of the same user, or of the same tool of a group, with about the same duration; see `ms_of`."""

    key: tuple[str, ...]
    pace: int
    calls: int
    errors: int
    denied: int
    bytes: int


def digest_of(text: str) -> int:
    """Return what the index has of an id: a number that few other ids have, and 0 for none."""
    return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=7).digest()) if text else 0


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


def find_page(
    connection: sqlite3.Connection, wanted: LineFilter, most: int, before: LineCursor | None = None
) -> list[tuple[LineCursor, LinePlace]]:
    """Return the places of the last matching lines before a place, the newest first."""
    where, values = _where(wanted)
    if before is not None:
        where, values = f"(at, lines.id) < (?, ?) AND {where}", [before.at, before.row, *values]
    rows = connection.execute(
        "SELECT at, lines.id, files.name, start, lines.size"  # noqa: S608 - no text of others
        f" FROM lines INDEXED BY {_index_for(wanted)} JOIN files ON files.id = file WHERE {where}"
        " ORDER BY at DESC, lines.id DESC LIMIT ?",
        [*values, most],
    )
    return [(LineCursor(row[0], row[1]), LinePlace(*row[2:])) for row in rows]


def find_ids(
    connection: sqlite3.Connection, column: Literal["own", "parent", "approval", "trace"], id: str, most: int
) -> list[LinePlace]:
    """Return the places of lines that may have this id, which must be compared, the oldest first."""
    rows = connection.execute(
        "SELECT files.name, start, lines.size FROM lines JOIN files ON files.id = file"  # noqa: S608
        f" WHERE {column} = ? AND {column} ORDER BY at, lines.id LIMIT ?",
        [digest_of(id), most],
    )
    return [LinePlace(*row) for row in rows]


def find_begin(connection: sqlite3.Connection) -> int | None:
    """Return the time of the oldest line."""
    found: int | None = connection.execute("SELECT min(at) FROM lines").fetchone()[0]
    return found


def count_steps(
    connection: sqlite3.Connection, wanted: LineFilter, begin: int, end: int, steps: int
) -> list[UseCount]:
    """Return the number of matching lines in each step of a time, by looking at them."""
    where, values = _where(structs.replace(wanted, since=None, until=None), partial(_list_words, connection))
    # a query for each step: grouping would sort all lines
    query = f"SELECT count(*), sum(failed) FROM lines INDEXED BY {_index_for(wanted)} WHERE {where}"  # noqa: S608
    bounds = [begin + (end - begin) * number // steps for number in range(steps + 1)]
    counts = []
    for since, until in itertools.pairwise(bounds):
        calls, errors = connection.execute(f"{query} AND at >= ? AND at < ?", [*values, since, until]).fetchone()
        counts.append(UseCount((), calls, errors or 0))
    return counts


def count_minutes(connection: sqlite3.Connection, config: str, begin: int, end: int, steps: int) -> list[UseCount]:
    """Return the number of calls in each step of a time, to the minute; of all configs if it is empty."""
    condition, values = _of_config(config)
    rows = connection.execute(
        "SELECT (at - ?) * ? / (? - ?), sum(calls), sum(failed) FROM uses"  # noqa: S608
        f" WHERE kind = 0 AND {condition} AND at >= ? AND at < ? GROUP BY 1",
        [begin, steps, end, begin, *values, begin, end],
    )
    counts = dict.fromkeys(range(steps), UseCount((), 0, 0))
    return [*(counts | {step: UseCount((), calls, errors) for step, calls, errors in rows}).values()]


def count_uses(
    connection: sqlite3.Connection, wanted: LineFilter, by: Literal["tool", "client"], most: int
) -> list[UseCount]:
    """Return the most used tools, or the clients with most calls, since a time, by `config` and `owner` alone."""
    key = "grp, name" if by == "tool" else "client"
    since = wanted.since or 0
    whole = -(-since // HOUR_MS) * HOUR_MS
    condition, values = _of_config(wanted.config)
    if wanted.owner is None:  # whole hours are counted already
        kind = 1 if by == "tool" else 2
        counted = (
            f"SELECT a AS k, b AS l, calls, failed, bytes FROM uses"  # noqa: S608 - no text of others
            f" WHERE kind = {kind} AND {condition} AND at >= ?"
        )
        lines = structs.replace(wanted, until=whole, only_calls=True)
        values = [*values, whole]
    else:
        counted, values = "SELECT 0 AS k, 0 AS l, 0 AS calls, 0 AS failed, 0 AS bytes WHERE 0", []
        lines = structs.replace(wanted, only_calls=True)
    where, more = _where(lines)
    names = "grp, name" if by == "tool" else "client, 0"
    rows = connection.execute(
        f"SELECT k, l, sum(calls) AS total, sum(failed), sum(bytes) FROM ({counted} UNION ALL"  # noqa: S608
        f" SELECT {names}, 1, failed, bytes FROM lines INDEXED BY {_index_for(lines)} WHERE {where})"
        " GROUP BY k, l ORDER BY total DESC LIMIT ?",
        [*values, *more, most],
    )
    width = len(key.split(", "))
    word = functools.cache(lambda id: _read_word(connection, id))
    return [UseCount(tuple(map(word, row[:width])), *row[2:]) for row in rows]


def _of_config(config: str) -> tuple[str, list[object]]:
    return (f"config = {_WORD}", [config]) if config else ("1", [])


def _index_for(wanted: LineFilter) -> str:
    """Return the index in the order of time that has all that a filter looks at."""
    if wanted.owner is not None:
        return "lines_person"
    return "lines_at" if wanted in (LineFilter(), LineFilter(config=wanted.config)) else "lines_use"


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


def _where(wanted: LineFilter, find_words: FindWords | None = None) -> tuple[str, list[object]]:
    """Return a condition, and the values in it. `find_words` is for a condition that is used several times."""
    find = find_words or (lambda glob: (_WORDS, [_glob(glob)]))
    parts: list[tuple[str, list[object]]] = []
    if wanted.since is not None:
        parts.append(("at >= ?", [wanted.since]))
    if wanted.until is not None:
        parts.append(("at < ?", [wanted.until]))
    if wanted.only_errors:
        parts.append(("failed", []))
    if wanted.slow_ms is not None:
        parts.append(("took >= ?", [int(wanted.slow_ms * 1000)]))
    if wanted.outcome:
        parts.append((f"outcome = {_WORD}", [wanted.outcome]))
    if wanted.only_calls:
        parts.append((f"event IN ({_CALLS})", [*CALLS]))
    if wanted.owner is not None:
        parts.append((f"who = {_WORD} AND issuer = {_WORD}", [wanted.owner.subject, wanted.owner.issuer]))
        parts.append((f"decision != coalesce({_WORD}, -1) AND event != coalesce({_WORD}, -1)", ["deny", "list"]))
    if wanted.only_allowed:
        allowed = f"(event NOT IN ({_CALLS}) OR decision IN ({_WORD}, {_WORD}))"
        parts.append((allowed, [*CALLS, "allow", "ask"]))
    globs = {"who": wanted.who, "client": wanted.client, "grp": wanted.group, "event": wanted.event}
    for column, glob in globs.items():
        if glob:
            words, matching = find(glob)
            parts.append((f"{column} IN ({words})", matching))
    if wanted.tool:
        words, matching = find(wanted.tool)
        parts.append((f"(lines.name IN ({words}) OR shown IN ({words}))", [*matching, *matching]))
    exact = {"decision": wanted.decision, "config": wanted.config}
    parts += [(f"{column} = {_WORD}", [text]) for column, text in exact.items() if text]
    condition = " AND ".join(part for part, _ in parts) or "1"
    return condition, [value for _, values in parts for value in values]


_WORD = "(SELECT id FROM words WHERE text = ?)"
_CALLS = ", ".join([_WORD] * len(CALLS))
_WORDS = "SELECT id FROM words WHERE text GLOB ?"


def _list_words(connection: sqlite3.Connection, glob: str) -> tuple[str, list[object]]:
    """Return the words that match a glob, by their ids, if they are not too many to be listed."""
    ids = [str(row[0]) for row in connection.execute(f"{_WORDS} LIMIT ?", [_glob(glob), _MOST_LISTED + 1])]
    return (_WORDS, [_glob(glob)]) if len(ids) > _MOST_LISTED else (", ".join(ids), [])


def _glob(pattern: str) -> str:
    """Return a glob of ours as one of SQLite, which also knows sets of characters."""
    return pattern.replace("[", "[[]")
