"""An MCP server made of a command line program: it answers a link itself, and each call runs the program once."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.resolved import CommandLine, Program
from dynamic_mcp.errors import INVALID_PARAMS, Unreachable
from dynamic_mcp.mcp import lines, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import STDERR, group_logger
from dynamic_mcp.packs.model import Command, Flag, Positional, tool_name
from dynamic_mcp.system.programs import find_program
from dynamic_mcp.system.text import one_line
from dynamic_mcp.upstream.cli import argv
from dynamic_mcp.upstream.cli.argv import BadArguments
from dynamic_mcp.upstream.cli.run import CommandResult, clean, run
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.own_transport import OwnTransport
from dynamic_mcp.upstream.process.batch import is_batch
from dynamic_mcp.upstream.process.child import explain_failure, suggest_remedy

log = logging.getLogger(__name__)
stderr_log = logging.getLogger(STDERR)

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_DEFAULT_TIMEOUT_S = 60.0
_VERSION_WITHIN_S = 5.0
_VERSION_BYTES = 10_000
_PLACES_WITHIN_S = 5.0
_PLACES_BYTES = 100_000
_PROGRESS_EVERY_S = 0.5
_PROGRESS_LINE_BYTES = 2000
_LONGEST_PROGRESS = 300
# Of the output that is read at once, only this many lines are inspected.
_PROGRESS_LINES_AT_ONCE = 200
_Json = dict[str, Any]  # Any: JSON


class CommandLineTransport(OwnTransport):
    """Answers the requests of one link by running a program, which ends with the link."""

    def __init__(self, group: str, line: CommandLine) -> None:
        super().__init__(group, log)
        self._line = line
        self._commands = {tool_name(line.pack, each.name): each for each in line.commands}
        self._mask = mask_of(line)
        self._stderr_logger = group_logger(stderr_log, group)
        self._version = "unknown"

    async def start(self) -> None:
        """Find the program and ask for its version. Raises Unreachable if it is missing or cannot be started."""
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
        match = _VERSION.search(outcome.stdout.text())
        if match is not None:
            self._version = match[0]

    # --- answers ---------------------------------------------------------------------------------------

    async def _handle(self, frame: Frame) -> Frame | None:
        match frame.method:
            case "tools/list":
                return wire.result_frame({"tools": _make_tools(self._line)})
            case "tools/call":
                return await self._call(frame)
        return None

    def _introduce(self) -> Mapping[str, object]:
        return {
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self._line.pack, "version": self._version},
            "instructions": self._line.description,
        }

    async def _call(self, frame: Frame) -> Frame:
        name = wire.text(wire.member(frame.params, "name")) or ""
        command = self._commands.get(name)
        if command is None:
            return wire.error_frame(INVALID_PARAMS, f"unknown tool: `{name[:100]}`")
        raw_arguments = wire.member(frame.params, "arguments")
        arguments = wire.value(raw_arguments) if len(raw_arguments) else {}
        if not isinstance(arguments, dict):
            return wire.error_frame(INVALID_PARAMS, "`arguments` must be an object")
        token = wire.member(frame.params, "_meta", "progressToken")
        try:
            outcome = await self._run(command, arguments, token)
        except BadArguments as exc:
            return wire.result_frame(_refusal(f"{exc}; the program was not run"))
        except (OSError, ValueError) as exc:
            return wire.result_frame(_refusal(self._unreachable(exc).reason))
        return wire.result_frame(_make_result(command, outcome))

    async def _run(self, command: Command, arguments: Mapping[str, object], token: Raw) -> CommandResult:
        line = self._line
        words = argv.build(command, arguments, at_files=line.at_files)
        stdin = arguments.get("stdin")
        if stdin is not None and not (command.stdin and isinstance(stdin, str)):
            raise BadArguments("`stdin` must be a text" if command.stdin else "there is no argument `stdin`")
        directory = await asyncio.to_thread(self._choose_directory, arguments.get("cwd"), words.paths)
        if line.places and line.roots and directory is not None:
            await self._check_places(directory, command.environment)
        progress = _Progress(token, self._take_line, self._send_progress)
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
                raise BadArguments("there is no argument `cwd`")
            return self._line.cwd
        directory = _choose_directory(roots, chosen)
        _check_paths(roots, directory, paths)
        return directory

    async def _check_places(self, directory: str, environment: Mapping[str, str]) -> None:
        """Ask the program for the files it would use. Raises BadArguments if one is unknown or outside the roots."""
        line = self._line
        outcome = await run(
            self._program((*line.fixed, *line.places), directory, environment),
            stdin=None,
            timeout_s=_PLACES_WITHIN_S,
            output_limit=_PLACES_BYTES,
        )
        if outcome.stopped or outcome.stdout.is_cut:
            raise BadArguments("it does not say in time which files it would work with")
        # it may have failed, as git does outside of a repository: its output counts all the same
        await asyncio.to_thread(_check_places, line.roots, directory, outcome.stdout.text().splitlines())

    def _take_line(self, text: str) -> None:
        self._stderr_logger.debug("group %s on stderr: %s", self.group, self._mask(text))

    def _send_progress(self, params: bytes) -> None:
        self._deliver(wire.notification_line("notifications/progress", params))

    # --- the program -----------------------------------------------------------------------------------

    def _program(self, words: tuple[str, ...], directory: str | None, environment: Mapping[str, str]) -> Program:
        line = self._line
        return Program(line.command, words, {**line.env, **environment}, directory, confinement=line.confinement)

    def _find_program(self) -> str:
        """Return the file of the program, never one from the directory of a call."""
        line = self._line
        file = find_program(line.command, line.env, cwd=line.cwd)
        if file is None or not Path(file).is_absolute():
            raise self._unreachable(FileNotFoundError())
        if is_batch(file):
            raise Unreachable(self.group, f"`{file}` is a batch file, which may parse its arguments again")
        return file

    def _unreachable(self, exc: Exception) -> Unreachable:
        program = self._program((), self._line.cwd, {})
        reason = self._mask(explain_failure(program, exc))
        return Unreachable(self.group, reason, hint=self._mask(suggest_remedy(program, exc)))


def _make_result(command: Command, outcome: CommandResult) -> dict[str, object]:
    """Return the result of a call that ran the program."""
    is_error = bool(outcome.stopped) or outcome.code not in (0, *command.ok_exit_codes)
    stdout, stderr = outcome.stdout.text(), outcome.stderr.text()
    structured = {
        "exitCode": outcome.code,
        "stdout": stdout,
        "stderr": stderr,
        "truncated": outcome.stdout.is_cut or outcome.stderr.is_cut,
    }
    text = _describe(outcome, stdout, stderr, is_error=is_error)
    return {"content": [_text(text)], "structuredContent": structured, "isError": is_error}


def _refusal(why: str) -> dict[str, object]:
    """Return the result of a call that did not run the program."""
    return {"content": [_text(why)], "isError": True}


def _describe(outcome: CommandResult, stdout: str, stderr: str, *, is_error: bool) -> str:
    """Return the text for a model: the output, stderr where it matters, and the way the program ended."""
    parts = [stdout.rstrip("\n")]
    if is_error or not stdout.strip():
        parts.append(stderr.rstrip("\n"))
    if outcome.stopped:
        parts.append(f"the program was ended: {outcome.stopped}")
    elif outcome.code:
        parts.append(f"exit code {outcome.code}")
    return "\n".join(filter(None, parts)) or "(no output)"


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _choose_directory(roots: tuple[str, ...], chosen: object) -> str:
    """Return the real directory that a call names, or the first root. Raises BadArguments. Reads the disk."""
    if chosen is not None and (not isinstance(chosen, str) or "\0" in chosen):
        raise BadArguments("`cwd` must be the path of a directory")
    place = Path(roots[0], chosen or "")
    real = _resolve("cwd", place)
    if not _is_inside(real, roots):
        raise BadArguments(f"`cwd` must be in {_list(roots)}")
    if not real.is_dir():
        raise BadArguments(f"`cwd`: there is no directory `{place}`")
    return str(real)


def _check_paths(roots: tuple[str, ...], directory: str, paths: Iterable[tuple[str, str]]) -> None:
    """Check that the paths in the arguments are in the roots. Raises BadArguments. Reads the disk."""
    for argument, path in paths:
        if not _is_inside(_resolve(argument, Path(directory, path)), roots):
            raise BadArguments(f"`{argument}` must be in {_list(roots)}")


def _check_places(roots: tuple[str, ...], directory: str, places: Iterable[str]) -> None:
    """Check that the files a program would use are in the roots. Raises BadArguments. Reads the disk."""
    for place in places:
        if not _is_inside(_resolve("cwd", Path(directory, place)), roots):
            raise BadArguments(f"it would work with `{place}`, which is not in {_list(roots)}")


def _resolve(argument: str, path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        raise BadArguments(f"`{argument}` is not a path") from None


def _is_inside(real: Path, roots: tuple[str, ...]) -> bool:
    return any(real.is_relative_to(os.path.realpath(root)) for root in roots)


def _list(roots: tuple[str, ...]) -> str:
    return " or ".join(f"`{root}`" for root in roots)


class _Progress:
    """Hands each line to `take_line`, and the params of a progress notification to `send` if there is a token."""

    def __init__(self, token: Raw, take_line: Callable[[str], None], send: Callable[[bytes], None]) -> None:
        self._token = token
        self._take_line = take_line
        self._send = send
        self._lines = lines.Lines(_PROGRESS_LINE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        self._latest = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Receive output of the program; a carriage return ends a line too."""
        for line in self._lines.feed(data.replace(b"\r", b"\n"))[-_PROGRESS_LINES_AT_ONCE:]:
            if text := one_line(clean(line), _LONGEST_PROGRESS):
                self._take_line(text)
                self._latest = text
        if self._latest and self._timer is None and len(self._token):
            self._send_latest()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send_latest(self) -> None:
        """Send the latest line if it is new, and delay the next one."""
        self._timer = None
        if self._latest:
            self._sent += 1
            params = {"progressToken": self._token, "progress": self._sent, "message": self._latest}
            self._latest = ""
            self._timer = self._loop.call_later(_PROGRESS_EVERY_S, self._send_latest)
            self._send(wire.encode(params))


