"""A service is taken from an earlier version of the program to this one while it serves, and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from pathlib import Path

import pytest

from tests.features.cluster.store_servers import store_server
from tests.features.cluster.test_processes import Caller, Service, check_calls, have_answered
from tests.features.cluster.test_shared_login_server import Visitor
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.own_process import OWN
from tests.process.http_client import write_config
from tests.process.test_systemd import Manager
from tests.program import Json, full, text_of
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="there are no signals"),
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).parent.parent.parent
# A state of this program that kept and shared what it does today, until there is a release to begin with.
EARLIER = "a9d1cfcb"
_CLIENTS = 8


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the program that is of an earlier version: the last release, if there was one."""
    tags = _git("tag", "--list", "v*", "--sort=-v:refname", "--merged", "HEAD").decode().split()
    version = tags[0] if tags else EARLIER
    folder = tmp_path_factory.mktemp("earlier")
    try:
        archive = _git("archive", version, "dynamic_mcp")
    except subprocess.CalledProcessError:
        pytest.skip(f"the history of this checkout does not have {version}")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def _git(*words: str) -> bytes:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of the repository, so it has no earlier version")
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


async def run(package: Path | None, *words: str) -> str:
    """Run a command of the program, or of a copy of it; return what it prints."""
    env = os.environ if package is None else {**os.environ, "PYTHONPATH": str(package)}
    process = await asyncio.create_subprocess_exec(
        *(OWN if package is None else (sys.executable, "-m", "dynamic_mcp")),
        *words,
        env=env,
        cwd=package,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    return out.decode()


# --- one service behind a socket of its manager ------------------------------------------------------------


async def restart_under_load(folder: Path, packages: Sequence[Path | None]) -> list[Caller]:
    """Run these versions one after the other behind one socket, with clients all the time; return those."""
    manager = Manager(folder)
    config = write_config(folder, {"up": full()}, http={"listen": f"127.0.0.1:{manager.port}"})
    callers = [Caller(number, [manager.url], keeps_session=True) for number in range(_CLIENTS)]
    enough = asyncio.Event()
    tasks = [asyncio.create_task(each.run(enough)) for each in callers]
    try:
        for package in packages:
            async with manager.running(config, package):
                await have_answered(callers, sum(len(each.answered) for each in callers) + 200)
                if package is packages[-1]:
                    enough.set()
                    await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for each in callers:
            await each.http.close()
        manager.close()
    return callers


@pytest.mark.parametrize("way", ["up", "down"])
async def test_an_upgrade_refuses_nobody_and_tells_sessions_that_have_ended(
    tmp_path: Path, earlier: Path, way: str
) -> None:
    packages = [earlier, None] if way == "up" else [None, earlier]
    callers = await restart_under_load(tmp_path, packages)
    assert [each.wrong for each in callers] == [[]] * _CLIENTS
    # every session ended with its process, and its client was told so by 404
    assert all(each.refused for each in callers)
    assert sum(len(each.may_have_run) for each in callers) <= 1


# --- replicas ----------------------------------------------------------------------------------------------


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """The server tier, in front of which no gateway runs yet, and the store of the gateways."""
    folder = tmp_path / "server"
    folder.mkdir()
    serving = serving_http(folder, {"up": {**full(), "share": "all"}})
    with store_server(tmp_path) as redis:
        async with serving as server:
            service = Service(tmp_path, server)
            service.cluster["store"] = redis.url
            yield service


@pytest.mark.parametrize("way", ["up", "down"])
async def test_sessions_of_replicas_go_on_while_one_after_the_other_is_replaced(
    service: Service, earlier: Path, way: str
) -> None:
    before, after = (earlier, None) if way == "up" else (None, earlier)
    enough = asyncio.Event()
    callers = [Caller(number, service.urls, keeps_session=True) for number in range(_CLIENTS)]
    async with contextlib.AsyncExitStack() as stack:
        running = {name: await start(stack, service, name, before) for name in ("a", "b")}
        tasks = [asyncio.create_task(each.run(enough)) for each in callers]
        for each in callers:
            await have_answered([each], 10)
        sessions = {each: each.session for each in callers}
        for name, old in running.items():
            await old.aclose()  # with the signal, and exit code 0
            await start(stack, service, name, after)
            await have_answered(callers, sum(len(each.answered) for each in callers) + 200)
        enough.set()
        await asyncio.gather(*tasks)
        kept = [each for each in callers if each.session == sessions[each]]
    await check_calls(service, callers)
    if before is None:
        assert kept == callers
    else:  # this one answered 404 if a request came to it after it had handed the session over
        assert all(each.refused for each in callers if each not in kept)


async def start(
    stack: contextlib.AsyncExitStack, service: Service, name: str, package: Path | None
) -> contextlib.AsyncExitStack:
    """Run a gateway; what is returned ends it."""
    end = await stack.enter_async_context(contextlib.AsyncExitStack())
    await end.enter_async_context(service.gateway(name, package))
    return end


# --- what is kept ------------------------------------------------------------------------------------------


class Keeper:
    """A service that keeps much, run by one version after the other on the same files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        auth: Json = [
            {"kind": "bearer"},
            {"kind": "login"},
            {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]},
        ]
        http = {"public_url": f"{self.origin}/mcp", "auth": auth}
        self.settings = {"http": http, "audit": True}
        self.servers = {"up": full()}
        self.config = str(folder / "dynamic-mcp.json")

    @contextlib.asynccontextmanager
    async def running(self, package: Path | None) -> AsyncIterator[HttpProgram]:
        serving = serving_http(self.folder, self.servers, port=self.port, package=package, settings=self.settings)
        async with serving as program:
            yield program

    async def create_token(self, package: Path | None, name: str) -> str:
        return (await run(package, "token", "create", "--as", name, "-c", self.config)).strip()

    async def says(self, program: HttpProgram, token: str, text: str) -> str | int:
        """Return what the server says to the user of a token, or the status by which that is refused."""
        async with HttpClient(program.own_origin) as http:
            client = McpClient(http, headers={"Authorization": f"Bearer {token}"})
            try:
                await client.initialize()
                return text_of((await client.call("up", "echo", {"text": text}))["result"])
            except Refused as refused:
                return refused.status


@pytest.mark.parametrize("way", ["up", "down"])
async def test_what_one_version_keeps_the_other_one_goes_on_with(tmp_path: Path, earlier: Path, way: str) -> None:
    first, second = (earlier, None) if way == "up" else (None, earlier)
    keeper = Keeper(tmp_path)
    async with web_client() as web:
        async with keeper.running(first) as program:
            kept, revoked = [await keeper.create_token(first, name) for name in ("ann", "bob")]
            assert await keeper.says(program, kept, "one") == "one"
            tokens = await Visitor(program, web, keeper.origin).log_in()
        async with keeper.running(second) as program:
            visitor = Visitor(program, web, keeper.origin)
            assert await keeper.says(program, kept, "two") == "two"
            assert await keeper.says(program, tokens["access_token"], "three") == "three"
            renewed = await visitor.renew(tokens)
            listed = json.loads(await run(second, "token", "list", "--json", "-c", keeper.config))
            (id,) = [each["id"] for each in listed if each["subject"] == "bob"]
            await run(second, "token", "revoke", id, "-c", keeper.config)
            assert await keeper.says(program, revoked, "x") == 401
        async with keeper.running(first) as program:
            visitor = Visitor(program, web, keeper.origin)
            assert await keeper.says(program, revoked, "x") == 401
            assert await keeper.says(program, kept, "four") == "four"
            again = await visitor.renew(renewed)
            assert await keeper.says(program, again["access_token"], "five") == "five"
    for package in (first, second):
        verified = json.loads(await run(package, "audit", "verify", "-c", keeper.config))
        assert (verified["intact"], verified["findings"]) == (True, [])
        logged = await run(package, "audit", "--tool", "echo", "--event", "call", "--json", "-c", keeper.config)
        assert [json.loads(line)["event"] for line in logged.splitlines()] == ["call"] * 5
        assert "up" in await run(package, "pins", "status", "-c", keeper.config)
