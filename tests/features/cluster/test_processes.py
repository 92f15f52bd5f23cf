"""Replicas as processes, in front of a server of their own: one that is killed, that hangs, that is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.features.cluster.replicas import KEY, RoundRobin, received_by
from tests.features.cluster.store_servers import StoreServer
from tests.http_client import Disconnected, HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.program import Json, full, text_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="there are no signals"),
]
_CLIENTS = 8


class Service:
    """A server tier with one server, and two gateways in front of it."""

    def __init__(self, folder: Path, server: HttpProgram) -> None:
        self.server = server
        self.ports = {"a": free_port(), "b": free_port()}
        self.programs: dict[str, HttpProgram] = {}
        self.cluster: Json = {}  # more of `settings.cluster`
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports.values()]
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def gateway(self, name: str, package: Path | None = None) -> AsyncIterator[HttpProgram]:
        """Run a gateway, of the program or of a copy of it."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        cluster = {"name": name, "peers": self.urls, "keys": [KEY], **self.cluster}
        servers = {"up": {"url": self.server.url_of("up")}}
        port = self.ports[name]
        settings = {"cluster": cluster}
        async with serving_http(folder, servers, port=port, package=package, settings=settings) as program:
            self.programs[name] = program
            yield program

    async def received(self) -> Counter[str]:
        """Return how often the server has got each text."""
        return await received_by(self.server.origin)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """The server tier, in front of which no gateway runs yet."""
    folder = tmp_path / "server"
    folder.mkdir()
    async with serving_http(folder, {"up": {**full(), "share": "all"}}) as server:
        yield Service(tmp_path, server)


class Caller:
    """A client that calls again and again, beginning a new session where it must; it records each outcome.

    With `keeps_session`, it goes on with its session on another connection if one is cut.
    """

    def __init__(self, number: int, urls: list[str], *, keeps_session: bool = False) -> None:
        self.keeps_session = keeps_session
        self.answered: list[str] = []
        self.may_have_run: list[str] = []
        self.refused: list[str] = []
        self.wrong: list[Json] = []
        self.http = RoundRobin(*urls[number % len(urls) :], *urls[: number % len(urls)])
        self._texts = (f"{number}-{n}" for n in itertools.count())
        self._client: McpClient | None = None

    @property
    def session(self) -> str:
        """The id of its session; empty while it has none."""
        return "" if self._client is None else self._client.id

    async def run(self, until: asyncio.Event) -> None:
        while not until.is_set():
            text = next(self._texts)
            try:
                if self._client is None:
                    client = McpClient(self.http)
                    await client.initialize()
                    self._client = client
                answer = await self._client.call("up", "echo", {"text": text})
            except Refused as refused:
                if refused.status not in (404, 503):
                    self.wrong.append(refused)
                self.refused.append(text)
                self._client = None
            except (OSError, Disconnected):  # as a balancer would see it
                self.may_have_run.append(text)
                if not self.keeps_session:
                    self._client = None
            else:
                self._take(text, answer)

    def _take(self, text: str, answer: Json) -> None:
        if "error" in answer and "may have run" in answer["error"]["message"]:
            self.may_have_run.append(text)
        elif "error" not in answer and text_of(answer["result"]) == text:
            self.answered.append(text)
        else:
            self.wrong.append(answer)


async def test_a_replica_that_is_killed_under_load_loses_and_doubles_no_call_silently(service: Service) -> None:
    enough = asyncio.Event()
    async with service.gateway("b") as survivor:
        async with contextlib.AsyncExitStack() as stack:
            killed = await stack.enter_async_context(service.gateway("a"))
            callers = [Caller(number, service.urls) for number in range(_CLIENTS)]
            tasks = [asyncio.create_task(each.run(enough)) for each in callers]
            await have_answered(callers, 200)
            killed.process.kill()
            before = sum(len(each.answered) for each in callers)
            await have_answered(callers, before + 200)
            enough.set()
            await asyncio.gather(*tasks)
            with contextlib.suppress(AssertionError):  # it did not end by a signal of ours with code 0
                killed.is_ending = True
                await stack.aclose()
        await check_calls(service, callers)
        assert any(each.may_have_run for each in callers), "no call was in flight when it was killed"
        assert survivor.process.returncode is None


async def test_sessions_of_a_replica_that_is_killed_under_load_go_on_at_another_one(
    service: Service, redis: StoreServer
) -> None:
    redis.ask("FLUSHALL")
    service.cluster["store"] = redis.url
    enough = asyncio.Event()
    callers = [Caller(number, service.urls, keeps_session=True) for number in range(_CLIENTS)]
    async with service.gateway("b"):
        async with contextlib.AsyncExitStack() as stack:
            killed = await stack.enter_async_context(service.gateway("a"))
            tasks = [asyncio.create_task(each.run(enough)) for each in callers]
            for each in callers:
                await have_answered([each], 10)
            moving = {each: each.session for each in callers if each.session.startswith("d1.a.")}
            assert moving
            killed.is_ending = killed.is_killed = True
            killed.process.kill()
            before = sum(len(each.answered) for each in moving)
            await have_answered([*moving], before + 200)
            enough.set()
            await asyncio.gather(*tasks)
        await check_calls(service, callers)
    assert {each: each.session for each in moving} == moving, "each session has gone on"


async def test_a_replica_that_hangs_holds_up_its_own_sessions_alone(service: Service) -> None:
    async with (
        service.gateway("a") as hung,
        service.gateway("b"),
        HttpClient(service.urls[0]) as first,
        HttpClient(service.urls[1]) as second,
    ):
        mine, other = McpClient(first), McpClient(second)
        await mine.initialize()
        await other.initialize()
        mine.http = second
        assert text_of((await mine.call("up", "echo", {"text": "x"}))["result"]) == "x"
        os.kill(hung.process.pid, signal.SIGSTOP)
        try:
            call = asyncio.create_task(mine.call("up", "echo", {"text": "y"}))
            assert text_of((await other.call("up", "echo", {"text": "z"}))["result"]) == "z"
            async with asyncio.timeout(30):
                answer = await call
            assert "may have run" in answer["error"]["message"]
        finally:
            os.kill(hung.process.pid, signal.SIGCONT)


async def test_replicas_that_are_replaced_one_after_another_lose_no_call_that_could_be_answered(
    service: Service,
) -> None:
    enough = asyncio.Event()
    callers = [Caller(number, service.urls) for number in range(_CLIENTS)]
    async with contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as second:
        await first.enter_async_context(service.gateway("a"))
        await second.enter_async_context(service.gateway("b"))
        tasks = [asyncio.create_task(each.run(enough)) for each in callers]
        await have_answered(callers, 100)
        async with contextlib.AsyncExitStack() as again:
            await first.aclose()
            await again.enter_async_context(service.gateway("a"))
            before = sum(len(each.answered) for each in callers)
            await have_answered(callers, before + 100)
            enough.set()
            await asyncio.gather(*tasks)
    await check_calls(service, callers)


async def have_answered(callers: list[Caller], count: int) -> None:
    async with asyncio.timeout(60):
        while sum(len(each.answered) for each in callers) < count:  # noqa: ASYNC110 - many clients, no event
            await asyncio.sleep(0.05)


async def check_calls(service: Service, callers: list[Caller]) -> None:
    received = await service.received()
    for caller in callers:
        await caller.http.close()
        assert not caller.wrong
        assert all(received[text] == 1 for text in caller.answered), "an answered call has run once"
        assert all(received[text] == 0 for text in caller.refused), "a refused call has not run"
        assert all(received[text] <= 1 for text in caller.may_have_run), "a call was sent twice"
