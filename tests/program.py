"""The whole program as a child process, driven over its stdin and stdout as an AI tool drives it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from dynamic_mcp.mcp import wire
from tests import hosting, own_process, signals
from tests.own_process import OWN

Json = Any  # whatever JSON a test writes down
UPSTREAMS = Path(__file__).parent / "upstreams"
BOUND_S = 60.0  # far beyond what anything takes here, also on a busy machine
_LINE_BYTES = 256 << 20


def odd(*args: str, **members: Json) -> dict[str, Json]:
    """Return the config of a server that misbehaves as `args` say."""
    return {"command": sys.executable, "args": [str(UPSTREAMS / "odd.py"), *args], **members}


def full(*args: str, **members: Json) -> dict[str, Json]:
    """Return the config of a server that can do all that the protocol has, with these options."""
    return {"command": sys.executable, "args": [str(UPSTREAMS / "full.py"), *args], **members}


def with_noted_starts(server: Json, file: Path) -> dict[str, Json]:
    """Return the config of a server of this module, which writes a line to a file whenever it is started."""
    return {**server, "args": [str(UPSTREAMS / "noted.py"), "starts", str(file), *server["args"]]}


def with_noted_input(server: Json, file: Path) -> dict[str, Json]:
    """Return the config of a server of this module, all of whose input is written to a file as well."""
    return {**server, "args": [str(UPSTREAMS / "noted.py"), "reads", str(file), *server["args"]]}


def browser_command(script: Path, *args: Path) -> str:
    """Return the value of `BROWSER` that runs a script of Python with these arguments and the link.

    Its backslashes would be escapes.
    """
    return f"{shlex.join(each.as_posix() for each in (Path(sys.executable), script, *args))} %s"


class Program:
    """A running proxy, or any other server that speaks over stdin and stdout.

    `answers` are the results, as JSON, with which its own requests are answered by their method. While `reads` is
    cleared nothing of what it writes is read. One that is hosted is a proxy, and may be served by a daemon.
    """

    def __init__(self, process: own_process.Process, hosting: hosting.Hosting | None = None) -> None:
        self.process = process
        self._hosting = hosting
        self._has_ended = False
        self._logged_before = 0 if hosting is None else len(hosting.log())
        self.lines: list[bytes] = []
        self.answers: dict[str, bytes] = {}
        self._answered: Counter[bytes] = Counter()
        self._waiting: dict[bytes, asyncio.Future[bytes | None]] = {}
        self._ids = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._arrived = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._said = bytearray()
        self._stderr = asyncio.create_task(self._read_stderr())

    def send(self, message: Json) -> None:
        """Send a message, or bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def request(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and return the answer; params that are bytes are JSON already."""
        return json.loads(await self.exchange(method, params))  # type: ignore[no-any-return]

    async def exchange(self, method: str, params: Json = None) -> bytes:
        """Send a request and return the line that answers it."""
        self._ids += 1
        id = b'"p%d"' % self._ids
        body = b"" if params is None else b',"params":' + to_json(params)
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        self.send(b'{"jsonrpc":"2.0","id":%s,"method":%s%s}\n' % (id, to_json(method), body))
        try:
            async with asyncio.timeout(BOUND_S):
                line = None if self._reader.done() else await answer
        finally:
            del self._waiting[id]
        if line is None:
            raise AssertionError(await self._describe_end())
        return line

    async def initialize(
        self, version: str = "2025-11-25", capabilities: Json = None, *, name: str = "test"
    ) -> dict[str, Json]:
        """Shake hands, as an AI tool of this name."""
        client = {"name": name, "version": "1"}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
        answer = await self.request("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def call(self, group: str, name: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool through `call_dynamic_tool` and return the result."""
        return json.loads(await self.call_line(group, name, args, **params))["result"]  # type: ignore[no-any-return]

    async def call_line(self, group: str, name: str, args: Json = None, **params: Json) -> bytes:
        """Call a tool through `call_dynamic_tool` and return the line that answers."""
        arguments = {"group": group, "name": name, "args": args or {}}
        return await self.exchange("tools/call", {"name": "call_dynamic_tool", "arguments": arguments, **params})

    def heard(self, method: str) -> list[dict[str, Json]]:
        """Return the messages with this method that have come."""
        messages = [json.loads(line) for line in self.lines]
        return [each for each in messages if isinstance(each, dict) and each.get("method") == method]

    async def hears(self, method: str, times: int = 1) -> dict[str, Json]:
        """Wait until so many messages with this method have come, and return the latest."""
        marker = b'"method":"%s"' % method.encode()
        async with asyncio.timeout(BOUND_S):
            while sum(marker in line for line in self.lines) < times:
                await self._arrived.wait()
        return self.heard(method)[-1]

    def reply(self, question: Mapping[str, Json], result: Json) -> None:
        """Answer a request of the program; a result that is bytes is JSON already."""
        self.send(b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (to_json(question["id"]), to_json(result)))

    async def says(self, words: str) -> None:
        """Wait until the program has written these words to stderr, or its daemon to the log."""
        async with asyncio.timeout(BOUND_S):
            while words not in self._said.decode(errors="replace") + self._log():  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.01)

    async def line(self, wanted: Callable[[bytes], bool]) -> bytes:
        """Wait for a line like this."""
        async with asyncio.timeout(BOUND_S):
            seen = 0
            while True:
                for line in self.lines[seen if seen <= len(self.lines) else 0 :]:
                    if wanted(line):
                        return line
                seen = len(self.lines)
                if self._reader.done():
                    raise AssertionError(await self._describe_end())
                await self._arrived.wait()

    async def ends(self) -> int:
        """Wait for the end of the program, and of its daemon if this was the last window; return its exit code."""
        async with asyncio.timeout(BOUND_S):
            while (code := self.process.returncode) is None:  # noqa: ASYNC110 - `wait` waits for unread output, too
                await asyncio.sleep(0.01)
        if self._hosting is not None:
            if not self._has_ended:
                self._has_ended = True
                self._hosting.open_windows -= 1
            await self._hosting.wait_for_end()
        return code

    @property
    def host(self) -> int:
        """The id of the process that has the servers: the program, or the daemon that serves it."""
        return self.process.pid if self._hosting is None else self._hosting.host(self.process.pid)

    def ask_to_end(self) -> None:
        """Ask the program to end, unless it has."""
        if self.process.returncode is None:
            signals.ask_to_end(self.process.pid)

    def kill(self) -> None:
        """Kill the program, and the daemon that serves it."""
        host = self.host
        self.process.kill()
        if host != self.process.pid:
            signals.kill(host)

    async def stderr(self) -> str:
        """Return all that the program wrote to stderr, and its daemon to the log, once it has ended."""
        return await self._stderr + self._log()

    async def drain(self) -> None:
        """Wait until all that the program wrote to stdout is read, once it has ended: then its pipe is closed."""
        await asyncio.wait([self._reader])

    async def _describe_end(self) -> str:
        said = await self.stderr()
        return f"the program ended with {await self.ends()}; stderr: {said}"

    def _log(self) -> str:
        return "" if self._hosting is None else self._hosting.log()[self._logged_before :]

    def assert_answered_once(self) -> None:
        """No request of `exchange` was answered twice, and nothing was answered that was not asked."""
        asked = {b'"p%d"' % number for number in range(1, self._ids + 1)}
        assert {id for id in self._answered if id.startswith(b'"p')} <= asked
        assert [id for id in asked if self._answered[id] > 1] == []

    def end_input(self) -> None:
        """Close the program's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            async for line in self.process.stdout:
                self.lines.append(line)
                self._note(line)
                await self.reads.wait()
                self._wake()
        finally:
            self._wake()
            for id in self._waiting:
                self._settle(id, None)

    def _settle(self, id: bytes, line: bytes | None) -> None:
        """Pass the answer to a request on, or that there will be none."""
        if (waiting := self._waiting.get(id)) is not None and not waiting.done():
            waiting.set_result(line)

    def _note(self, line: bytes) -> None:
        """Count an answer, or answer a question."""
        try:
            frame = wire.parse(line)
        except wire.Malformed:  # a batch, or a stray print of some other server
            return
        if not frame.method:
            id = bytes(frame.id)
            self._answered[id] += 1
            self._settle(id, line)
        elif frame.method in self.answers and len(frame.id):
            self.reply({"id": json.loads(bytes(frame.id))}, self.answers[frame.method])

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def _read_stderr(self) -> str:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(65536):
            self._said += data
        return self._said.decode()


@contextlib.asynccontextmanager
async def started(
    *command: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    terminate: bool = False,
    line_bytes: int = _LINE_BYTES,
    hosting: hosting.Hosting | None = None,
) -> AsyncIterator[Program]:
    """Run a server in this environment, by default ours; it is gone afterwards, by a signal if it must be."""
    if hosting is not None:
        hosting.open_windows += 1
    process = await _start(*command, env=env, cwd=cwd, limit=line_bytes)
    program = Program(process, hosting)
    try:
        yield program
    finally:
        program.reads.set()
        program.end_input()
        if terminate:
            with contextlib.suppress(ProcessLookupError):
                program.ask_to_end()
        try:
            await program.ends()
        except TimeoutError:
            process.kill()
            raise
        await program.stderr()
        await program.drain()


async def _start(*command: str, env: Mapping[str, str] | None, cwd: Path | None, limit: int) -> own_process.Process:
    if command[: len(OWN)] == OWN:
        return await own_process.start(*command[len(OWN) :], env=env, cwd=cwd, limit=limit)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, limit=limit
    )


@contextlib.asynccontextmanager
async def running(
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    line_bytes: int = _LINE_BYTES,
    is_alone: bool = False,
) -> AsyncIterator[Program]:
    """Run `dynamic-mcp` with these arguments, and as this test's programs serve; it is gone afterwards."""
    environment = {**os.environ, **(env or {})}
    command = (*OWN, *args) if is_alone else window_command(*args)
    host = None if is_alone else hosting.hosting
    async with started(*command, env=environment, cwd=cwd, line_bytes=line_bytes, hosting=host) as program:
        yield program


def window_command(*args: str) -> tuple[str, ...]:
    """Return the command that serves a config, which is let ask for a daemon where this test runs with one."""
    for file in args:
        if file.endswith(".json"):
            hosting.hosting.prepare(Path(file))
    return (*OWN, *args)


@contextlib.asynccontextmanager
async def serving(
    folder: Path, servers: Json, *, capabilities: Json = None, line_bytes: int = _LINE_BYTES, **root: Json
) -> AsyncIterator[Program]:
    """Run the program on a config with these servers, shaken hands with as a client that can do this."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, **root}))
    async with running(str(file), line_bytes=line_bytes) as program:
        await program.initialize(capabilities=capabilities)
        yield program
        program.assert_answered_once()


def to_json(value: Json) -> bytes:
    """Return JSON as it is when it is bytes, else written down."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def text_of(result: Mapping[str, Json]) -> str:
    """Return the text of a tool's result."""
    text: str = result["content"][0]["text"]
    return text
