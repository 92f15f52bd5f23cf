"""The whole program as a child process, driven over its stdin and stdout as an AI tool drives it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

Json = Any  # whatever JSON a test writes down
UPSTREAMS = Path(__file__).parent / "upstreams"
BOUND_S = 30.0
_LINE_BYTES = 256 << 20


def odd(*args: str, **members: Json) -> dict[str, Json]:
    """Return the config of a server that misbehaves as `args` say."""
    return {"command": sys.executable, "args": [str(UPSTREAMS / "odd.py"), *args], **members}


class Program:
    """A running proxy."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self._ids = 0
        self._arrived = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._stderr = asyncio.create_task(self._read_stderr())

    def send(self, message: Json) -> None:
        """Send a message, or bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def request(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and return the answer."""
        return json.loads(await self.exchange(method, params))  # type: ignore[no-any-return]

    async def exchange(self, method: str, params: Json = None) -> bytes:
        """Send a request and return the line that answers it."""
        self._ids += 1
        id = f"p{self._ids}"
        body = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "id": id, "method": method, **body})
        marker = b'"id":"%s"' % id.encode()
        return await self.line(lambda line: marker in line)

    async def initialize(self, version: str = "2025-11-25", capabilities: Json = None) -> dict[str, Json]:
        """Shake hands."""
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "test"}}
        answer = await self.request("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def call(self, group: str, name: str, args: Json = None) -> dict[str, Json]:
        """Call a tool through `call_dynamic_tool` and return the result."""
        return json.loads(await self.call_line(group, name, args))["result"]  # type: ignore[no-any-return]

    async def call_line(self, group: str, name: str, args: Json = None) -> bytes:
        """Call a tool through `call_dynamic_tool` and return the line that answers."""
        arguments = {"group": group, "name": name, "args": args or {}}
        return await self.exchange("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})

    async def line(self, wanted: Callable[[bytes], bool]) -> bytes:
        """Wait for a line like this."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for line in self.lines:
                    if wanted(line):
                        return line
                if self._reader.done():
                    raise AssertionError(f"the program ended; stderr: {await self.stderr()}")
                await self._arrived.wait()

    async def ends(self) -> int:
        """Wait for the end of the program and return its exit code."""
        async with asyncio.timeout(BOUND_S):
            return await self.process.wait()

    async def stderr(self) -> str:
        """Return all that the program wrote to stderr, once it has ended."""
        return await self._stderr

    def end_input(self) -> None:
        """Close the program's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            async for line in self.process.stdout:
                self.lines.append(line)
                self._wake()
        finally:
            self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def _read_stderr(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@contextlib.asynccontextmanager
async def running(
    *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> AsyncIterator[Program]:
    """Run `dynamic-mcp` with these arguments; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dynamic_mcp",
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        limit=_LINE_BYTES,
    )
    program = Program(process)
    try:
        yield program
    finally:
        program.end_input()
        try:
            await program.ends()
        except TimeoutError:
            process.kill()
            raise
        await program.stderr()


@contextlib.asynccontextmanager
async def serving(folder: Path, servers: Json, **root: Json) -> AsyncIterator[Program]:
    """Run the program on a config with these servers, shaken hands with."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, **root}))
    async with running(str(file)) as program:
        await program.initialize()
        yield program


def text_of(result: Mapping[str, Json]) -> str:
    """Return the text of a tool's result."""
    text: str = result["content"][0]["text"]
    return text
