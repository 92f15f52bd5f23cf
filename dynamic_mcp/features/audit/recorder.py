"""Records calls: as open before they are sent, and with their line at the end. Decides what happens if that fails.

Reads go on, and so do writes unless the config stops them. Lines that cannot be written are kept, up to a bound, and
written later; beyond the bound, a gap line says how many are lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from dynamic_mcp.errors import NotRecorded
from dynamic_mcp.features.audit.arguments import load_key
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.journal import CallJournal
from dynamic_mcp.features.audit.keeper import Keeper, Keeping
from dynamic_mcp.features.audit.log import AuditLog, gap_line
from dynamic_mcp.system.text import os_reason, pluralize

log = logging.getLogger(__name__)

_MAX_LATE = 1000
# Lines of ended calls are written together, this long after the first of them; so many at once, to keep other work
# waiting only briefly.
_CLOSE_AFTER_S = 0.01
_AT_ONCE = 32


class LineRecorder:
    """Writes lines to the log for one thread. `stops_writes` refuses writing calls while that fails.

    `failures` counts the failed writes.
    """

    def __init__(self, audit_log: AuditLog, keeper: Keeper, *, stops_writes: bool, max_late: int = _MAX_LATE) -> None:
        self._log = audit_log
        self._keeper = keeper
        self._journal = CallJournal(audit_log.directory)
        self._stops_writes = stops_writes
        self._max_late = max_late
        self._closed: list[Callable[[], AuditLine]] = []
        self._writing: asyncio.Handle | None = None
        self._late: deque[AuditLine] = deque()
        self.failures = 0
        self._lost = 0
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<LineRecorder {len(self._journal)} open, {len(self._late)} late, {self._lost} lost>"

    def open(self, line: AuditLine, what: str, *, is_write: bool, shared: bytes = b"") -> None:
        """Write down a call that is about to be sent; `what` names it. Raises NotRecorded if it must not be sent.

        `shared` is the JSON of another line, for what it does not say itself.
        """
        try:
            if self._late:
                self._write_late()
            self._journal.add(line, shared)
        except OSError as exc:
            self._report_failure(exc)
            if self._stops_writes and is_write:
                raise NotRecorded(what, os_reason(exc)) from None
        else:
            if self._is_failing:
                self._report_success()

    def close_call(self, make_line: Callable[[], AuditLine]) -> None:
        """Append the line of an open call soon, in the event loop: its answer does not wait for that.

        If the process is killed before, the open call is recorded with an unknown outcome.
        """
        self._closed.append(make_line)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(_CLOSE_AFTER_S, self._write_some)

    def record(self, line: AuditLine) -> None:
        """Append a line now, after those of earlier calls; if that fails, it is written later."""
        self._closed.append(lambda: line)
        self._write_closed(len(self._closed))

    def close(self) -> None:
        """Write what is left, if possible. Calls that are still open get their line from another process."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._write_closed(len(self._closed))
        try:
            self._write_late()
        except OSError as exc:
            lost = pluralize(self._lost + len(self._late), "line")
            log.warning("the audit log in %s lacks %s: %s", self._log.directory, lost, exc)
        self._journal.close()

    def _write_some(self) -> None:
        """Write some of the waiting lines, and the others in the next turns of the event loop."""
        self._write_closed(_AT_ONCE)
        loop = asyncio.get_running_loop()
        self._writing = loop.call_soon(self._write_some) if self._closed else None

    def _write_closed(self, most: int) -> None:
        closed, self._closed = self._closed[:most], self._closed[most:]
        if not closed:
            return
        lines = [make_line() for make_line in closed]
        try:
            if self._late:
                self._write_late()
            self._append(lines)
        except OSError as exc:
            self._report_failure(exc)
            self._keep(lines)
        else:
            if self._is_failing:
                self._report_success()
        self._keeper.sync_soon()

    def _append(self, lines: Sequence[AuditLine]) -> None:
        self._log.append_all(lines)
        for line in lines:
            self._journal.remove(line.id)

    def _keep(self, lines: Sequence[AuditLine]) -> None:
        self._late.extend(lines)
        while len(self._late) > self._max_late:
            self._journal.remove(self._late.popleft().id)
            self._lost += 1

    def _write_late(self) -> None:
        """Write the lines that could not be written, and how many are lost. Raises OSError."""
        while self._late:
            lines = list(islice(self._late, _AT_ONCE))
            self._append(lines)
            for _ in lines:
                self._late.popleft()
        if self._lost:
            self._log.append(gap_line("lost", {"lines": self._lost}))
            log.warning("%s of the audit log are lost", pluralize(self._lost, "line"))
            self._lost = 0

    def _report_success(self) -> None:
        self._is_failing = False
        log.warning("the audit log in %s is written again", self._log.directory)

    def _report_failure(self, exc: OSError) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            then = "calls that may change something are refused" if self._stops_writes else "calls go on unrecorded"
            log.error("the audit log in %s cannot be written: %s; %s", self._log.directory, os_reason(exc), then)


class Trail:
    """The log in one directory, open until `close`: its recorder and its keeper."""

    def __init__(self, directory: Path, keeping: Keeping, *, stops_writes: bool) -> None:
        self.directory = directory
        self._log = AuditLog(directory)
        self._keeper = Keeper(self._log, keeping)
        self.recorder = LineRecorder(self._log, self._keeper, stops_writes=stops_writes)
        self._prefix = os.urandom(6).hex()
        self._numbers = itertools.count(1)
        self._keeper.start()

    def __repr__(self) -> str:
        return f"<Trail {self._log!r}, {self.recorder!r}>"

    def new_id(self) -> str:
        """Return a unique id for a line."""
        return f"{self._prefix}-{next(self._numbers):x}"

    @cached_property
    def key(self) -> bytes | None:
        """The key of the log's digests; None if the directory cannot be used."""
        try:
            return load_key(self.directory)
        except (OSError, ValueError) as exc:
            log.warning("arguments are recorded without digests: %s", exc)
            return None

    def close(self) -> None:
        """Write what is left, sync it to disk, and close the files."""
        self.recorder.close()
        self._keeper.close()
        try:
            self._log.close()
        except OSError as exc:
            log.warning("the audit log in %s may not be on disk: %s", self.directory, exc)
