"""`dynamic-mcp audit`, `audit stats` and `audit export`: shows, follows, counts and exports lines of the log."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from dynamic_mcp import __version__
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.features.audit.export import export
from dynamic_mcp.features.audit.index import AuditIndex
from dynamic_mcp.features.audit.query import CallCount, LineFilter, Subject, ms_of
from dynamic_mcp.features.audit.times import parse_duration, parse_time
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.text import escape, pluralize

if TYPE_CHECKING:
    from dynamic_mcp.cli.output import Progress
    from dynamic_mcp.features.audit.config import Audit

# Fewer bytes are read before a person wonders.
_SOON_READ = 10_000_000
_FOLLOW_EVERY_S = 0.5
_COLUMNS = ("TIME", "WHO", "EVENT", "RESULT", "TOOK", "WHAT")
_STYLES = {"denied": "yellow", "failure": "red", "unknown": "red", "pending": "cyan", "cancelled": "dim"}
# The estimate of `stats` without a tokenizer; only sizes are recorded, so nothing can be counted.
_BYTES_PER_TOKEN = 4


# --- the options --------------------------------------------------------------------------------------------


class LineOptions(Struct, frozen=True, kw_only=True):
    """The options that select lines, as they were typed; `count` is `all` or a number of last lines."""

    since: str | None = None
    until: str | None = None
    who: str = ""
    client: str = ""
    group: str = ""
    tool: str = ""
    event: str = ""
    decision: str | None = None
    errors: bool = False
    slow: str | None = None
    count: str = "all"

    def parse(self, context: Invocation) -> LineFilter:
        """Return the filter; only lines of the config if one is given. Raises InvalidArguments."""
        now = time.time()
        config = context.explicit_path()
        return LineFilter(
            since=None if self.since is None else int(parse_time("--since", self.since, now) * 1000),
            until=None if self.until is None else int(parse_time("--until", self.until, now, is_end=True) * 1000),
            who=self.who,
            client=self.client,
            group=self.group,
            tool=self.tool,
            event=self.event,
            decision=self.decision or "",
            config="" if config is None else str(config),
            only_errors=self.errors,
            slow_ms=None if self.slow is None else parse_duration("--slow", self.slow) * 1000,
        )

    def parse_count(self) -> int | None:
        """Return the number of lines; None for all. Raises InvalidArguments."""
        if self.count == "all":
            return None
        if not self.count.isascii() or not self.count.isdigit() or not 0 < int(self.count[:10]) < 10**9:
            raise InvalidArguments(f"`-n {self.count}` is not a number of lines", hint="`-n all` shows all")
        return int(self.count)


def find_settings(context: Invocation) -> Audit | None:
    """Return the audit settings of the given config, or of the one that serving would find. Raises ConfigError.

    None if it has none, or there is no config: then the log is in its default place.
    """
    from dynamic_mcp.config.location import locate

    if context.config_option is None:
        user_dir = paths.config_dir()
        if locate(None, os.environ, directory=str(Path.cwd()), user_dir=lambda: str(user_dir)) is None:
            return None
    from dynamic_mcp.features.audit.config import Audit

    return context.read_config().settings_of("audit", Audit)


def find_directory(context: Invocation, directory: str | None) -> Path:
    """Return the directory of the log: that of `--dir`, else that of the config. Raises DynamicMcpError."""
    if directory is not None:
        if not Path(directory).is_dir():
            raise InvalidArguments(f"`{directory}` is not a directory")
        return Path(directory)
    settings = find_settings(context)
    return settings.path if settings is not None and settings.path is not None else paths.state_dir() / "audit"


def _find_directories(context: Invocation, directories: Sequence[str]) -> list[Path]:
    """Return the directories of the logs to read as one. Raises DynamicMcpError."""
    return [find_directory(context, each) for each in directories or (None,)]


class _Logs:
    """The logs in several directories, such as those of replicas, as one in the order of time."""

    def __init__(self, indexes: Sequence[AuditIndex]) -> None:
        self._indexes = indexes

    def find(self, wanted: LineFilter, most: int | None) -> Iterator[StoredLine]:
        """Yield matching lines, the oldest first: all, or only the last ones."""
        found = heapq.merge(*(_with_times(each.find(wanted, most)) for each in self._indexes), key=itemgetter(0))
        lines = (line for _, line in found)
        return lines if most is None else iter(deque(lines, most))

    def count(self, wanted: LineFilter) -> int:
        return sum(each.count(wanted) for each in self._indexes)

    def count_calls(self, wanted: LineFilter, by: Subject) -> list[CallCount]:
        return [count for each in self._indexes for count in each.count_calls(wanted, by)]

    def follow(self, wanted: LineFilter) -> Iterator[list[StoredLine]]:
        """Yield the lines that are new since the last time, again and again."""
        for more in zip(*(each.follow(wanted) for each in self._indexes), strict=True):
            yield [line for _, line in heapq.merge(*map(_with_times, more), key=itemgetter(0))]


def _with_times(lines: Iterable[StoredLine]) -> Iterator[tuple[str, StoredLine]]:
    """Yield lines of one log with their times; one that cannot be read has that of the one before."""
    at = ""
    for line in lines:
        at = max(at, line.record.at)
        yield at, line


@contextmanager
def _open_logs(context: Invocation, directories: Iterable[Path]) -> Iterator[_Logs]:
    """Open the indexes of logs, up to date, with progress on a terminal."""
    with ExitStack() as stack:
        indexes = []
        for each in directories:
            index = AuditIndex(each)
            stack.callback(index.close)
            with ReadProgress(context, "indexing the audit log") as progress:
                index.refresh(progress.report)
            indexes.append(index)
        yield _Logs(indexes)


class ReadProgress(ExitStack):
    """Shows how much of the log was read, if that takes a while."""

    def __init__(self, context: Invocation, what: str) -> None:
        super().__init__()
        self._this = context
        self._what = what
        self._progress: Progress | None = None

    def report(self, done: int, size: int) -> None:
        """Show how many bytes were read, and how many there are."""
        if self._progress is None and size - done > _SOON_READ:
            self._progress = self.enter_context(self._this.out.progress(self._what))
        if self._progress is not None:
            self._progress.note = f"{done / 1e6:.0f} of {size / 1e6:.0f} MB"


# --- showing ------------------------------------------------------------------------------------------------


def show_lines(context: Invocation, options: LineOptions, *, directories: Sequence[str], follows: bool) -> int:
    """Print the matching lines, and with `follows` new ones as they come; return the exit code."""
    places, wanted, most = _find_directories(context, directories), options.parse(context), options.parse_count()
    with _open_logs(context, places) as logs:
        lines = list(logs.find(wanted, most))
        if follows:
            _print_each(context.out, lines)
            pause = _pause_for(context.out)
            for more in logs.follow(wanted):
                _print_each(context.out, more)
                if not pause():
                    return 0
        if context.out.is_json:
            _print_each(context.out, lines)
        elif lines:
            context.out.print_table(_COLUMNS, [_cells(each.record) for each in lines])
        if most is not None and len(lines) == most and (count := logs.count(wanted)) > most:
            context.out.say(f"the last {most} of {count:,} lines; `-n all` shows all")
    where = " and ".join(f"`{each}`" for each in places)
    if not lines and not any(each.is_dir() for each in places):
        is_on = not directories and find_settings(context) is not None
        hint = "a call is recorded when it has ended" if is_on else "`settings.audit` in a config turns it on"
        context.out.say(f"there is no audit log in {where} yet\nhint: {hint}")
    elif not lines:
        context.out.say(f"the audit log in {where} has no {'such ' if wanted != LineFilter() else ''}lines")
    return 0


def _print_each(out: Output, lines: list[StoredLine]) -> None:
    for each in lines:
        if out.is_json:
            _print_json(out, each)
        else:
            when, who, event, result, took, what = _cells(each.record)
            text = f"{when} {who or '-'} {event} {what or '-'}: {result}{took and ', '}{took}"
            out.print_line(text, _STYLES.get(each.record.outcome, ""))


def _print_json(out: Output, stored: StoredLine) -> None:
    """Print a stored line unchanged; a damaged one as a text."""
    try:
        value: object = json.loads(stored.data)
    except (ValueError, RecursionError):
        value = {"damaged": stored.data.decode(errors="backslashreplace")}
    out.print_json_line({**value, "damaged": True} if isinstance(value, dict) and stored.line is None else value)


def _cells(line: AuditLine) -> list[str]:
    result = f"{line.outcome}: {line.error}" if line.error else line.outcome
    if line.outcome == "denied" and (line.approved_by or line.rule):
        result = f"denied by {line.approved_by or line.rule}"  # a person who was asked, or the rule
    elif line.approved_by:
        result = f"{result}, approved by {line.approved_by}"
    who = f"{line.subject} ({line.client})" if line.subject and line.client else line.subject or line.client
    what = " ".join(filter(None, (line.group, line.name))) or (
        line.config if line.event.startswith("config.") else ""
    )
    took = _format_ms(line.ms) if line.ms else ""
    # a line break in a name must not look like another line of the log
    return [_format_time(line.at), *map(escape, (who, line.event, result, took, what))]


def _format_time(at: str) -> str:
    """Return a time as local time, with its distance to UTC."""
    try:
        return datetime.fromisoformat(at).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError):
        return "?"


def _format_ms(ms: float) -> str:
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.0f} min"


def describe_count(lines: int) -> str:
    """Return a number of lines with its noun."""
    return pluralize(lines, "line") if lines < 1000 else f"{lines:,} lines"


def _pause_for(out: Output) -> Callable[[], bool]:
    """Return a function that waits for a moment, and returns whether the reader of the output is still there."""

    def sleep() -> bool:
        time.sleep(_FOLLOW_EVERY_S)
        return True

    if out.is_terminal or not hasattr(select, "poll"):
        return sleep
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are always reported
    return lambda: not poll.poll(_FOLLOW_EVERY_S * 1000)


# --- counting -----------------------------------------------------------------------------------------------


class CallStats(Struct, frozen=True):
    """The calls of one key. `p50_ms` and `p95_ms` are right to 2 %, and `tokens` is an estimate from the bytes."""

    key: tuple[str, ...]
    calls: int
    errors: int
    denied: int
    p50_ms: float
    p95_ms: float
    bytes: int
    tokens: int


def show_call_stats(context: Invocation, options: LineOptions, *, directories: Sequence[str], by: Subject) -> int:
    """Print the figures, most calls first; return the exit code."""
    with _open_logs(context, _find_directories(context, directories)) as logs:
        counts = logs.count_calls(options.parse(context), by)
    names = ("group", "tool") if by == "tool" else (by,)
    stats = sorted(summarize(counts, len(names)), key=lambda each: (-each.calls, each.key))
    context.out.print_rows(
        [_to_json(each, names) for each in stats],
        ["CALLS", "ERRORS", "DENIED", "P50", "P95", "BYTES", "~TOKENS", by.upper()],
        [_stats_cells(each) for each in stats],
        if_none="the audit log has no such calls",
    )
    return 0


def summarize(counts: Iterable[CallCount], width: int) -> list[CallStats]:
    """Return the figures of each key, which are the first `width` parts of the keys of counts."""
    by_key: dict[tuple[str, ...], list[CallCount]] = {}
    for each in counts:
        by_key.setdefault(each.key[:width], []).append(each)
    return [_summarize(key, of_key) for key, of_key in by_key.items()]


def _summarize(key: tuple[str, ...], counts: list[CallCount]) -> CallStats:
    counts = sorted(counts, key=lambda each: each.pace)
    size = sum(each.bytes for each in counts)
    return CallStats(
        key,
        calls=sum(each.calls for each in counts),
        errors=sum(each.errors for each in counts),
        denied=sum(each.denied for each in counts),
        p50_ms=_percentile(counts, 0.5),
        p95_ms=_percentile(counts, 0.95),
        bytes=size,
        tokens=-(-size // _BYTES_PER_TOKEN),
    )


def _percentile(counts: list[CallCount], share: float) -> float:
    """Return the duration that this share of the calls did not exceed."""
    reached = itertools.accumulate(each.calls for each in counts)
    least = share * sum(each.calls for each in counts)
    pace = next((each.pace for each, calls in zip(counts, reached, strict=True) if calls >= least), 0)
    return round(ms_of(pace), 3)


def _to_json(stats: CallStats, names: tuple[str, ...]) -> dict[str, object]:
    figures = {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "key"}
    return {**dict(zip(names, stats.key, strict=True)), **figures}


def _stats_cells(stats: CallStats) -> list[str]:
    counts = [f"{number:,}" for number in (stats.calls, stats.errors, stats.denied)]
    times = [_format_ms(stats.p50_ms), _format_ms(stats.p95_ms)]
    name = escape(" ".join(filter(None, stats.key))) or "-"
    return [*counts, *times, f"{stats.bytes:,}", f"~{stats.tokens:,}", name]


# --- exporting ----------------------------------------------------------------------------------------------


def export_lines(
    context: Invocation,
    options: LineOptions,
    *,
    directories: Sequence[str],
    form: str,
    output: str | None,
    must_replace: bool = False,
) -> int:
    """Write the matching lines to a private file, or to stdout; return the exit code.

    An existing file is replaced only with `must_replace`.
    """
    if output is not None and not must_replace and Path(output).is_file():
        raise DynamicMcpError(f"`{output}` exists and was not changed", hint="--force replaces it")
    with _open_logs(context, _find_directories(context, directories)) as logs:
        lines = logs.find(options.parse(context), options.parse_count())
        texts = export(lines, form, version=__version__)
        if output is None:
            for text in texts:
                context.out.print_text(text)
            return 0
        count = _write(Path(output).resolve(), texts) - (form == "csv")  # which has a line of titles
    context.out.say(f"{describe_count(count)} written to `{output}`")
    return 0


def _write(path: Path, texts: Iterator[str]) -> int:
    """Write lines to a file, which is replaced once all are written; return their number. Raises OSError."""
    if path.exists() and not path.is_file():  # a pipe or a device, which stays what it is
        with path.open("w", encoding="utf-8", newline="\n") as file:
            return _write_lines(file, texts)
    new = path.with_name(f".new-{os.urandom(8).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            paths.make_private(new)
            count = _write_lines(file, texts)
        file_reader.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return count


def _write_lines(file: TextIO, texts: Iterator[str]) -> int:
    count = 0
    for text in texts:
        file.write(text + "\n")
        count += 1
    return count
