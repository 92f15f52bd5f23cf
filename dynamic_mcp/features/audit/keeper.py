"""Looks after the log in a thread: syncs it to disk, closes what dead processes left open, seals and removes days.

Seals are sent to where they cannot be changed together with the log: the system log, or a program.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from logging.handlers import SysLogHandler
from pathlib import Path
from queue import SimpleQueue

from msgspec import Struct

from dynamic_mcp.features.audit import chain, days, journal, seals
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.features.audit.seals import Seal, Signer
from dynamic_mcp.system.text import pluralize

log = logging.getLogger(__name__)

_SYNC_EVERY_S = 1.0
_CLOSE_WITHIN_S = 3.0
_COMMAND_WITHIN_S = 30.0
_MAX_OUTPUT_SHOWN = 300
# Where the system log listens: Linux and the BSDs, macOS.
_SYSLOG_SOCKETS = ("/dev/log", "/var/run/syslog")


class Keeping(Struct, frozen=True):
    """How long days are kept, and what is done with their seals."""

    keep_s: float
    seal_key: Path | None = None
    seal_syslog: bool = False
    seal_command: tuple[str, ...] = ()


class Keeper:
    """The thread that looks after a log; it sleeps while there is nothing to do. What fails is a warning."""

    def __init__(self, audit_log: AuditLog, keeping: Keeping, *, now: Callable[[], float] = time.time) -> None:
        self._log = audit_log
        self._keeping = keeping
        self._now = now
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closing = threading.Event()
        self._must_sync = False
        self._thread: threading.Thread | None = None
        audit_log.on_new_day = lambda day: self._do(self._end_days)

    def start(self) -> None:
        """Close what dead processes have left open, and seal and remove days, now and when a day ends."""
        self._do(self._recover)
        self._do(self._end_days)

    def sync_soon(self) -> None:
        """Have the lines so far reach the disk within about a second."""
        if not self._must_sync:
            self._must_sync = True
            self._do(self._sync)

    def close(self) -> None:
        """Finish what has begun, within a bound, and end the thread."""
        self._is_closing.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_WITHIN_S)
            self._thread = None

    def _do(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if self._thread is None and not self._is_closing.is_set():
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except (OSError, DeliveryError) as exc:
                log.warning("the audit log in %s: %s", self._log.directory, exc)
            except Exception:
                log.exception("a bug: the audit log in %s is not looked after", self._log.directory)

    # --- in the thread -----------------------------------------------------------------------------------------

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
        for seal in seals.seal_days(self._log.directory, today, signer=self._signer(), now=self._now):
            self._deliver(seal)
        self._remove_expired(today)

    def _signer(self) -> Signer | None:
        """Return the key that signs. Raises OSError; without its key a day is not sealed."""
        path = self._keeping.seal_key
        if path is None:
            return None
        from dynamic_mcp.features.audit import signing

        try:
            return signing.load_private_key(path)
        except ValueError as exc:
            raise OSError(f"days are not sealed: {path}: {exc}") from None

    def _deliver(self, seal: Seal) -> None:
        """Send a seal to where the config says; one way may fail, and the other not."""
        data = chain.encode(seal)
        ways: list[Callable[[], None]] = []
        if self._keeping.seal_syslog:
            ways.append(lambda: send_to_syslog(data.decode(), _find_syslog()))
        if self._keeping.seal_command:
            ways.append(lambda: run_command(self._keeping.seal_command, data))
        for send in ways:
            try:
                send()
            except DeliveryError as exc:
                log.warning("the seal of %s was not delivered: %s", seal.day, exc)

    def _remove_expired(self, today: str) -> None:
        """Remove days that were kept long enough; their seals stay."""
        sealed = {seal.day for seal in seals.read_seals(self._log.directory)}
        for day in days.expired(days.list_days(self._log.directory), today, self._keeping.keep_s):
            if day in sealed:
                days.file_of(self._log.directory, day).unlink(missing_ok=True)
                log.info("the audit log of %s was removed", day)


class DeliveryError(Exception):
    """A seal was not delivered."""


def _find_syslog() -> str:
    """Return the socket of the system log. Raises DeliveryError."""
    found = next((path for path in _SYSLOG_SOCKETS if Path(path).exists()), None)
    if found is None:
        raise DeliveryError("this machine has no system log")
    return found


def send_to_syslog(text: str, address: str) -> None:
    """Send a line to the system log at a socket. Raises DeliveryError."""
    try:
        handler = _Syslog(address)
    except OSError as exc:
        raise DeliveryError(f"{address}: {exc}") from None
    try:
        handler.ident = "dynamic-mcp: "
        handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))
    finally:
        handler.close()


def run_command(command: Sequence[str], data: bytes, *, within_s: float = _COMMAND_WITHIN_S) -> None:
    """Run a program with some bytes as its stdin, within a bound. Raises DeliveryError."""
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=within_s, check=False
        )
    except (OSError, ValueError) as exc:
        raise DeliveryError(f"`{command[0]}`: {exc}") from None
    except subprocess.TimeoutExpired:
        raise DeliveryError(f"`{command[0]}` took longer than {within_s:g} s") from None
    if done.returncode:
        said = done.stderr[-_MAX_OUTPUT_SHOWN:].decode(errors="replace").strip()
        raise DeliveryError(f"`{command[0]}` ended with {done.returncode}{said and f': {said!r}'}")


class _Syslog(SysLogHandler):
    def __init__(self, address: str) -> None:
        super().__init__(address, SysLogHandler.LOG_AUTH, socket.SOCK_DGRAM)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Raise what has happened: DeliveryError."""
        raise DeliveryError("the system log does not take it")
