"""An MCP server made of a command line program: it answers a link itself, and each call runs the program once."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.resolved import CommandLine, Program
from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, LinkLost, NotSent, Unreachable
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import STDERR, group_logger
from dynamic_mcp.packs.model import Command, tool_name
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.cli import argv
from dynamic_mcp.upstream.cli.directories import check_paths, check_places, choose_directory
from dynamic_mcp.upstream.cli.progress import Progress
from dynamic_mcp.upstream.cli.results import make_result, refusal
from dynamic_mcp.upstream.cli.run import Outcome, run
from dynamic_mcp.upstream.cli.tools import make_tools
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.process.failures import explain_failure, suggest_remedy

log = logging.getLogger(__name__)
stderr_log = logging.getLogger(STDERR)

# Windows runs these by its shell, which gives a meaning to what stands in an argument.
_SCRIPTS = (".bat", ".cmd")
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_DEFAULT_TIMEOUT_S = 60.0
_VERSION_WITHIN_S = 5.0
_VERSION_BYTES = 10_000
_PLACES_WITHIN_S = 5.0
_PLACES_BYTES = 100_000


class CommandLineTransport:
    """Carries the lines of one link to nobody: what is sent here is answered here.

    Set `receive`, which takes each line, and `lost`, before `start`.
    """

    def __init__(self, group: str, line: CommandLine) -> None:
        self.group = group
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self._line = line
        self._commands = {tool_name(line.pack, each.name): each for each in line.commands}
        self._mask = mask_of(line)
        self._stderr_logger = group_logger(stderr_log, group)
        self._logger = group_logger(log, group)
        self._calls = TaskSet(self._logger)
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._is_closed = False
        self._version = "unknown"

    async def start(self) -> None:
        """Find the program and ask for its version. Raises Unreachable if it is not there or cannot be started."""
        self._line = replace(self._line, command=await asyncio.to_thread(self._find_program))
        if not self._line.version:
            return
        try:
            outcome = await run(
                self._program(self._line.version, self._line.cwd, {}),
                stdin=None,
                timeout_s=_VERSION_WITHIN_S,
                output_limit=_VERSION_BYTES,
            )
        except (OSError, ValueError) as exc:
            raise self._unreachable(exc) from exc
        found = _VERSION.search(outcome.stdout.text())
        if found is not None:
            self._version = found[0]

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Take one message of the link; what it asks for is answered later. Raises NotSent once this is closed."""
        if self._is_closed:
            raise NotSent(self.group, "the link was closed")
        frame = wire.parse(line)
        if frame.method == "notifications/cancelled":
            self._cancel(bytes(wire.member(frame.params, "requestId")))
        elif frame.method and len(frame.id):
            key = bytes(frame.id)
            task = self._running[key] = self._calls.create(
                self._answer(frame), name=f"{frame.method} of {self.group}"
            )
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def close(self) -> None:
        """End all programs that run, and what they have started."""
        self._is_closed = True
        self._calls.cancel_all()
        await self._calls.wait()

    def _cancel(self, key: bytes) -> None:
        if task := self._running.get(key):
            task.cancel()

    # --- answers ---------------------------------------------------------------------------------------

    async def _answer(self, frame: Frame) -> None:
        try:
            answer = await self._handle(frame)
        except Exception:
            self._logger.exception("group %s: a bug: %s fails", self.group, frame.method)
            answer = wire.error_frame(INTERNAL_ERROR, "internal error of the proxy")
        if not self._is_closed:
            self.receive(wire.answer_line(frame.id, answer).rstrip(b"\n"))

    async def _handle(self, frame: Frame) -> Frame:
        match frame.method:
            case "initialize":
                return wire.result_frame(self._introduce(frame))
            case "ping":
                return wire.result_frame(b"{}")
            case "tools/list":
                return wire.result_frame({"tools": make_tools(self._line)})
            case "tools/call":
                return await self._call(frame)
        return wire.error_frame(METHOD_NOT_FOUND, f"there is no method `{frame.method[:100]}`")

    def _introduce(self, frame: Frame) -> Mapping[str, object]:
        return {
            "protocolVersion": wire.member(frame.params, "protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self._line.pack, "version": self._version},
            "instructions": self._line.description,
        }

    async def _call(self, frame: Frame) -> Frame:
        name = wire.text(wire.member(frame.params, "name")) or ""
        command = self._commands.get(name)
        if command is None:
            return wire.error_frame(INVALID_PARAMS, f"unknown tool: `{name[:100]}`")
        given = wire.member(frame.params, "arguments")
        arguments = wire.value(given) if len(given) else {}
        if not isinstance(arguments, dict):
            return wire.error_frame(INVALID_PARAMS, "`arguments` must be an object")
        token = wire.member(frame.params, "_meta", "progressToken")
        try:
            outcome = await self._run(command, arguments, token)
        except argv.BadArguments as exc:
            return wire.result_frame(refusal(f"{exc}; the program was not run"))
        except (OSError, ValueError) as exc:
            return wire.result_frame(refusal(self._unreachable(exc).reason))
        return wire.result_frame(make_result(command, outcome))

    async def _run(self, command: Command, arguments: Mapping[str, object], token: Raw) -> Outcome:
        line = self._line
        words = argv.build(command, arguments, at_files=line.at_files)
        stdin = arguments.get("stdin")
        if stdin is not None and not (command.stdin and isinstance(stdin, str)):
            raise argv.BadArguments("`stdin` must be a text" if command.stdin else "there is no argument `stdin`")
        directory = await asyncio.to_thread(self._choose_directory, arguments.get("cwd"), words.paths)
        if line.places and line.roots and directory is not None:
            await self._check_places(directory, command.environment)
        progress = Progress(token, self._take_line, self._send_progress)
        try:
            return await run(
                self._program((*line.fixed, *words.argv), directory, command.environment),
                stdin=stdin if isinstance(stdin, str) else None,
                timeout_s=line.timeout_s or _DEFAULT_TIMEOUT_S,
                output_limit=line.output_limit,
                on_stderr=progress.feed,
            )
        finally:
            progress.close()

    def _choose_directory(self, chosen: object, paths: tuple[tuple[str, str], ...]) -> str | None:
        roots = self._line.roots
        if not roots:
            if chosen is not None:
                raise argv.BadArguments("there is no argument `cwd`")
            return self._line.cwd
        directory = choose_directory(roots, chosen)
        check_paths(roots, directory, paths)
        return directory

    async def _check_places(self, directory: str, environment: Mapping[str, str]) -> None:
        """Ask the program what it would work with. Raises BadArguments if that is not in the roots, or not known."""
        line = self._line
        outcome = await run(
            self._program((*line.fixed, *line.places), directory, environment),
            stdin=None,
            timeout_s=_PLACES_WITHIN_S,
            output_limit=_PLACES_BYTES,
        )
        if outcome.stopped or outcome.stdout.is_cut:
            raise argv.BadArguments("it does not say in time which files it would work with")
        # it may have failed, as git does outside of a repository: what it has printed counts all the same
        await asyncio.to_thread(check_places, line.roots, directory, outcome.stdout.text().splitlines())

    def _take_line(self, text: str) -> None:
        self._stderr_logger.debug("group %s on stderr: %s", self.group, self._mask(text))

    def _send_progress(self, params: bytes) -> None:
        if not self._is_closed:
            self.receive(wire.notification_line("notifications/progress", params).rstrip(b"\n"))

    # --- the program -----------------------------------------------------------------------------------

    def _program(self, words: tuple[str, ...], directory: str | None, more: Mapping[str, str]) -> Program:
        return Program(self._line.command, words, {**self._line.env, **more}, directory)

    def _find_program(self) -> str:
        """Return the file of the program: it must not be another one in the directory of a call."""
        line = self._line
        found = shutil.which(line.command, path=line.env.get("PATH", os.defpath))
        if found is None or not Path(found).is_absolute():
            raise self._unreachable(FileNotFoundError())
        if found.lower().endswith(_SCRIPTS):
            raise Unreachable(self.group, f"`{found}` is a script of the Windows shell, which reads arguments anew")
        return found

    def _unreachable(self, exc: Exception) -> Unreachable:
        reason = self._mask(explain_failure(self._program((), self._line.cwd, {}), exc))
        return Unreachable(self.group, reason, hint=suggest_remedy(exc))
