"""Logging to stderr and to a file.

Records about a group use its `group_logger`, which adds the group's name to the record. The file is always JSON, with
the group as a member. Threads do the writing; a stalled reader or disk loses records, and never blocks the loop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from dynamic_mcp.mcp import wire
from dynamic_mcp.observe.current_request import current_request
from dynamic_mcp.system import paths
from dynamic_mcp.system.rate_limiter import RateLimiter
from dynamic_mcp.system.text import escape

# The loggers for non-MCP output of servers, with each line as an argument.
STDERR = "dynamic_mcp.stderr"
STDOUT = "dynamic_mcp.stdout"

FILE_NAME = "dynamic-mcp.log"
MAX_FILE_BYTES = 2 << 20
MAX_ROTATED_FILES = 3
# The size of the queue for a slow reader; further records are counted and dropped.
MAX_QUEUED_RECORDS = 2000
# The limits for lines of one server's stderr in the file: in a burst, and per second in the long run.
STDERR_BURST = 200
STDERR_A_SECOND = 20

LEVELS = ("debug", "info", "warning", "error")

log = logging.getLogger("dynamic_mcp")


class GroupLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry the name of a group as their attribute `group`."""

    def __init__(self, log: logging.Logger, group: str) -> None:
        super().__init__(log, {"group": group})

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


def group_logger(log: logging.Logger, group: str) -> GroupLogger:
    """Return a logger for records about a group."""
    return GroupLogger(log, group)


def group_of(record: logging.LogRecord) -> str | None:
    """Return the group that a record is about, if any."""
    group = getattr(record, "group", None)
    return group if isinstance(group, str) else None


