"""One of two processes is killed under load: nothing is wrong, doubled, or lost without a word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dynamic_mcp.system.worker import WorkerIdentity
from tests.features.cluster.replicas import KEY
from tests.history import checker
from tests.history.checker import show
from tests.history.harness import RESULT_LIMIT, journal
from tests.history.record import History, Json
from tests.history.replica_crowd import ReplicaCrowd, ReplicaCrowdPlan
from tests.history.replica_sessions import ReplicaSessions
from tests.history.workload import ALL, EXTENSIONS, Plan
from tests.hosting import wait_for_end
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.process.test_workers import until_all_serve, workers_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]
SHARED, PRIVATE = ("a", "b"), ("own",)
# What needs nothing that an earlier request has left in a server.
ALONE = ("echo", "work", "ask", "late", "big", "prompt", "complete", "search", "cancel")
_DIES_WITHIN_S = 10.0
_TIMEOUT = {"tools": "8s"}  # of calls that a dead replica has left
_HTTP = {"session_timeout": "2s"}  # of sessions that it has left


@pytest.fixture(autouse=True)
def _no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    # an update that was sent before the answer to `resources/unsubscribe` may come after it, over another connection
    monkeypatch.setattr(checker, "streams_keep_order", False)


@contextlib.asynccontextmanager
async def servers(history: History) -> AsyncIterator[dict[str, Json]]:
    """Hand out the entries of the servers, which tell this history what they do."""
    async with contextlib.AsyncExitStack() as stack:
        entries: dict[str, Json] = {}
        for name in (*SHARED, *PRIVATE):
            program = await stack.enter_async_context(journal(history, name))
            share = {"share": "session"} if name in PRIVATE else {}
            entries[name] = {"command": program.command, "args": list(program.args), "timeout": _TIMEOUT, **share}
        yield entries


def kill(pid: int) -> None:
    """Kill a process; it is dead when this returns, and nothing else has happened here."""
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid, _DIES_WITHIN_S)


def plan_of(seed: int, does: tuple[str, ...]) -> ReplicaCrowdPlan:
    each = Plan(
        seed, (*SHARED, *PRIVATE), does=does, must_update=True, private=PRIVATE, cancels_late=(*SHARED, *PRIVATE)
    )
    return ReplicaCrowdPlan(each)


class Replicas:
    """Two gateways, `a` and `b`, in front of one program with the servers."""

    def __init__(self, folder: Path, entries: Json) -> None:
        self.ports = {"a": free_port(), "b": free_port()}
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports.values()]
        self._folder = folder
        self._entries = entries

    @contextlib.asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[HttpProgram]:
        place = self._folder / name
        place.mkdir(exist_ok=True)
        settings = {"cluster": {"name": name, "peers": self.urls, "keys": [KEY]}, "http": _HTTP}
        async with serving_http(place, self._entries, port=self.ports[name], settings=settings) as program:
            yield program


@contextlib.asynccontextmanager
async def gateways(folder: Path, history: History) -> AsyncIterator[tuple[Replicas, dict[str, HttpProgram]]]:
    async with contextlib.AsyncExitStack() as stack:
        entries = await stack.enter_async_context(servers(history))
        tier = folder / "servers"
        tier.mkdir()
        behind = await stack.enter_async_context(serving_http(tier, entries, settings={"http": _HTTP}))
        each = {"result_limit": RESULT_LIMIT, "timeout": _TIMEOUT}
        private = {"share": "session"}
        remote = {
            name: {"url": behind.url_of(name), **each, **(private if name in PRIVATE else {})} for name in entries
        }
        replicas = Replicas(folder, remote)
        programs = {name: await stack.enter_async_context(replicas.running(name)) for name in replicas.ports}
        yield replicas, programs


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_call_of_replicas_of_which_one_is_killed_is_wrong_doubled_or_lost(tmp_path: Path, seed: int) -> None:
    history = History()
    plan = plan_of(seed, tuple(each for each in ALL if each not in EXTENSIONS))
    async with gateways(tmp_path, history) as (replicas, programs), contextlib.AsyncExitStack() as again:
        host = ReplicaSessions(replicas.urls, history, seed)

        async def kill_a() -> None:
            killed = programs["a"]
            killed.is_ending = killed.is_killed = True
            kill(killed.process.pid)
            host.note_kill("a", urlsplit(replicas.urls[0]).netloc)
            await again.enter_async_context(replicas.running("a"))

        wrong = await ReplicaCrowd(plan, history, host, "a", kill_a).run()
    assert not wrong, show(wrong, history.events, seed)
    assert host.counts["lost"] > 0


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_call_of_workers_of_which_one_is_killed_is_wrong_doubled_or_lost(tmp_path: Path, seed: int) -> None:
    history = History()
    homes = {name: WorkerIdentity(0, 2, "", "").home_of(name) for name in (*SHARED, *PRIVATE)}
    async with contextlib.AsyncExitStack() as stack:
        entries = await stack.enter_async_context(servers(history))
        entries = {name: {**each, "result_limit": RESULT_LIMIT} for name, each in entries.items()}
        serving = serving_http(tmp_path, entries, "--workers", "2", settings={"http": _HTTP})
        program = await stack.enter_async_context(serving)
        await until_all_serve(program)
        host = ReplicaSessions([program.origin], history, seed)

        async def kill_one() -> None:
            pid = workers_of(program)["w0"]
            kill(pid)
            history.kill_home(pid, [name for name, home in homes.items() if home == 0])
            host.note_kill("w0", urlsplit(program.origin).netloc)
            async with asyncio.timeout(_DIES_WITHIN_S):
                await until_all_serve(program)

        wrong = await ReplicaCrowd(plan_of(seed, ALONE), history, host, "w0", kill_one).run()
    assert not wrong, show(wrong, history.events, seed)
    assert host.counts["lost"] > 0
