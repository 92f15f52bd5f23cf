"""Clients of 2026-07-28, whose requests come to two replicas in turn, beside sessions: nothing crosses or is lost.

Their calls are asked and retried: retries find the replica whose call waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.features.cluster.replicas import KEY, RoundRobin
from tests.features.cluster.store_servers import FaultyProxy, StoreServer, faulty_proxy
from tests.history import checker
from tests.history.checker import show
from tests.history.harness import RESULT_LIMIT, Send
from tests.history.http_sessions import HttpLine, HttpSessions
from tests.history.http_upstream import NonceHttp
from tests.history.modern_client import Mixed
from tests.history.modern_http import ModernHttpSessions
from tests.history.modern_upstream import ModernNonceHttp
from tests.history.record import History, Json, Kind
from tests.history.workload import Plan, Run
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
]
SERVERS = ("c", "web", "modern")
# Each replica keeps long results, and which apps are open, by itself: a client that comes to any of them does not
# always find its own.
DOES = ("echo", "work", "ask", "late", "prompt", "complete", "search", "cancel", "skill")


class ModernReplicaSessions(ModernHttpSessions):
    """Where modern clients connect: to each of these URLs in turn."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls[0])
        self._urls = urls

    def make_http(self) -> HttpClient:
        return RoundRobin(*self._urls)


@contextlib.asynccontextmanager
async def two_replicas(folder: Path, history: History, **settings: Json) -> AsyncIterator[list[HttpProgram]]:
    """Run two replicas in front of servers of both eras that tell this history what they do."""
    async with contextlib.AsyncExitStack() as stack:
        entries: dict[str, Json] = {}
        for name in SERVERS:
            server = ModernNonceHttp(name, history) if name == "modern" else NonceHttp(name, history)
            url = await stack.enter_async_context(server.listening())
            entries[name] = {"type": "http", "url": url, "result_limit": RESULT_LIMIT}
        entries["web"]["share"] = "session"
        ports = {"a": free_port(), "b": free_port()}
        urls = [f"http://127.0.0.1:{port}" for port in ports.values()]
        programs = []
        for name, port in ports.items():
            place = folder / name
            place.mkdir()
            cluster = {"name": name, "peers": urls, "keys": [KEY], **settings.get("cluster", {})}
            whole = {**settings, "cluster": cluster, "http": {"session_timeout": "2s"}}
            programs.append(await stack.enter_async_context(serving_http(place, entries, port=port, settings=whole)))
        yield programs


async def run(seed: int, history: History, programs: list[HttpProgram]) -> None:
    """Let clients of both eras come and go at both replicas, and check all that they saw."""
    plan = Plan(
        seed,
        SERVERS,
        slots=10,
        does=DOES,
        private=("web", "modern"),
        cancels_late=SERVERS,
        knows_sessions=False,
        leaves_questions=False,  # a client without a session cannot say that it will not come back
    )
    urls = [each.origin for each in programs]
    legacy, modern = SessionsInTurn(urls, history, plan.seed), ModernReplicaSessions(urls)
    host = Mixed(legacy, modern)
    wrong = await Run(plan, history).judge(host)
    await host.close()
    wrong += legacy.violations + modern.violations
    assert not wrong, show(wrong, history.events, plan.seed)
    resumed = [event for event in history.events if event.kind is Kind.SENT and b'"id": "q' in event.line]
    assert len(resumed) > 5
    assert all("a bug" not in each.log() for each in programs)


@pytest.fixture(autouse=True)
def _no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "streams_keep_order", False)


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_crosses_between_clients_of_both_eras_before_two_replicas(tmp_path: Path, seed: int) -> None:
    history = History()
    async with two_replicas(tmp_path, history) as programs:
        await run(seed, history, programs)


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_crosses_or_is_lost_while_the_store_of_two_replicas_fails(
    tmp_path: Path, seed: int, redis: StoreServer
) -> None:
    history, choose = History(), random.Random(f"faults {seed}")  # noqa: S311 - repeatable
    faults: Counter[str] = Counter()
    redis.ask("FLUSHALL")

    async def break_again_and_again(store: FaultyProxy) -> None:
        for fault in itertools.cycle(("cut", "silence", "nonsense", "wiped")):
            await asyncio.sleep(choose.uniform(0.05, 0.2))
            faults[fault] += 1
            match fault:
                case "cut":
                    store.cut()
                case "silence":
                    store.flows.clear()
                case "nonsense":
                    store.answer = lambda data: b"!" + data
                case "wiped":
                    await asyncio.to_thread(redis.ask, "FLUSHALL")
            await asyncio.sleep(choose.uniform(0.05, 0.4))
            store.answer = bytes
            store.flows.set()

    async with faulty_proxy(redis.port) as store:
        # so that every call asks the store
        limits = {"limits": [{"tools": ["*"], "rate": "100000/s", "burst": 100000}]}
        cluster = {"store": f"valkey://127.0.0.1:{store.port}/0"}
        async with two_replicas(tmp_path, history, cluster=cluster, defaults=limits) as programs:
            breaking = asyncio.create_task(break_again_and_again(store))
            try:
                await run(seed, history, programs)
            finally:
                breaking.cancel()
                await asyncio.wait([breaking])
                store.answer = bytes
                store.flows.set()
    assert len(faults) > 1, "it failed in more than one way"
    assert store.connections > len(SERVERS), "it was asked again after it had failed"


class SessionsInTurn(HttpSessions):
    """Where clients with sessions connect: to each of these URLs in turn."""

    def __init__(self, urls: list[str], history: History, seed: object) -> None:
        super().__init__(urls[0], history, seed)
        self._urls = urls

    def make_line(self, take: Send, choose: random.Random) -> HttpLine:
        return HttpLine(self, RoundRobin(*self._urls), take, choose)
