"""An upstream that is a child process: messages are lines on stdin and stdout; the last lines of stderr are kept.

Every process that is started here is also ended here, with its process group, within a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
from collections import deque
from collections.abc import Callable, Sequence

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.errors import LinkLost, NotSent, Unreachable
from dynamic_mcp.mcp import lines, wire
from dynamic_mcp.observe.log_output import STDERR, group_logger
from dynamic_mcp.system.pipes import burst_of
from dynamic_mcp.system.text import escape
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.process.child import Process, explain_failure, start, suggest_remedy

log = logging.getLogger(__name__)
stderr_log = logging.getLogger(STDERR)

STDERR_LINES = 200
STDERR_LINE_BYTES = 2000
REASON_LINES = 5
# Length of both ends that are kept of a longer line. The middle is dropped, with any half of a secret next to the
# place where `Lines` has cut the line, which the mask cannot recognise.
_EDGE_CHARS = 500
# Time for a child to end after its stdin has been closed, and again after SIGTERM.
GRACE_S = 2.0
# Output that was written before the exit may still be in the pipe when the exit is known.
_DRAIN_S = 0.05
# A server that closes its pipes is likely to exit; its exit code explains more, and is known within this time.
_EXIT_WITHIN_S = 0.5
# The text of servers that miss a variable, and variables that every shell sets and no server misses.
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{3,}\b")
_SHELL_VARIABLES = frozenset(("OLDPWD", "SHLVL", "HOSTNAME", "COLUMNS", "LINES"))
_NAMES_IN_HINT = 3
# A child with more unread input than this has stopped reading.
_UNREAD_BYTES = 16 << 20
_LINES_A_TURN = 64


class StdioTransport:
    """The child process of one link.

    Set `receive`, which receives each line, and `lost`, which receives the end, before `start`, so that no byte is
    missed.
    """

    def __init__(self, group: str, max_message_bytes: int) -> None:
        self.group = group
        self._stderr_logger = group_logger(stderr_log, group)
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self._lines = lines.Lines(max_message_bytes)
        self._pacer: LinePacer
        self._stderr = lines.Lines(STDERR_LINE_BYTES)
        self._ring: deque[str] = deque(maxlen=STDERR_LINES)
        self._process: Process
        self._mask: Callable[[str], str] = str
        self._withheld: frozenset[str] = frozenset()
        self._is_confined = False
        self._is_ending = False
        self._ending: asyncio.Task[None] | None = None
        self._closed_pipe = "output"
        self._max_unread = max(_UNREAD_BYTES, 2 * max_message_bytes)
        self._loop = asyncio.get_running_loop()

    async def start(self, program: Program) -> int:
        """Start the program, without a shell, and return its pid. Raises Unreachable with the system's reason."""
        if not program.command:
            raise Unreachable(self.group, "`command` is empty")
        self._pacer = LinePacer(
            self.receive,
            pause=lambda: self._process.pause_stdout(),
            resume=lambda: self._process.resume_stdout(),
        )
        self._mask = mask_of(program)
        self._withheld = program.withheld
        self._is_confined = program.confinement is not None
        try:
            self._process = await start(program)
        except (OSError, ValueError) as exc:
            reason = self._mask(explain_failure(program, exc))
            raise Unreachable(self.group, reason, hint=self._mask(suggest_remedy(program, exc))) from exc
        opening = asyncio.ensure_future(
            self._process.open_pipes(
                self._receive_stdout,
                self._receive_stderr,
                on_stdin_end=self._handle_stdin_end,
                on_stdout_end=self._handle_stdout_end,
                on_exit=self._end_soon,
            )
        )
        try:
            await asyncio.shield(opening)  # it takes only a moment, and half-open pipes cannot be closed cleanly
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            await asyncio.shield(self.close())
            raise
        return self._process.pid

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write one line to the child. Raises NotSent if it is ending or has stopped reading."""
        if self._is_ending or not self._process.stdin.try_write(line, self._max_unread):
            raise self._refusal()

    async def close(self) -> None:
        """Close the child's stdin, then send SIGTERM and SIGKILL to its group; returns once it has ended."""
        process = self._process
        self._is_ending = True
        await process.stdin.close()
        await process.wait_for_exit(GRACE_S)
        if not await process.end(grace_s=GRACE_S, kill_within_s=GRACE_S):  # its children may not have noticed
            group_logger(log, self.group).error("group %s: process %s does not end", self.group, process.pid)
        process.close_pipes()

    def describe_end(self) -> str:
        """Return the reason for the end of the child, with the last lines of its stderr."""
        code = self._process.returncode
        if code is None:
            reason = f"the server closed its {self._closed_pipe}"
        elif code < 0:
            reason = f"the server was ended by signal {_signal_name(-code)}"
        else:
            reason = f"the server exited with code {code}"
        last_lines = list(self._ring)[-REASON_LINES:]
        return f"{reason}; stderr: {' | '.join(last_lines)}" if last_lines else reason

    def _refusal(self) -> NotSent:
        if self._is_ending or self._process.stdin.is_closing():
            return NotSent(self.group, self.describe_end(), hint=self._hint())
        return NotSent(self.group, "the server has stopped reading its input")

    # --- the child's output and end ---------------------------------------------------------------------------

    def _receive_stdout(self, data: bytes) -> None:
        self._pacer.take(self._lines.feed(data))

    def _receive_stderr(self, data: bytes) -> None:
        for line in self._stderr.feed(data)[-STDERR_LINES:]:
            self._keep_stderr(line)

    def _handle_stdin_end(self) -> None:
        if not self._is_ending:
            self._closed_pipe = "input"
            self._end_soon()

    def _handle_stdout_end(self) -> None:
        """End the link; a last message without a line end still counts."""
        self._pacer.finish()
        rest = self._lines.take_rest()
        with contextlib.suppress(wire.Malformed):  # the end of the server explains more than half a message
            wire.parse(rest)
            self.receive(rest)
        self._end_soon()  # the exit code, if there is one, comes a moment later and is the better reason

    def _end_soon(self) -> None:
        """End the link in a moment, without waiting for the pipes to end: a grandchild may keep them open."""
        self._is_ending = True
        if self._ending is None:
            self._ending = self._loop.create_task(self._end_once_exited())

    async def _end_once_exited(self) -> None:
        await self._process.wait_for_exit(_EXIT_WITHIN_S)
        await asyncio.sleep(_DRAIN_S)
        self._end()

    def _end(self) -> None:
        self._pacer.finish()
        self._keep_stderr(self._stderr.take_rest())
        self.lost(LinkLost(self.group, self.describe_end(), hint=self._hint()))

    def _hint(self) -> str:
        """Name the variables that the child asks for and that are set here, but not passed on; else its sandbox."""
        mentioned = set(_VARIABLE.findall("\n".join(self._ring)))
        names = sorted(self._withheld & mentioned - _SHELL_VARIABLES)
        if not names and self._is_confined:
            return (
                f"its `sandbox` may hold back what it needs: `dynamic-mcp sandbox learn {self.group}` finds out what"
            )
        if not names:
            return ""
        listing = " and ".join(f"`{name}`" for name in names[:_NAMES_IN_HINT])
        example = json.dumps({names[0]: f"${{{names[0]}}}"})
        return f'{listing} is set, but not passed to this server: add `"env": {example}` to its entry in the config'

    def _keep_stderr(self, line: bytes) -> None:
        text = self._mask(line.decode("utf-8", "replace").strip())
        if len(text) > STDERR_LINE_BYTES:
            text = f"{text[:_EDGE_CHARS]} … {text[-_EDGE_CHARS:]}"
        if text:
            safe = escape(text)
            self._ring.append(safe)
            self._stderr_logger.debug("group %s on stderr: %s", self.group, safe)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class LinePacer:
    """Passes a limited number of lines to `receive` in each turn of the loop.

    `pause` stops their source until `resume`, so a flood of one server delays no other server and no client for long.
    """

    def __init__(
        self, receive: Callable[[bytes], None], *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._receive = receive
        self._pause = pause
        self._resume = resume
        self._lines = deque[bytes]()
        self._is_behind = False
        self._loop = asyncio.get_running_loop()
        self._burst = burst_of(self._loop)

    def take(self, lines: Sequence[bytes]) -> None:
        if self._is_behind:
            self._lines.extend(lines)
        elif len(lines) <= _LINES_A_TURN:
            self._burst.handle(self._receive, lines)
        else:
            self._lines.extend(lines)
            self._pass_on()

    def finish(self) -> None:
        while self._lines:
            self._receive(self._lines.popleft())

    def _pass_on(self) -> None:
        number = min(len(self._lines), _LINES_A_TURN)
        self._burst.handle(self._receive, [self._lines.popleft() for _ in range(number)])
        was_behind, self._is_behind = self._is_behind, bool(self._lines)
        if self._is_behind:
            self._loop.call_soon(self._pass_on)
        if was_behind != self._is_behind:
            (self._pause if self._is_behind else self._resume)()
