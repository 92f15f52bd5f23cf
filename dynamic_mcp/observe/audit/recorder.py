"""Records calls: open before they are sent, closed with their line. Decides what happens while that fails.

Reads go on, and so do writes unless the config stops them. Lines that cannot be written are kept, up to a bound, and
written later; if that is not enough, a gap line says how many are lost.
"""

from __future__ import annotations

import logging
from collections import deque

from dynamic_mcp.errors import NotRecorded
from dynamic_mcp.observe.audit.journal import Journal
from dynamic_mcp.observe.audit.keeper import Keeper
from dynamic_mcp.observe.audit.line import AuditLine
from dynamic_mcp.observe.audit.log import AuditLog, gap_line
from dynamic_mcp.system.text import pluralize

log = logging.getLogger(__name__)

_MAX_LATE = 1000


class Recorder:
    """Writes lines to the log for one thread.

    `stops_writes` refuses what may change something while that fails.

    `failures` is how often something could not be written.
    """

    def __init__(self, audit_log: AuditLog, keeper: Keeper, *, stops_writes: bool, max_late: int = _MAX_LATE) -> None:
        self._log = audit_log
        self._keeper = keeper
        self._journal = Journal(audit_log.directory)
        self._stops_writes = stops_writes
        self._max_late = max_late
        self._late: deque[AuditLine] = deque()
        self.failures = 0
        self._lost = 0
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<Recorder {len(self._journal)} open, {len(self._late)} late, {self._lost} lost>"

    def open(self, line: AuditLine, what: str, *, is_write: bool) -> None:
        """Write down a call that is about to be sent; `what` names it. Raises NotRecorded, where it must not be."""
        try:
            if self._is_failing:
                self._write_late()
            self._journal.add(line)
        except OSError as exc:
            self._complain(exc)
            if self._stops_writes and is_write:
                raise NotRecorded(what, exc.strerror or str(exc)) from None
        else:
            self._is_failing = False

    def record(self, line: AuditLine) -> None:
        """Append a line, which closes the call if it was open; if it cannot be written, that is done later."""
        try:
            if self._is_failing:
                self._write_late()
            self._append(line)
        except OSError as exc:
            self._complain(exc)
            self._keep(line)
        self._keeper.sync_soon()

    def close(self) -> None:
        """Write what is late, if that can be done. Calls that are still open get their line from another process."""
        try:
            self._write_late()
        except OSError as exc:
            lost = pluralize(self._lost + len(self._late), "line")
            log.warning("the audit log in %s lacks %s: %s", self._log.directory, lost, exc)
        self._journal.close()

    def _append(self, line: AuditLine) -> None:
        self._log.append(line)
        self._journal.remove(line.id)

    def _keep(self, line: AuditLine) -> None:
        self._late.append(line)
        if len(self._late) > self._max_late:
            self._journal.remove(self._late.popleft().id)
            self._lost += 1

    def _write_late(self) -> None:
        """Write the lines that could not be written, and how many are lost. Raises OSError."""
        while self._late:
            self._append(self._late[0])
            self._late.popleft()
        if self._lost:
            self._log.append(gap_line("lost", {"lines": self._lost}))
        if self._is_failing:
            log.warning("the audit log is written again; %s lost", pluralize(self._lost, "line"))
        self._lost, self._is_failing = 0, False

    def _complain(self, exc: OSError) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            then = "calls that may change something are refused" if self._stops_writes else "calls go on unrecorded"
            log.error("the audit log in %s cannot be written: %s; %s", self._log.directory, exc, then)
