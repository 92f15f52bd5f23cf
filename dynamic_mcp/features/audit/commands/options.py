"""The options of `dynamic-mcp audit`: which log, and which of its lines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.features.audit.query import LineFilter
from dynamic_mcp.system import paths

if TYPE_CHECKING:
    from dynamic_mcp.cli.output import Progress
    from dynamic_mcp.features.audit.config import Audit
    from dynamic_mcp.features.audit.index import AuditIndex

_HINT = "write a time until now such as `90s`, `1h` or `2d`, or a time such as `2026-11-23` or `2026-11-23T14:00`"
# As many bytes are read before anybody asks what takes so long.
_SOON_READ = 10_000_000


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What was typed to say which lines are wanted; `count` is `all` or how many of the last."""

    since: str | None = None
    until: str | None = None
    who: str = ""
    client: str = ""
    group: str = ""
    tool: str = ""
    event: str = ""
    decision: str = ""
    errors: bool = False
    slow: str | None = None
    count: str = "all"

    def parse(self, this: Invocation) -> LineFilter:
        """Return which lines are wanted; a config that is given means its lines only. Raises InvalidArguments."""
        now = time.time()
        config = this.explicit_path()
        return LineFilter(
            since=None if self.since is None else int(parse_time("--since", self.since, now) * 1000),
            until=None if self.until is None else int(parse_time("--until", self.until, now, is_end=True) * 1000),
            who=self.who,
            client=self.client,
            group=self.group,
            tool=self.tool,
            event=self.event,
            decision=self.decision,
            config="" if config is None else str(config),
            only_errors=self.errors,
            slow_ms=None if self.slow is None else _parse_duration("--slow", self.slow) * 1000,
        )

    def parse_count(self) -> int | None:
        """Return how many lines are wanted; None is all. Raises InvalidArguments."""
        if self.count == "all":
            return None
        if not self.count.isascii() or not self.count.isdigit() or not 0 < int(self.count[:10]) < 10**9:
            raise InvalidArguments(f"`-n {self.count}` is not a number of lines", hint="`-n all` shows all")
        return int(self.count)


def parse_time(option: str, text: str, now: float, *, is_end: bool = False) -> float:
    """Return the seconds since 1970 of a time until now, a date or a time, which are local without a zone.

    A date is its beginning, or its end. Raises InvalidArguments.
    """
    try:
        return now - parse_seconds(text)
    except FlawError as exc:
        flaw = exc
    try:
        found = datetime.fromisoformat(text.strip())
        if len(text.strip()) <= len("2026-11-23") and is_end:
            found += timedelta(days=1)
        return found.timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidArguments(f"`{option} {text}` is not a time", hint=_HINT) from flaw


def _parse_duration(option: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"`{option}` {exc}", hint=exc.hint) from exc


def find_settings(this: Invocation) -> Audit | None:
    """Return the audit settings of the config that is given, or that serving would find. Raises ConfigError.

    None is a config without them, or none at all: then the log is in its default place.
    """
    if this.config_option is None and not _has_config():
        return None
    from dynamic_mcp.features.audit.config import Audit

    return this.read_config().settings_of("audit", Audit)


def find_directory(this: Invocation, directory: str | None) -> Path:
    """Return the directory of the log: that of `--dir`, else that of the config. Raises DynamicMcpError."""
    if directory is not None:
        found = Path(directory)
        if not found.is_dir():
            raise InvalidArguments(f"`{directory}` is not a directory")
        return found
    settings = find_settings(this)
    return settings.path if settings is not None and settings.path is not None else paths.state_dir() / "audit"


@contextmanager
def open_index(this: Invocation, directory: Path) -> Iterator[AuditIndex]:
    """Open the index of a log, up to date; that it takes a while shows on a terminal."""
    from dynamic_mcp.features.audit.index import AuditIndex

    index = AuditIndex(directory)
    try:
        with ReadProgress(this, "indexing the audit log") as progress:
            index.refresh(progress.report)
        yield index
    finally:
        index.close()


class ReadProgress(ExitStack):
    """Shows how much of the log was read, once it is known to take a while."""

    def __init__(self, this: Invocation, what: str) -> None:
        super().__init__()
        self._this = this
        self._what = what
        self._progress: Progress | None = None

    def report(self, done: int, size: int) -> None:
        """Note how many bytes were read, and how many there are."""
        if self._progress is None and size - done > _SOON_READ:
            self._progress = self.enter_context(self._this.out.progress(self._what))
        if self._progress is not None:
            self._progress.note = f"{done / 1e6:.0f} of {size / 1e6:.0f} MB"


def _has_config() -> bool:
    from dynamic_mcp.config.location import locate

    user_dir = paths.config_dir()
    return locate(None, os.environ, directory=str(Path.cwd()), user_dir=lambda: str(user_dir)) is not None