def _make_tools(line: CommandLine) -> list[_Json]:
    return [make_tool(line, command) for command in line.commands]


def make_tool(line: CommandLine, command: Command) -> _Json:
    """Return the tool of one command."""
    return {
        "name": tool_name(line.pack, command.name),
        "description": command.description,
        "inputSchema": _input_schema(line, command),
        "annotations": _annotations(command),
    }


def _annotations(command: Command) -> _Json:
    """Return the effects of the command; an unknown one is only marked as not read-only."""
    effect = command.worst_effect
    hints: _Json = {"readOnlyHint": effect == "read", "openWorldHint": command.open_world}
    if effect != "unknown":
        hints["destructiveHint"] = effect == "destructive"
    return hints


def _input_schema(line: CommandLine, command: Command) -> _Json:
    every: list[Flag | Positional] = [*command.positionals, *command.flags]
    properties = {each.argument: _property(each) for each in every}
    if command.stdin:
        properties["stdin"] = {"type": "string", "description": "The text that the program reads as its input."}
    if line.roots:
        properties["cwd"] = {"type": "string", "description": _describe_roots(line.roots)}
    required = [each.argument for each in every if each.required]
    schema: _Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _property(each: Flag | Positional) -> _Json:
    item = {**_type(each), **_bounds(each)}
    if each.repeatable:
        item = {"type": "array", "items": item, **({"minItems": 1} if each.required else {})}
    description = _describe_argument(each)
    return {**item, "description": description} if description else item


