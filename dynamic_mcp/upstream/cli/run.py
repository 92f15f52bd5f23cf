"""Runs a program once, in a separate process group, which has ended when this returns or is cancelled."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable

from msgspec import Struct

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.process.child import Process, start

# Time for a program to end after SIGTERM, and after SIGKILL.
GRACE_S = 5.0
_GONE_WITHIN_S = 2.0
# A process left behind may keep the output open: after the exit of the program, silence is the end.
_SILENCE_S = 0.3
# A program that writes more than this without an end is ended.
MAX_OUTPUT_BYTES = 64 << 20
# Colours, cursor moves, titles and other terminal escapes (ECMA-48).
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}
_CONTINUATION = re.compile(rb"^[\x80-\xbf]{1,3}")
_INCOMPLETE = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})$")


class CommandResult(Struct, frozen=True):
    """The exit code and the output of a program; `stopped` is the reason if we ended it.

    `code` is its exit code, 128 plus the number of the signal that ended it, or None if we ended it.
    """

    code: int | None
    stdout: CapturedOutput
    stderr: CapturedOutput
    stopped: str = ""


async def run(
    program: Program,
    *,
    stdin: str | None,
    timeout_s: float,
    output_limit: int,
    on_stderr: Callable[[bytes], None] = lambda data: None,
) -> CommandResult:
    """Run a program, with no input if `stdin` is None. Raises OSError and ValueError if it cannot be started."""
    process = await start(program, stdin=await asyncio.to_thread(_open_stdin, stdin))
    running = _Run(process, output_limit, on_stderr)
    try:
        await running.open()
        stopped = await running.wait(timeout_s)
    finally:
        await _finish(process)
    return CommandResult(None if stopped else _code(process), running.stdout, running.stderr, stopped)


class _Run:
    """A running program, and its output so far."""

    def __init__(self, process: Process, limit: int, on_stderr: Callable[[bytes], None]) -> None:
        self.stdout = CapturedOutput(limit)
        self.stderr = CapturedOutput(limit)
        self._process = process
        self._on_stderr = on_stderr
        self._open_pipes = 2
        self._has_news = asyncio.Event()
        self._has_flooded = False

    async def open(self) -> None:
        """Begin to read; this is not cancelled, because half-open pipes cannot be closed cleanly."""
        opening = asyncio.ensure_future(
            self._process.open_pipes(
                self._take_stdout,
                self._take_stderr,
                on_stdin_end=lambda: None,
                on_stdout_end=self._take_end,
                on_exit=self._has_news.set,
                on_stderr_end=self._take_end,
            )
        )
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            raise

    async def wait(self, timeout_s: float) -> str:
        """Wait until the program has ended and all is read; return the reason to end it instead, or an empty text."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (self._process.exited.is_set() or self._has_flooded):
                    await self._wait_for_news()
        except TimeoutError:
            return f"it did not end within {timeout_s:g} s"
        if self._has_flooded:
            return f"it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB"
        while self._open_pipes and not self._has_flooded:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    await self._wait_for_news()
            except TimeoutError:
                break
        return ""

    async def _wait_for_news(self) -> None:
        await self._has_news.wait()
        self._has_news.clear()

    def _take_stdout(self, data: bytes) -> None:
        self.stdout.feed(data)
        self._take_news()

    def _take_stderr(self, data: bytes) -> None:
        self.stderr.feed(data)
        self._on_stderr(data)
        self._take_news()

    def _take_end(self) -> None:
        self._open_pipes -= 1
        self._take_news()

    def _take_news(self) -> None:
        self._has_flooded = self.stdout.size + self.stderr.size > MAX_OUTPUT_BYTES
        if self._has_flooded:
            self._process.pause_stdout()
        self._has_news.set()


async def _finish(process: Process) -> None:
    """End everything that is left of a program, even if the waiting task is cancelled."""
    ending = asyncio.ensure_future(_end(process))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait([ending])
        raise


async def _end(process: Process) -> None:
    await process.end(grace_s=GRACE_S, kill_within_s=_GONE_WITHIN_S)
    process.close_pipes()


def _code(process: Process) -> int | None:
    code = process.returncode
    return code if code is None or code >= 0 else 128 - code


def _open_stdin(text: str | None) -> int:
    """Open the input of the program: a file with the text, or an empty one. Raises OSError."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


class CapturedOutput:
    """One stream of a program. Of more than `limit` bytes, only both ends are kept."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._most = limit // 2
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        room = self._most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]

    @property
    def is_cut(self) -> bool:
        """True if the middle is missing."""
        return self.size > self._limit

    @property
    def data(self) -> bytes:
        """The output as it is; what `is_cut` lacks its middle."""
        return bytes(self._head + self._tail)

    def text(self) -> str:
        """Return the text without terminal escapes; a line stands for a middle that is missing."""
        if not self.is_cut:
            return clean(bytes(self._head + self._tail))
        head = _INCOMPLETE.sub(b"", bytes(self._head))
        tail = _CONTINUATION.sub(b"", bytes(self._tail[-self._most :]))
        missing = self.size - len(head) - len(tail)
        return f"{clean(head)}\n… ({missing} bytes left out) …\n{clean(tail)}"


def clean(data: bytes) -> str:
    """Return the text without terminal escapes and other invisible characters."""
    text = data.decode("utf-8", "replace")
    return _ESCAPES.sub("", text).translate(_CONTROLS) if not text.isprintable() else text
