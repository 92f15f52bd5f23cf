"""`health`: whether what runs here serves, wherever it listens."""

from __future__ import annotations

import asyncio
import os
import socketserver
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest

from dynamic_mcp.observe.proxies import SILENT_S, ProxyStatus, RunningProxy
from tests.certificates import make_certificate
from tests.cli.commands import BOUND_S, CliRunner, CommandResult
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.program import odd


@pytest.fixture
def _entry(state: Path) -> Iterator[None]:
    yield
    for file in (state / "running").glob("*.json"):
        file.unlink()


def publish(state: Path, status: ProxyStatus, *, silent_s: float = 0.0, name: str = "it") -> None:
    """Put a proxy with this status among the running ones; its process is this one."""
    file = state / "running" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.encode(RunningProxy(pid=os.getpid(), version="1.0.0", status=status)))
    os.utime(file, (time.time() - silent_s,) * 2)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Serve HTTP that answers everything with a status; return its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


async def until_healthy(cli: CliRunner, *args: str) -> None:
    """Repeat the command until it succeeds: a proxy publishes its status a moment after it listens."""
    async with asyncio.timeout(BOUND_S):
        while (await asyncio.to_thread(cli.run, "health", *args)).code:
            pass


@asynccontextmanager
async def serving(kind: str, cli: CliRunner) -> AsyncIterator[tuple[HttpProgram, str]]:
    """Serve in one of the ways to listen; also return the address that `health` takes."""
    options: list[str] = []
    socket, origin = None, ""
    if kind == "unix":
        socket = cli.folder / "s"
        origin = f"unix:{socket}"
    if kind == "tls":
        (cli.folder / "cert.pem").write_bytes(make_certificate(cli.folder))
        options = ["--tls-cert", str(cli.folder / "cert.pem"), "--tls-key", str(cli.folder / "key.pem")]
    async with serving_http(cli.folder, {"odd": odd()}, *options, socket=socket) as program:
        yield program, origin or program.origin


@pytest.mark.parametrize("kind", ["tcp", "tls", pytest.param("unix", marks=pytest.mark.posix_only("has sockets"))])
async def test_what_serves_is_asked_where_it_listens(cli: CliRunner, kind: str) -> None:
    async with serving(kind, cli) as (program, url):
        await until_healthy(cli)
        await until_healthy(cli, "--ready")
        done = await asyncio.to_thread(cli.run, "health", "-c", str(cli.config))
        assert (done.code, done.out, done.err.strip().endswith("serves")) == (0, "", True)
        if kind != "tls":
            assert (await asyncio.to_thread(cli.run, "health", url)).code == 0
            assert (await asyncio.to_thread(cli.run, "health", f"{url}/mcp" if kind == "tcp" else url)).code == 0
        (cli.folder / "other.json").write_text('{"mcpServers": {}}')
        other = await asyncio.to_thread(cli.run, "health", "-c", "other.json")
        assert (other.code, "nothing here serves" in other.err) == (1, True)
        assert program.process.returncode is None


def test_where_nothing_runs_it_fails(cli: CliRunner) -> None:
    assert cli.run("health") == CommandResult(1, "", "error: nothing runs here\n")


@pytest.mark.usefixtures("_entry")
def test_what_serves_stdin_and_stdout_is_healthy_while_it_shows_that_it_runs(cli: CliRunner, state: Path) -> None:
    publish(state, ProxyStatus(config="/c.json"))
    assert cli.run("health").code == 0
    publish(state, ProxyStatus(config="/c.json"), silent_s=SILENT_S + 60)
    done = cli.run("health")
    # Windows tells nobody which processes run, so one that is silent is taken to have ended
    said = "nothing runs here" if sys.platform == "win32" else "has not shown for"
    assert (done.code, said in done.err) == (1, True)


@pytest.mark.usefixtures("_entry")
def test_an_entry_that_a_killed_process_has_left_changes_nothing(cli: CliRunner, state: Path) -> None:
    publish(state, ProxyStatus(config="/c.json"))
    url = f"http://127.0.0.1:{free_port()}/mcp"
    publish(state, ProxyStatus(config="/c.json", kind="http", url=url), silent_s=SILENT_S + 60, name="old")
    assert cli.run("health").code == 0


@pytest.mark.usefixtures("_entry")
def test_what_does_not_listen_yet_is_not_healthy(cli: CliRunner, state: Path) -> None:
    publish(state, ProxyStatus(config="/c.json", kind="http"))
    done = cli.run("health")
    assert (done.code, "does not listen yet" in done.err) == (1, True)


@pytest.mark.usefixtures("_entry")
def test_what_does_not_answer_or_answers_with_an_error_is_not_healthy(cli: CliRunner, state: Path) -> None:
    publish(state, ProxyStatus(config="/c.json", kind="http", url=f"http://0.0.0.0:{free_port()}/mcp"))
    done = cli.run("health")
    assert (done.code, "does not answer" in done.err) == (1, True)
    with answering(503) as port:
        publish(state, ProxyStatus(config="/c.json", kind="http", url=f"http://0.0.0.0:{port}/mcp"))
        done = cli.run("health", "--ready")
        assert (done.code, "answers /ready with 503" in done.err) == (1, True)
        assert cli.run("health", f"http://127.0.0.1:{port}/tools/mcp").err.count("/tools/health") == 1
    with answering(200) as port:
        publish(state, ProxyStatus(config="/c.json", kind="http", url=f"http://0.0.0.0:{port}/mcp"))
        assert cli.run("health").code == 0


@pytest.mark.parametrize(
    "url",
    ["mcp.example.com", "ftp://mcp.example.com", "https://", "8808", "http://a:99999", "http://[::1", "http://a b"],
)
def test_what_is_no_url_is_refused_with_a_hint(cli: CliRunner, url: str) -> None:
    done = cli.run("health", url)
    assert (done.code, "is not a URL" in done.err, "hint: " in done.err) == (2, True, True)


def test_a_host_that_cannot_be_a_name_is_not_healthy(cli: CliRunner) -> None:
    done = cli.run("health", "http://a..é/")
    assert (done.code, "Traceback" in done.err, "its host cannot be a name" in done.err) == (1, False, True)


@pytest.mark.posix_only("has sockets")
def test_a_unix_socket_that_is_not_there_is_not_healthy(cli: CliRunner) -> None:
    done = cli.run("health", f"unix:{cli.folder}/none")
    assert (done.code, "no such file" in done.err) == (1, True)
