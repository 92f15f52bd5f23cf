"""Clients of 2026-07-28, whose requests come to two replicas in turn, beside sessions: nothing crosses or is lost.

Their calls are asked and retried: retries find the replica whose call waits.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from tests.features.cluster.replicas import KEY, RoundRobin
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
from tests.http_program import serving_http
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


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_crosses_between_clients_of_both_eras_before_two_replicas(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "streams_keep_order", False)
    history = History()
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
            place = tmp_path / name
            place.mkdir()
            settings = {"cluster": {"name": name, "peers": urls, "keys": [KEY]}, "http": {"session_timeout": "2s"}}
            programs.append(
                await stack.enter_async_context(serving_http(place, entries, port=port, settings=settings))
            )
        legacy, modern = SessionsInTurn(urls, history, plan.seed), ModernReplicaSessions(urls)
        host = Mixed(legacy, modern)
        wrong = await Run(plan, history).judge(host)
        await host.close()
        wrong += legacy.violations + modern.violations
        assert not wrong, show(wrong, history.events, plan.seed)
        resumed = [event for event in history.events if event.kind is Kind.SENT and b'"id": "q' in event.line]
        assert len(resumed) > 5
        assert all("a bug" not in each.log() for each in programs)


class SessionsInTurn(HttpSessions):
    """Where clients with sessions connect: to each of these URLs in turn."""

    def __init__(self, urls: list[str], history: History, seed: object) -> None:
        super().__init__(urls[0], history, seed)
        self._urls = urls

    def make_line(self, take: Send, choose: random.Random) -> HttpLine:
        return HttpLine(self, RoundRobin(*self._urls), take, choose)
