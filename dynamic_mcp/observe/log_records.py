"""Reads the log file: its records, as `log_output` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dynamic_mcp.observe import log_output

Record = dict[str, Any]  # Any: JSON

# A file is rotated at 2 MB, and there are up to four.
_MOST_LINES = 100_000


def read_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file, none if it was just rotated. Raises OSError."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            yield from opened
    except FileNotFoundError:
        return


def parse_record(line: str) -> Record | None:
    """Return the record in a line; None if it is not one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def find_last(folder: Path, matches: Callable[[Record], bool], most: int, *, since: str = "") -> list[Record]:
    """Return the last matching records, the newest first; `since` has the format of their times. Raises OSError."""
    found: list[Record] = []
    for line in _read_backwards(folder):
        record = parse_record(line)
        if record is None:
            continue
        if since and str(record.get("time", "")) < since:
            break
        if matches(record):
            found.append(record)
            if len(found) == most:
                break
    return found


def _read_backwards(folder: Path) -> Iterator[str]:
    left = _MOST_LINES
    for file in reversed(log_output.find_log_files(folder)):
        for line in reversed([*read_lines(file)]):
            yield line
            left -= 1
            if not left:
                return
