"""An upstream that is a child process: lines over its stdin and stdout, its stderr kept as a ring.

Whatever is started here is ended here: the whole process group, within a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import re
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.errors import LinkLost, NotSent, Unreachable
from dynamic_mcp.mcp import lines, wire
from dynamic_mcp.observe.log_output import STDERR, group_logger
from dynamic_mcp.system.text import escape
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.process.child import SIGKILL, Process, start

log = logging.getLogger(__name__)
overheard = logging.getLogger(STDERR)

STDERR_LINES = 200
STDERR_LINE_BYTES = 2000
REASON_LINES = 5
# How much of either end is kept of a longer line; less than what is cut out here, so that no secret loses its start.
_EDGE_CHARS = 500
# How long a child may take to end after its stdin is closed, and again after SIGTERM.
GRACE_S = 2.0
# What was written before the end may still be in the pipe when the exit is known.
_DRAIN_S = 0.05
# A variable as servers name one they miss, and those that every shell sets and nobody misses.
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{3,}\b")
_OF_EVERY_SHELL = frozenset(("OLDPWD", "SHLVL", "HOSTNAME", "COLUMNS", "LINES"))
_NAMES_IN_HINT = 3
# Unread input of a child beyond this means that it has stopped reading.
_UNREAD_BYTES = 16 << 20


class StdioTransport:
    """One child process of one link.

    `receive` takes each line and `lost` the end; both are set before `start`, so that no byte is missed.
    """

    def __init__(self, group: str, max_message_bytes: int) -> None:
        self.group = group
        self._overheard = group_logger(overheard, group)
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self._lines = lines.Lines(max_message_bytes)
        self._stderr = lines.Lines(STDERR_LINE_BYTES)
        self._ring: deque[str] = deque(maxlen=STDERR_LINES)
        self._process: Process
        self._mask: Callable[[str], str] = str
        self._withheld: frozenset[str] = frozenset()
        self._is_ending = False
        self._closed = "output"
        self._max_unread = max(_UNREAD_BYTES, 2 * max_message_bytes)
        self._loop = asyncio.get_running_loop()

    async def start(self, program: Program) -> None:
        """Start the program, without a shell. Raises Unreachable with what the system says."""
        if not program.command:
            raise Unreachable(self.group, "`command` is empty")
        self._mask = mask_of(program)
        self._withheld = program.withheld
        try:
            self._process = await start(program)
        except (OSError, ValueError) as exc:
            why = self._mask(_why_not_started(program, exc))
            raise Unreachable(self.group, why, hint=_how_to_start(exc)) from exc
        opening = asyncio.ensure_future(
            self._process.open_pipes(
                self._wrote,
                self._complained,
                stdin_ended=self._stdin_ended,
                stdout_ended=self._stdout_ended,
                exited=self._over_soon,
            )
        )
        try:
            await asyncio.shield(opening)  # it takes a moment only, and half-open pipes cannot be closed well
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            await asyncio.shield(self.close())
            raise

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write one line to the child; raises NotSent when it is ending or has stopped reading."""
        stdin = self._process.stdin
        if self._is_ending or stdin.is_closing():
            raise NotSent(self.group, self.ending(), hint=self._hint())
        if stdin.unwritten() > self._max_unread:
            raise NotSent(self.group, "the server has stopped reading its input")
        stdin.write(line)

    async def close(self) -> None:
        """Close the child's stdin, then SIGTERM, then SIGKILL its process group; returns when it is gone."""
        process = self._process
        self._is_ending = True
        await process.stdin.close()
        await process.exits_within(GRACE_S)
        process.signal_group(signal.SIGTERM)  # its children too, who may not have noticed
        if not await process.ends_within(GRACE_S):
            process.signal_group(SIGKILL)
            if not await process.ends_within(GRACE_S):
                group_logger(log, self.group).error("group %s: process %s does not end", self.group, process.pid)
        process.close_pipes()

    def ending(self) -> str:
        """Say how the child ended, with the last lines of its stderr."""
        code = self._process.returncode
        if code is None:
            how = f"the server closed its {self._closed}"
        elif code < 0:
            how = f"the server was ended by signal {_signal_name(-code)}"
        else:
            how = f"the server exited with code {code}"
        said = list(self._ring)[-REASON_LINES:]
        return f"{how}; stderr: {' | '.join(said)}" if said else how

    # --- what the child does ---------------------------------------------------------------------------

    def _wrote(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self.receive(line)

    def _complained(self, data: bytes) -> None:
        said = self._stderr.feed(data)
        for line in said[-STDERR_LINES:]:
            self._said(line)

    def _stdin_ended(self) -> None:
        """Treat a server that hears nothing any more as one that is gone; we are not the one who closed the pipe."""
        if not self._is_ending:
            self._closed = "input"
            self._over_soon()

    def _stdout_ended(self) -> None:
        """Treat the end of stdout as the end of the link; a last message without its line end still counts."""
        rest = self._lines.rest()
        with contextlib.suppress(wire.Malformed):  # half a message says less than how the server ended
            wire.parse(rest)
            self.receive(rest)
        self._over_soon()  # the exit code, when there is one, comes a moment later and makes the better reason

    def _over_soon(self) -> None:
        """End the link in a moment; a grandchild may hold the pipes open, so their ends are not waited for."""
        self._is_ending = True
        self._loop.call_later(_DRAIN_S, self._over)

    def _over(self) -> None:
        self._said(self._stderr.rest())
        self.lost(LinkLost(self.group, self.ending(), hint=self._hint()))

    def _hint(self) -> str:
        """Say which variables the child asks for that are set here and not passed on to it."""
        named = set(_VARIABLE.findall("\n".join(self._ring)))
        names = sorted(self._withheld & named - _OF_EVERY_SHELL)
        if not names:
            return ""
        shown = " and ".join(f"`{name}`" for name in names[:_NAMES_IN_HINT])
        example = json.dumps({names[0]: f"${{{names[0]}}}"})
        return f'{shown} is set, but not passed to this server: add `"env": {example}` to its entry in the config'

    def _said(self, line: bytes) -> None:
        words = self._mask(line.decode("utf-8", "replace").strip())
        if len(words) > STDERR_LINE_BYTES:
            words = f"{words[:_EDGE_CHARS]} … {words[-_EDGE_CHARS:]}"
        if words:
            shown = escape(words)
            self._ring.append(shown)
            self._overheard.debug("group %s on stderr: %s", self.group, shown)


def _why_not_started(program: Program, exc: Exception) -> str:
    if program.cwd and isinstance(exc, FileNotFoundError | NotADirectoryError) and not Path(program.cwd).is_dir():
        return f"the directory `{program.cwd}` does not exist"
    command = f"the command `{program.command}`"
    match exc:
        case FileNotFoundError():
            return f"{command} was not found"
        case PermissionError() if Path(program.cwd or "", program.command).is_dir():
            return f"{command} is a directory"
        case PermissionError():
            return f"{command} is not executable"
        case OSError(errno=errno.E2BIG):
            name = max(program.env, key=lambda each: len(program.env[each]), default="")
            return f"{command} cannot be started: its arguments and environment are too long, above all `{name}`"
        case OSError(errno=errno.EAGAIN):
            return f"{command} cannot be started: the system allows no more processes"
        case OSError(strerror=str(why)):
            return f"{command} cannot be started: {why.lower()}"
        case _:
            return f"{command} cannot be started: {exc}"


def _how_to_start(exc: Exception) -> str:
    match exc:
        case FileNotFoundError():
            return "install it, or give its full path; the `PATH` of the AI tool may not be that of your shell"
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "let programs have more open files (`ulimit -n`), or enable fewer servers"
        case OSError(errno=errno.EAGAIN):
            return "let programs start more processes (`ulimit -u`), or enable fewer servers"
        case _:
            return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
