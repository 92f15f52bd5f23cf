"""How long calls take: what is measured of them, and the percentiles of the latest."""

from __future__ import annotations

import pytest

from dynamic_mcp.groups.activity import LATEST, Durations, Percentiles
from tests.fakes import frame
from tests.groups.lives import scene, serving
from tests.groups.shared import answer, silent


def test_percentiles_are_durations_that_were_measured() -> None:
    durations = Durations()
    for hundredth in range(100, 0, -1):
        durations.latest.append(hundredth / 100)

    assert durations.percentiles() == Percentiles(p50_s=0.5, p95_s=0.95)


def test_without_a_call_there_are_no_percentiles() -> None:
    assert Durations().percentiles() is None


def test_one_call_is_every_percentile() -> None:
    durations = Durations()
    durations.latest.append(0.25)

    assert durations.percentiles() == Percentiles(p50_s=0.25, p95_s=0.25)


def test_only_the_latest_calls_count() -> None:
    durations = Durations()
    for _ in range(LATEST):
        durations.latest.append(60.0)
    assert durations.percentiles() == Percentiles(p50_s=60.0, p95_s=60.0)
    for _ in range(LATEST):
        durations.latest.append(1.0)

    assert durations.percentiles() == Percentiles(p50_s=1.0, p95_s=1.0)


async def test_a_call_takes_as_long_as_its_server_takes_to_answer() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        call = on.call()
        await upstream.hears("tools/call")
        await on.clock.pass_(0.25)
        answer(upstream)
        await call

        assert on.group.instance.activity.durations.percentiles() == Percentiles(p50_s=0.25, p95_s=0.25)


async def test_the_time_that_a_call_waits_for_its_turn_is_not_measured() -> None:
    upstream = silent()
    async with scene(upstream, concurrency=1) as on:
        first, second = on.call(), on.call()
        await upstream.hears("tools/call")
        await on.clock.pass_(4.0)
        answer(upstream)
        await first
        await upstream.hears("tools/call", times=2)
        await on.clock.pass_(1.0)
        answer(upstream)
        await second

        assert on.group.instance.activity.durations.percentiles() == Percentiles(p50_s=1.0, p95_s=4.0)


async def test_the_time_that_a_call_waits_for_the_connection_is_not_measured() -> None:
    async with scene(serving()) as on:
        on.opener.gate.clear()
        call = on.call()
        await on.clock.pass_(3.0)
        on.opener.gate.set()
        await call

        assert on.group.instance.activity.durations.percentiles() == Percentiles(p50_s=0.0, p95_s=0.0)


async def test_an_error_of_the_server_is_an_answer_and_a_lost_connection_is_none() -> None:
    upstream = silent()
    async with scene(upstream, silent()) as on:
        call = on.call()
        asked = await upstream.hears("tools/call")
        await on.clock.pass_(0.5)
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": 1, "message": "no"}})
        assert (await call).error == frame(error=b'{"code": 1, "message": "no"}').error
        lost = on.call()
        await upstream.hears("tools/call", times=2)
        await on.clock.pass_(7.0)
        upstream.die()
        with pytest.raises(Exception, match="exited"):
            await lost

        assert on.group.instance.activity.durations.percentiles() == Percentiles(p50_s=0.5, p95_s=0.5)
