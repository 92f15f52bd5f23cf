"""Reads the log file: filtered, oldest record first, and followed as it grows."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.log_records import Record, parse_record, read_lines
from dynamic_mcp.system import paths

_EVERY_S = 0.5
_STYLES = {"error": "red", "warning": "yellow", "debug": "dim"}


@dataclass(frozen=True)
class LogFilter:
    """Selects records; `since` has the format of the times in the file."""

    group: str | None
    since: str
    levels: frozenset[str]
    config: str | None = None

    @classmethod
    def parse(
        cls, group: str | None, since: str | None, level: str | None, *, config: Path | None = None
    ) -> LogFilter:
        """Parse the options of the command line. Raises InvalidArguments."""
        begin = ""
        if since is not None:
            try:
                begin = (datetime.now(UTC) - timedelta(seconds=parse_seconds(since))).isoformat(
                    timespec="milliseconds"
                )
            except FlawError as exc:
                raise InvalidArguments(f"--since {exc}", hint=exc.hint) from exc
        # the stderr of servers has level debug, and `logs GROUP` shows it
        lowest = log_output.LEVELS.index(level or "debug")
        key = None if config is None else config_key(config)
        return cls(group, begin, frozenset(log_output.LEVELS[lowest:]), key)

    def matches(self, record: Record) -> bool:
        return (
            (self.group is None or record.get("group") == self.group)
            and (self.config is None or self._is_of_config(record.get("config")))
            and record.get("level") in self.levels
            and str(record.get("time", "")) >= self.since
        )

    def _is_of_config(self, config: object) -> bool:
        return isinstance(config, str) and config_key(config) == self.config


def show_logs(context: Invocation, wanted: LogFilter, *, is_following: bool) -> int:
    """Print the records that match; return the exit code."""
    folder = paths.log_dir()
    is_empty = True
    for line in _read_lines(folder, is_following=is_following):
        record = parse_record(line)
        if record is not None and wanted.matches(record):
            is_empty = False
            _show(context.out, record)
    if is_empty:
        where = f" about group `{wanted.group}`" if wanted.group else ""
        by = f" of `{wanted.config}`" if wanted.config else ""
        context.out.say(f"the log{by} in `{folder}` has no records{where} yet")
    return 0


def _read_lines(folder: Path, *, is_following: bool) -> Iterator[str]:
    for file in log_output.find_log_files(folder):
        if file.name != log_output.FILE_NAME:
            yield from read_lines(file)
    yield from (_follow if is_following else read_lines)(folder / log_output.FILE_NAME)


def _follow(path: Path) -> Iterator[str]:
    """Yield the lines of a file as it grows, and of its successor after a rotation.

    It is open only while it is read, since Windows renames no file that is open.
    """
    seen: os.stat_result | None = None
    offset = 0
    while True:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            found = os.fstat(file.fileno())
            if seen is not None and not os.path.samestat(seen, found):
                if rotated := log_output.find_rotated(path, seen):
                    with rotated.open("rb") as before:
                        for line in _lines_from(before, offset):
                            yield line.decode(errors="replace")
                offset = 0
            seen = found
            for line in _lines_from(file, offset):
                offset += len(line)
                yield line.decode(errors="replace")
        time.sleep(_EVERY_S)


def _lines_from(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Yield the lines that are whole."""
    file.seek(offset)
    return itertools.takewhile(lambda line: line.endswith(b"\n"), file)


def _show(out: Output, record: Record) -> None:
    if out.is_json:
        out.print_json_line(record)
        return
    try:
        timestamp = datetime.fromisoformat(str(record.get("time"))).astimezone().strftime("%m-%d %H:%M:%S")
    except ValueError:
        timestamp = "?"
    level = str(record.get("level", ""))
    text = f"{timestamp} {level:7} {record.get('message', '')}"
    if "traceback" in record:
        text += f"\n{record['traceback']}"
    out.print_line(text, _STYLES.get(level, ""))
