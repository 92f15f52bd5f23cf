"""Maintains the log in a thread: syncs it to disk, records calls of dead processes, seals and removes days."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.features.audit import days, journal, seals
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.system.text import os_reason, pluralize

if TYPE_CHECKING:  # loads cryptography
    from dynamic_mcp.features.audit.signing import SealSigningKey

log = logging.getLogger(__name__)

_SYNC_EVERY_S = 1.0
_CLOSE_WITHIN_S = 3.0


class Keeping(Struct, frozen=True):
    """The retention of days, and the file of the key that signs their seals."""

    keep_s: float
    seal_key: Path | None = None


class Keeper:
    """The thread that maintains a log; it sleeps while idle. A failure is a warning."""

    def __init__(self, audit_log: AuditLog, keeping: Keeping, *, now: Callable[[], float] = time.time) -> None:
        self._log = audit_log
        self._keeping = keeping
        self._now = now
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closing = threading.Event()
        self._must_sync = False
        self._thread: threading.Thread | None = None
        audit_log.on_new_day = lambda day: self._schedule(self._end_days)

    def start(self) -> None:
        """Record calls that dead processes left open, and seal and remove days, now and when a day ends."""
        self._schedule(self._recover)
        self._schedule(self._end_days)

    def sync_soon(self) -> None:
        """Sync the lines so far to disk within about a second."""
        if not self._must_sync:
            self._must_sync = True
            self._schedule(self._sync)

    def close(self) -> None:
        """Finish the jobs so far, within a bound, and end the thread."""
        self._is_closing.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_WITHIN_S)
            self._thread = None

    def _schedule(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if self._thread is None and not self._is_closing.is_set():
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()

    # --- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except OSError as exc:
                log.warning("the audit log in %s: %s", self._log.directory, exc)
            except Exception:
                log.exception("a bug: the audit log in %s is not maintained", self._log.directory)

    def _sync(self) -> None:
        self._is_closing.wait(_SYNC_EVERY_S)
        self._must_sync = False
        self._log.sync()

    def _recover(self) -> None:
        with journal.abandoned(self._log.directory) as lines:
            for line in lines:
                self._log.append(line)
        if lines:
            log.warning("the outcome of %s is unknown: their process was ended", pluralize(len(lines), "call"))

    def _end_days(self) -> None:
        self._log.settle()
        today = days.day_at(self._now())
        seals.seal_days(self._log.directory, today, signer=self._load_signer(), now=self._now)
        self._remove_expired(today)

    def _load_signer(self) -> SealSigningKey | None:
        """Return the key that signs. Raises OSError; without its key a day is not sealed."""
        path = self._keeping.seal_key
        if path is None:
            return None
        from dynamic_mcp.features.audit import signing

        try:
            return signing.load_signing_key(path)
        except ValueError as exc:
            raise OSError(f"days are not sealed: {path}: {exc}") from None

    def _remove_expired(self, today: str) -> None:
        """Remove the files of days that were kept long enough; their seals stay."""
        sealed = {seal.day for seal in seals.read_seals(self._log.directory)}
        for day in days.expired(days.list_days(self._log.directory), today, self._keeping.keep_s):
            if day in sealed:
                self._remove(day)

    def _remove(self, day: str) -> None:
        try:
            days.file_of(self._log.directory, day).unlink(missing_ok=True)
        except PermissionError as exc:  # on Windows, a process that has written nothing since has it open
            log.warning("the audit log of %s stays for now: %s", day, os_reason(exc))
        else:
            log.info("the audit log of %s was removed", day)
