"""The program as a process that serves a config over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from tests import signals
from tests.history.harness import RESULT_LIMIT
from tests.history.record import Json
from tests.journeys.remote_server import free_port

ROOT = Path(__file__).parents[2]
_STARTS_WITHIN_S = 30.0
_ENDS_WITHIN_S = 20.0


def write_config(
    folder: Path,
    servers: Mapping[str, Program | str],
    *,
    private: tuple[str, ...],
    tools_timeout: str,
    http: Mapping[str, Json],
) -> Path:
    """Write a config with these programs and URLs, of which some are not shared, and these settings of HTTP."""
    entries: dict[str, Json] = {}
    for name, server in servers.items():
        share = {"share": "session"} if name in private else {}
        if isinstance(server, str):
            entry: dict[str, Json] = {"type": "http", "url": server}
        else:
            entry = {"command": server.command, "args": list(server.args)}
        entries[name] = {**entry, "result_limit": RESULT_LIMIT, "timeout": {"tools": tools_timeout}, **share}
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": entries, "settings": {"http": http}}))
    return file


class HttpProgram:
    """A process that serves. SIGUSR2 makes it count what is alive in it, into the file `watched`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, folder: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.watched = folder / "watched"
        self.exit_code: int | None = None
        self._stderr = folder / "stderr"

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def errors(self) -> str:
        """Return what it has written to stderr."""
        return self._stderr.read_text()

    def remote_connections(self) -> int:
        """Count its connections to servers, which it keeps for a while when nothing uses them."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = f":{self.port:04X}"
        remote = {f"socket:[{inode}]" for _, local, _, _, _, _, _, _, _, inode, *_ in rows if not local.endswith(own)}
        held = [str(each.readlink()) for each in Path(f"/proc/{self.pid}/fd").iterdir()]
        return sum(each in remote for each in held)

    async def wait_until_it_listens(self) -> None:
        """Wait until it takes connections."""
        async with asyncio.timeout(_STARTS_WITHIN_S):
            while True:
                assert self.process.returncode is None, self.errors()
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    await writer.wait_closed()
                    return
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Tell it to end, and wait for that."""
        if self.process.returncode is None:
            signals.ask_to_end(self.pid)
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                self.exit_code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def serving(config: Path, folder: Path) -> AsyncIterator[HttpProgram]:
    """Serve a config; the process has ended afterwards."""
    port = free_port()
    environment = {**os.environ, "DYNAMIC_MCP_LOG": "warning", "WATCHED_FILE": str(folder / "watched")}
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        environment[f"XDG_{name}_HOME"] = str(folder / name.lower())
    with (folder / "stderr").open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.benchmarks.watched", "serve", str(config)),
            *("--http", f"127.0.0.1:{port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )
    program = HttpProgram(process, port, folder)
    try:
        await program.wait_until_it_listens()
        yield program
    finally:
        await program.stop()
