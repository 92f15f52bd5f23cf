"""The files of the audit log: `2026-11-23.jsonl` has the lines of one day, UTC. Their names sort as their days."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

SUFFIX = ".jsonl"
SEALS = "seals.jsonl"
OPEN = "open"
KEY = "key"
LOCK = "lock"

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.jsonl")


class Clock:
    """Writes times as RFC 3339 with milliseconds in UTC; the text of one second is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, at: float) -> str:
        """Return a time, in seconds since 1970, as `2026-11-23T10:15:00.250Z`."""
        second = int(at)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._text}.{int((at - second) * 1000):03d}Z"


def file_of(directory: Path, day: str) -> Path:
    """Return the file of a day, such as `2026-11-23`."""
    return directory / f"{day}{SUFFIX}"


def day_of(file: Path) -> str | None:
    """Return the day of a file; None if it has another name than the log's files have."""
    found = _NAME.fullmatch(file.name)
    return None if found is None or not _is_day(found[1]) else found[1]


def day_at(at: float) -> str:
    """Return the day of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def list_days(directory: Path) -> list[str]:
    """Return the days that have a file, the oldest first. Raises OSError, but not if there is no directory."""
    try:
        found = [day_of(file) for file in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(filter(None, found))


def list_files(directory: Path, *, since: str = "", until: str = "9") -> Iterator[Path]:
    """Yield the files of the days from `since` to `until`, the oldest first. Raises OSError."""
    return (file_of(directory, day) for day in list_days(directory) if since <= day <= until)


def expired(days: Iterable[str], today: str, keep_s: float) -> list[str]:
    """Return the days that ended more than `keep_s` ago, in whole days; today never."""
    kept = timedelta(days=max(int(keep_s // 86_400), 0))
    try:
        first_kept = (date.fromisoformat(today) - kept).isoformat()
    except OverflowError:  # kept for ever
        return []
    return [day for day in days if day < first_kept]


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False
