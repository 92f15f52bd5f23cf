"""The whole program as a child process that serves over HTTP, as people start it for their AI tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests import own_process
from tests.journeys.remote_server import STARTS_WITHIN_S, free_port, wait_until_listening
from tests.own_process import DEVNULL
from tests.program import BOUND_S, Json
from tests.web import web_client


class HttpProgram:
    """A running proxy: `url` is where its clients find it, and `origin` where its other paths begin.

    A test may `end` it, and wait for its `process`.
    """

    def __init__(self, process: own_process.Process, origin: str, stderr: Path) -> None:
        self.process = process
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.is_ending = self.is_killed = False
        self._stderr = stderr

    def url_of(self, group: str) -> str:
        """Return where one group is served alone."""
        return f"{self.url}/{group}"

    async def count_sessions(self) -> int:
        """Return how many sessions there are, as the program tells whoever asks."""
        async with web_client() as client:
            count: int = (await client.get(f"{self.origin}/ready")).json()["sessions"]
            return count

    def end(self) -> None:
        """Send the signal that ends it."""
        self.is_ending = True
        self.process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it, which it cannot notice."""
        self.is_ending = self.is_killed = True
        self.process.kill()
        await self.process.wait()

    def count_sockets(self) -> int:
        """Return how many sockets the program has open, whatever files it has opened meanwhile (Linux)."""
        found = 0
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                found += str(each.readlink()).startswith("socket:")
        return found

    async def has_loaded(self) -> None:
        """Wait until it has loaded in the background what it may need; its log must be that of `debug`."""
        async with asyncio.timeout(BOUND_S):
            while "preloaded the modules for serving" not in self.log():  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.05)

    def peak_mib(self) -> int:
        """Return the most memory that the program has had, in MiB (Linux)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))

    def log(self) -> str:
        """Return what the program has written to stderr so far."""
        return self._stderr.read_text(errors="replace")


@contextlib.asynccontextmanager
async def serving_http(
    folder: Path, servers: Json, *options: str, socket: Path | None = None, port: int | None = None, **root: Json
) -> AsyncIterator[HttpProgram]:
    """Run the program over HTTP on a config with these servers; a signal ends it afterwards, with exit code 0.

    It listens at this port or any, or at this Unix socket.
    """
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, **root}))
    port = port or free_port()
    address = f"127.0.0.1:{port}" if socket is None else f"unix:{socket}"
    command = ("serve", str(file), "--http", address, *options)
    with (folder / "stderr.log").open("wb") as words:
        process = await own_process.start(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=words)
        program = HttpProgram(process, f"http://127.0.0.1:{port}", folder / "stderr.log")
        try:
            async with asyncio.timeout(STARTS_WITHIN_S):
                await wait_until_listening(process, port if socket is None else socket)
            yield program
            if not program.is_ending:
                assert process.returncode is None, "the program has ended by itself"
                program.end()
            async with asyncio.timeout(BOUND_S):
                code = await process.wait()
            assert code == 0 or program.is_killed
        except BaseException:
            print(program.log())
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
