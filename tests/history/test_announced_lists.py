"""Every session hears once of each change of a list since it was greeted, whoever else was greeted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.fakes import BOUND_S
from tests.history.client import Client
from tests.history.parties import Parties, ask, parties
from tests.history.record import Kind

FEATURES = ("tools", "resources", "prompts")


async def _join_first(at: Parties) -> Client:
    """Open the first session, and let it hear of what the upstream offered when it was known."""
    one = await at.join("one")
    for feature in FEATURES:
        await _hear(at, ["one"], feature, 1)
    return one


async def _change(at: Parties, feature: str, name: str, seen_by: Client) -> None:
    """Change a list of the upstream, and wait until a session would see it."""
    at.server.add(feature, name)
    async with asyncio.timeout(BOUND_S):
        await at.history.until(
            lambda: any(
                event.kind is Kind.SENT and event.party == "a#0" and f'"{name}"'.encode() in event.line
                for event in at.history.events
            )
        )
        while not any(each["name"].endswith(name) for each in await _list(seen_by, feature)):
            pass


async def _list(client: Client, feature: str) -> Sequence[dict[str, str]]:
    result: dict[str, Sequence[dict[str, str]]] = (await ask(client, f"{feature}/list"))["result"]
    return result[feature]


async def _hear(at: Parties, sessions: Sequence[str], feature: str, times: int) -> None:
    async with asyncio.timeout(BOUND_S):
        await at.history.until(lambda: all(_heard(at, each, feature) >= times for each in sessions))


def _heard(at: Parties, session: str, feature: str) -> int:
    return len(at.got(session, f"notifications/{feature}/list_changed"))


@pytest.mark.parametrize("feature", FEATURES)
async def test_two_sessions_hear_of_each_change_once(feature: str) -> None:
    async with parties(direct=True) as at:
        one = await _join_first(at)
        two = await at.join("two")

        for change in (1, 2):
            await _change(at, feature, f"new{change}", seen_by=one)
            await _hear(at, ["one"], feature, 1 + change)
            await _hear(at, ["two"], feature, change)
        await _list(two, feature)

        assert (_heard(at, "one", feature), _heard(at, "two", feature)) == (3, 2)


@pytest.mark.parametrize("feature", FEATURES)
async def test_a_session_that_is_greeted_after_a_change_takes_it_from_nobody(feature: str) -> None:
    async with parties(direct=True) as at:
        one = await _join_first(at)

        await _change(at, feature, "new", seen_by=one)
        await at.join("two")
        await _hear(at, ["one"], feature, 2)

        await _change(at, feature, "newer", seen_by=one)
        await _hear(at, ["one"], feature, 3)
        await _hear(at, ["two"], feature, 1)
        assert (_heard(at, "one", feature), _heard(at, "two", feature)) == (3, 1)


async def test_a_session_that_has_ended_hears_of_no_change() -> None:
    async with parties(direct=True) as at:
        one = await _join_first(at)
        two = await at.join("two")
        await two.close()
        before = [event for event in at.history.events if event.party == "two"]

        await _change(at, "tools", "new", seen_by=one)
        await _hear(at, ["one"], "tools", 2)

        assert [event for event in at.history.events if event.party == "two"] == before