def log_to_terminal(level: str, stream: TextIO) -> None:
    """Log for a command: to its stderr only, not to the file."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_TextFormatter())
    _replace_handlers([handler])
    _set_levels(handler, level)


class ServerLog:
    """The log of a serving proxy, on stderr and in the file. Level, format and file can change at run time.

    Records name the `worker` that writes them, if the proxy is one of several that serve together.
    """

    def __init__(self, level: str, form: str, *, worker: str = "", stderr: int = 2) -> None:
        self._worker = worker
        self._console = _BackgroundHandler(Descriptor(stderr), name="log to stderr")
        self._file: _BackgroundHandler | None = None
        self.configure(level, form)

    def configure(self, level: str, form: str, *, folder: Path | None = None, config: str = "") -> None:
        """Use this level and format from now on, and log to the file in `folder`, if given.

        Records in the file contain the path `config`.
        """
        self._console.setFormatter(
            _JsonFormatter(worker=self._worker) if form == "json" else _TextFormatter(self._worker)
        )
        if folder is not None and self._file is None:
            self._file = _BackgroundHandler(LogFile(folder), name="log to the file")
            self._file.setFormatter(_JsonFormatter(config, worker=self._worker))
            self._file.addFilter(StderrRateLimit())
        elif folder is None and self._file is not None:
            self._file.close()
            self._file = None
        _replace_handlers([self._console, *([self._file] if self._file else [])])
        _set_levels(self._console, level, self._file)

    def close(self, within_s: float = 0.5) -> None:
        """Write the queued records, with a time limit for each destination."""
        for handler in (self._console, self._file):
            if handler is not None:
                handler.finish(within_s)


def append_error(folder: Path, words: str, *, config: str = "") -> None:
    """Append one error to the file, for a proxy that fails to start."""
    record = log.makeRecord(log.name, logging.ERROR, __file__, 0, words, (), None)
    LogFile(folder).write(_JsonFormatter(config).format(record) + "\n")


class LogFile:
    """A log file that several proxies append to and rotate. Never raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._descriptor: int | None = None

    def write(self, line: str) -> None:
        """Append one line with a single write."""
        with contextlib.suppress(OSError):
            if self._descriptor is None or self._has_moved():
                self._open()
            assert self._descriptor is not None
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))
            if os.fstat(self._descriptor).st_size > MAX_FILE_BYTES:
                self._rotate()

    def _open(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        paths.make_private_dir(self._path.parent)
        self._descriptor = paths.open_to_append(self._path)

    def _has_moved(self) -> bool:
        """Return whether another proxy has rotated the file, or it was removed."""
        assert self._descriptor is not None
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return True

    def _rotate(self) -> None:
        assert self._descriptor is not None
        if not paths.try_lock(self._descriptor):
            return  # another proxy is rotating it
        try:
            if self._has_moved():
                return
            # The file itself goes last: until then, nobody else has a new one to rotate. Where it cannot be renamed,
            # since an editor has it open on Windows, the older ones stay as they are.
            if rotated_path(self._path, 1).exists():
                for number in range(MAX_ROTATED_FILES - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        rotated_path(self._path, number).replace(rotated_path(self._path, number + 1))
            self._path.replace(rotated_path(self._path, 1))
        finally:
            paths.unlock(self._descriptor)


def rotated_path(path: Path, number: int) -> Path:
    """Return the path of the file after this many rotations."""
    return path.with_name(f"{path.name}.{number}")


def find_rotated(path: Path, seen: os.stat_result) -> Path | None:
    """Return where rotations have moved a file; None if it is gone."""
    for number in range(1, MAX_ROTATED_FILES + 1):
        rotated = rotated_path(path, number)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(seen, rotated.stat()):
                return rotated
    return None


def find_log_files(folder: Path) -> list[Path]:
    """Return the existing log files, oldest first."""
    newest = folder / FILE_NAME
    return [
        path
        for path in (*(rotated_path(newest, n) for n in range(MAX_ROTATED_FILES, 0, -1)), newest)
        if path.is_file()
    ]


# --- handlers --------------------------------------------------------------------------------------------------


class Descriptor:
    """Writes lines to a file descriptor, such as stderr. Never raises OSError.

    It is not a stream: Python aborts if a thread holds a stream's lock when the program ends.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, line: str) -> None:
        """Write one line, blocking until all of it is written."""
        data = line.encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):  # the reader has closed the descriptor
            while data:
                data = data[os.write(self._number, data) :]


class _BackgroundHandler(logging.Handler):
    """Formats records in the caller and writes them in a thread; if the queue is full, it only counts them."""

    def __init__(self, sink: Descriptor | LogFile, name: str) -> None:
        super().__init__()
        self._sink = sink
        self._queue: queue.Queue[str | None] = queue.Queue(MAX_QUEUED_RECORDS)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if self._dropped:
                self._queue.put_nowait(self._format_loss())
                self._dropped = 0
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001 - a failing log record must not break the caller
            self.handleError(record)

    def finish(self, within_s: float) -> None:
        """Wait for the queued records to be written, for at most `within_s`."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
            self._thread.join(within_s)

    def close(self) -> None:
        """Close the handler without waiting for its thread."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        super().close()

    def _format_loss(self) -> str:
        words = ("%d lines are missing here: they came faster than they could be written", (self._dropped,))
        return self.format(log.makeRecord(log.name, logging.WARNING, __file__, 0, *words, None)) + "\n"

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            self._sink.write(line)


class StderrRateLimit(logging.Filter):
    """Passes records for operators, and limits the rate of each server's stderr."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = RateLimiter[str | None](STDERR_BURST, 1 / STDERR_A_SECOND)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name != STDERR:
            return record.levelno >= logging.INFO
        return self._lines.take(group_of(record), time.monotonic())


class _TextFormatter(logging.Formatter):
    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._writer = f"dynamic-mcp {worker}" if worker else "dynamic-mcp"

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, and a traceback as further lines."""
        lines = [f"{self._writer}: " + escape(record.getMessage(), keep="\n")]
        if record.exc_info:
            lines.append(escape(self.formatException(record.exc_info), keep="\n"))
        return "\n".join(lines)


class _JsonFormatter(logging.Formatter):
    def __init__(self, config: str = "", *, worker: str = "") -> None:
        super().__init__()
        self._config, self._worker = config or None, worker or None

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of ASCII JSON."""
        members: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "worker": self._worker,
            "config": self._config,
            "group": group_of(record),
            "message": record.getMessage(),
            **_ids_of(record),
        }
        if record.exc_info:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in members.items() if value is not None})


def _ids_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the ids of the request that a record is about; none for the output of servers."""
    request = None if record.name in (STDERR, STDOUT) else current_request()
    if request is None:
        return {}
    ids: dict[str, object] = {"request_id": wire.value(request.id)}
    return {**ids, "trace_id": request.trace_id, "span_id": request.span_id} if request.trace_id else ids


def _replace_handlers(handlers: list[logging.Handler]) -> None:
    log.handlers[:] = handlers
    log.propagate = False
    others = logging.getLogger()  # libraries' warnings belong in the same place
    others.handlers[:] = handlers
    others.setLevel(logging.WARNING)


def _set_levels(console: logging.Handler, level: str, file: logging.Handler | None = None) -> None:
    number = logging.getLevelNamesMapping()[level.upper()]
    console.setLevel(number)
    log.setLevel(number if file is None else min(number, logging.INFO))
    # the output of servers goes to stderr only when debugging, and always to the file
    logging.getLogger(STDERR).setLevel(logging.NOTSET if file is None else logging.DEBUG)