def _type(each: Flag | Positional) -> _Json:
    match each.type:
        case "enum":
            return {"type": "string", "enum": list(each.values or ())}
        case "path":
            return {"type": "string", "minLength": 1}
        case "pairs":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case kind:
            return {"type": kind}


def _bounds(each: Flag | Positional) -> _Json:
    bounds: _Json = {"pattern": f"^(?:{each.pattern})$"} if each.pattern is not None else {}
    if each.except_ is not None:
        bounds["not"] = {"pattern": f"^(?:{each.except_})$"}
    return {**bounds, **_limits(each)}


def _limits(each: Flag | Positional) -> _Json:
    bounds = {"minimum": each.minimum, "maximum": each.maximum}
    return {name: int(bound) if bound == int(bound) else bound for name, bound in bounds.items() if bound is not None}


def _describe_argument(each: Flag | Positional) -> str:
    """Return the description of an argument; a flag of one letter includes that letter, as manuals do."""
    description = each.description or ""
    if isinstance(each, Flag) and len(each.name) == 2:
        return f"{description} (`{each.name}`)".strip()
    return description


def _describe_roots(roots: tuple[str, ...]) -> str:
    first, *others = roots
    where = f"`{first}`" + "".join(f" or `{each}`" for each in others)
    return f"The directory to work in, which must be in {where}. Default: `{first}`."
