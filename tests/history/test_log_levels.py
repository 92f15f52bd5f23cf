"""Each session has a log level of its own, and a shared upstream logs what the most curious of them wants."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from tests.fakes import BOUND_S
from tests.history.client import Client
from tests.history.harness import complain
from tests.history.nonce_server import LEVELS
from tests.history.parties import Parties, ask, call, parties

WANTED = {"one": "error", "two": "debug", "three": "warning"}


def _at_least(level: str) -> list[str]:
    return list(LEVELS[LEVELS.index(level) :])


def _levels(at: Parties, session: str) -> list[str]:
    """Return the levels of what a session has heard from the upstream."""
    heard = at.got(session, "notifications/message")
    return [each["level"] for each in heard if session in str(each["data"])]


async def _upstream_logs(at: Parties, level: str, instance: str = "a#0") -> None:
    """Wait until an instance was last told this level."""
    async with asyncio.timeout(BOUND_S):
        await at.history.until(lambda: at.got(instance, "logging/setLevel")[-1:] == [{"level": level}])


async def _all_say_all(clients: list[Client]) -> None:
    """Let each session's call log at every level, one call after the other."""
    for client in clients:
        await call(client, "say", levels=list(LEVELS))


@pytest.mark.parametrize("has_streams", [False, True], ids=["stdio", "http"])
@pytest.mark.parametrize("order", list(permutations(WANTED)), ids="-".join)
async def test_each_session_hears_its_own_level_and_above_whoever_spoke_last(
    order: tuple[str, ...], *, has_streams: bool
) -> None:
    async with parties(has_streams=has_streams) as at:
        clients = [await at.join(name) for name in order]
        for client in clients:
            await ask(client, "logging/setLevel", level=WANTED[client.name])
        await _upstream_logs(at, "debug")

        await _all_say_all(clients)

        assert {name: _levels(at, name) for name in WANTED} == {
            name: _at_least(each) for name, each in WANTED.items()
        }


async def test_calls_at_once_log_at_the_level_of_the_session_whose_call_it_is() -> None:
    async with parties(has_streams=True) as at:
        clients = [await at.join(name) for name in WANTED]
        for client in clients:
            await ask(client, "logging/setLevel", level=WANTED[client.name])
        await _upstream_logs(at, "debug")

        await asyncio.gather(*(call(client, "say", levels=list(LEVELS)) for client in clients))

        assert {name: _levels(at, name) for name in WANTED} == {
            name: _at_least(each) for name, each in WANTED.items()
        }
        others = {name: set(WANTED) - {name} for name in WANTED}
        for name in WANTED:
            assert not any(other in str(at.got(name, "notifications/message")) for other in others[name])


async def test_an_upstream_logs_less_again_when_the_session_that_wanted_more_has_ended() -> None:
    async with parties() as at:
        one, two = [await at.join(name) for name in ("one", "two")]
        for client in (one, two):
            await ask(client, "logging/setLevel", level=WANTED[client.name])
        await _upstream_logs(at, "debug")

        await two.close()

        await _upstream_logs(at, "error")
        await _all_say_all([one])
        assert _levels(at, "one") == _at_least("error")


async def test_an_upstream_logs_less_again_when_the_session_that_wanted_more_wants_less() -> None:
    async with parties() as at:
        one, two = [await at.join(name) for name in ("one", "two")]
        for client in (one, two):
            await ask(client, "logging/setLevel", level=WANTED[client.name])
        await _upstream_logs(at, "debug")

        await ask(two, "logging/setLevel", level="emergency")

        await _upstream_logs(at, "error")
        await _all_say_all([one, two])
        assert (_levels(at, "one"), _levels(at, "two")) == (_at_least("error"), ["emergency"])


async def test_an_upstream_that_comes_back_is_told_the_level_that_the_most_curious_session_wants() -> None:
    async with parties() as at:
        one, two = [await at.join(name) for name in ("one", "two")]
        for client in (two, one):
            await ask(client, "logging/setLevel", level=WANTED[client.name])
        await _upstream_logs(at, "debug")

        at.upstreams[0].die()
        await call(one, "echo")

        await _upstream_logs(at, "debug", "a#1")


async def test_an_instance_of_its_own_logs_at_the_level_of_its_session() -> None:
    async with parties(share="session") as at:
        one, two = [await at.join(name) for name in ("one", "two")]
        for client in (two, one):
            await ask(client, "logging/setLevel", level=WANTED[client.name])

        await _upstream_logs(at, "error", "a#0")
        await _upstream_logs(at, "debug", "a#1")


async def test_an_error_of_the_proxy_itself_is_told_to_those_who_want_errors() -> None:
    async with parties() as at:
        one, two = [await at.join(name) for name in ("one", "two")]
        await ask(one, "logging/setLevel", level="error")
        await ask(two, "logging/setLevel", level="critical")

        complain(at.proxy, "something is wrong")
        for client in (one, two):
            await ask(client, "ping")

        said = {"level": "error", "logger": "dynamic-mcp", "data": "something is wrong"}
        assert at.got("one", "notifications/message") == [said]
        assert at.got("two", "notifications/message") == []
