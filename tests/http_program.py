"""The whole program as a child process that serves over HTTP, as people start it for their AI tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests import own_process, signals
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
        self.others: list[HttpProgram] = []  # replicas
        self.own_origin = origin
        self._stderr = stderr

    def url_of(self, group: str) -> str:
        """Return where one group is served alone."""
        return f"{self.url}/{group}"

    async def count_sessions(self) -> int:
        """Return how many sessions there are, as the program tells whoever asks."""
        async with web_client() as client:
            ready = [(await client.get(f"{each.own_origin}/ready")).json() for each in (self, *self.others)]
        return sum(each["sessions"] for each in ready)

    def end(self) -> None:
        """Ask it to end."""
        self.is_ending = True
        if self.process.returncode is None:
            signals.ask_to_end(self.process.pid)

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


# Puts a balancer in front of programs at these addresses, with files of its own in a folder, and hands out its port.
# With it, `serving_http` runs two replicas.
balancer: Callable[[Path, Sequence[str]], AbstractAsyncContextManager[int]] | None = None
_KEY = "a-key-for-the-replicas-of-a-test-0001"
# As the examples of balancers name them.
REPLICAS = ("a", "b")


def serving_http(
    folder: Path,
    servers: Json,
    *options: str,
    socket: Path | None = None,
    port: int | None = None,
    package: Path | None = None,
    **root: Json,
) -> AbstractAsyncContextManager[HttpProgram]:
    """Run the program over HTTP on a config with these servers; a signal ends it afterwards, with exit code 0.

    It listens at this port or any, or at this Unix socket. `package` is the folder of a copy of the program to run.
    """
    if balancer is not None and socket is None and port is None:
        return _serving_twice(folder, servers, *options, **root)
    return _serving_once(folder, servers, *options, socket=socket, port=port, package=package, **root)


@contextlib.asynccontextmanager
async def _serving_twice(folder: Path, servers: Json, *options: str, **root: Json) -> AsyncIterator[HttpProgram]:
    """Run two replicas behind the balancer; what is handed out has the process of the first one.

    Their servers run in a program of their own, which shows each as if there were no proxy; but those that each
    replica runs by itself.
    """
    assert balancer is not None
    ports = [free_port(), free_port()]
    peers = [f"http://127.0.0.1:{port}" for port in ports]
    async with contextlib.AsyncExitStack() as stack:
        programs = []
        tier = folder / "servers"
        tier.mkdir(exist_ok=True)
        behind = await stack.enter_async_context(_serving_once(tier, servers))
        servers = {
            name: each if each.get("home") else {"url": behind.url_of(name), **_connection_of(each)}
            for name, each in servers.items()
        }
        for number, port in enumerate(ports):
            place = folder / f"replica{number}"
            place.mkdir(exist_ok=True)
            settings = root.get("settings", {})
            cluster = {**settings.get("cluster", {}), "name": REPLICAS[number], "peers": peers, "keys": [_KEY]}
            settings = {**settings, "cluster": cluster}
            serving = _serving_once(place, servers, *options, port=port, **{**root, "settings": settings})
            programs.append(await stack.enter_async_context(serving))
        port = await stack.enter_async_context(balancer(folder, [f"127.0.0.1:{port}" for port in ports]))
        programs[0].origin = f"http://127.0.0.1:{port}"
        programs[0].url = f"http://127.0.0.1:{port}/mcp"
        programs[0].others = programs[1:]
        yield programs[0]


def _connection_of(server: Json) -> Json:
    """Return what a config says of the connection to a server, wherever that runs."""
    return {name: server[name] for name in ("connect", "idle_timeout") if name in server}


@contextlib.asynccontextmanager
async def _serving_once(
    folder: Path,
    servers: Json,
    *options: str,
    socket: Path | None = None,
    port: int | None = None,
    package: Path | None = None,
    **root: Json,
) -> AsyncIterator[HttpProgram]:
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, **root}))
    port = port or free_port()
    address = f"127.0.0.1:{port}" if socket is None else f"unix:{socket}"
    command = ("serve", str(file), "--http", address, *options)
    with (folder / "stderr.log").open("wb") as words:
        env = None if package is None else {**os.environ, "PYTHONPATH": str(package)}
        process = await own_process.start(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=words, env=env, cwd=package)
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
