"""A service of systemd: its sockets listen before it does, and it says when it serves and that it does not hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.own_process import OWN
from tests.process.http_client import write_config
from tests.program import BOUND_S, full, text_of

pytestmark = [
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="there is no systemd on Windows"),
]
# As systemd starts a program: the sockets are its descriptors from 3 on, and its own process is named.
_AS_SERVICE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", WATCHDOG_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """Does what systemd does for a service with a socket and a watchdog."""

    def __init__(self, folder: Path) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.stderr = folder / "stderr"
        self._path = folder / "notify"
        self._hears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._hears.bind(str(self._path))
        self._hears.setblocking(False)

    async def hear(self) -> str:
        """Wait for what the service says next."""
        async with asyncio.timeout(BOUND_S):
            return (await asyncio.get_running_loop().sock_recv(self._hears, 1000)).decode()

    async def hears(self, words: str) -> None:
        while words not in await self.hear():
            pass

    async def start(self, *words: str, package: Path | None = None) -> asyncio.subprocess.Process:
        """Start the service, or a copy of it in the folder `package`, without waiting for it."""
        copy = {} if package is None else {"PYTHONPATH": str(package)}
        with self.stderr.open("ab") as stderr:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _AS_SERVICE, str(self.listening.fileno()), *OWN, "serve", *words),
                env={**os.environ, **copy, "NOTIFY_SOCKET": str(self._path), "WATCHDOG_USEC": "200000"},
                cwd=package,
                pass_fds=(self.listening.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=stderr,
            )

    @contextlib.asynccontextmanager
    async def running(self, config: Path, package: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the service until a signal ends it; it serves when this begins."""
        process = await self.start(str(config), "--http", package=package)
        try:
            await self.hears("READY=1")
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await self.ends(process)

    async def ends(self, process: asyncio.subprocess.Process) -> int:
        async with asyncio.timeout(BOUND_S):
            return await process.wait()

    def close(self) -> None:
        self.listening.close()
        self._hears.close()


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def config_at(folder: Path, port: int) -> Path:
    return write_config(folder, {"a": full("--name", "a")}, http={"listen": f"127.0.0.1:{port}"})


async def echo(http: HttpClient, text: str) -> str:
    """Begin a session, and call a tool in it."""
    client = McpClient(http)
    await client.initialize()
    return text_of((await client.call("a", "echo", {"text": text}))["result"])


async def test_it_says_that_it_serves_that_it_does_not_hang_and_that_it_ends(
    manager: Manager, tmp_path: Path
) -> None:
    process = await manager.start(str(config_at(tmp_path, manager.port)), "--http")
    said = await manager.hear()
    assert said.startswith("READY=1\n")
    assert manager.url in said
    async with HttpClient(manager.url) as http:
        assert await echo(http, "x") == "x"
        for server in _children(process.pid):
            assert not {"NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC"} & _variables(server)
    for _ in range(3):
        await manager.hears("WATCHDOG=1")
    process.send_signal(signal.SIGTERM)
    await manager.hears("STOPPING=1")
    assert await manager.ends(process) == 0


async def test_who_connects_while_none_runs_is_served_by_the_next_one(manager: Manager, tmp_path: Path) -> None:
    config = config_at(tmp_path, manager.port)
    async with manager.running(config), HttpClient(manager.url) as http:
        assert await echo(http, "first") == "first"
    async with HttpClient(manager.url) as http:
        waiting = asyncio.create_task(echo(http, "second"))
        await asyncio.sleep(0)
        async with manager.running(config):
            assert await waiting == "second"


@pytest.mark.full
async def test_restarts_under_load_refuse_nobody_and_lose_no_answer(manager: Manager, tmp_path: Path) -> None:
    config, enough = config_at(tmp_path, manager.port), asyncio.Event()
    wrong: list[object] = []
    answered = [0] * 6

    async def call_again_and_again(number: int) -> None:
        while not enough.is_set():
            text = f"{number}-{answered[number]}"
            try:
                async with HttpClient(manager.url) as http:
                    assert await echo(http, text) == text
                answered[number] += 1
            except Refused as exc:  # its session ended between two requests
                if exc.status not in (404, 503):
                    wrong.append(exc)
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is wrong
                wrong.append(exc)

    callers = [asyncio.create_task(call_again_and_again(number)) for number in range(len(answered))]
    for restart in range(1, 4):
        async with manager.running(config):
            async with asyncio.timeout(BOUND_S):
                while min(answered) < 5 * restart:  # noqa: ASYNC110 - another process raises no event
                    await asyncio.sleep(0.01)
    enough.set()
    async with manager.running(config):
        await asyncio.gather(*callers)
    assert wrong == []


async def test_a_socket_at_another_address_is_refused(manager: Manager, tmp_path: Path) -> None:
    process = await manager.start(str(config_at(tmp_path, free_port())), "--http")
    assert await manager.ends(process) != 0
    assert f"systemd passes a socket that listens at `127.0.0.1:{manager.port}`" in manager.stderr.read_text()


async def test_workers_take_no_socket(manager: Manager, tmp_path: Path) -> None:
    process = await manager.start(str(config_at(tmp_path, manager.port)), "--http", "--workers", "2")
    assert await manager.ends(process) != 0
    assert "each worker listens at a socket of its own" in manager.stderr.read_text()


async def test_workers_say_that_they_serve_once_all_do(manager: Manager, tmp_path: Path) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(*OWN, "serve", str(config_at(tmp_path, port)), "--http", "--workers", "2"),
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert "2 workers serve" in await manager.hear()
    process.send_signal(signal.SIGTERM)
    assert await manager.hear() == "STOPPING=1"
    assert await manager.ends(process) == 0


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="there is no systemd-socket-activate")
async def test_systemd_starts_it_with_the_first_connection(tmp_path: Path) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(
            "systemd-socket-activate",
            f"--listen=127.0.0.1:{port}",
            *OWN,
            "serve",
            str(config_at(tmp_path, port)),
            "--http",
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(BOUND_S):
        assert b"Listening on" in await process.stderr.readline()
        async with HttpClient(f"http://127.0.0.1:{port}") as http:
            assert await echo(http, "x") == "x"
        process.send_signal(signal.SIGTERM)
        await process.communicate()


def _children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in threads for child in each.read_text().split()]


def _variables(pid: int) -> set[str]:
    return {each.partition("=")[0] for each in Path(f"/proc/{pid}/environ").read_text().split("\0")}
