"""A link that is lost is replaced, one that nobody uses is closed, and the end is for good."""

from __future__ import annotations

from typing import NoReturn

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import Home, Program
from dynamic_mcp.errors import LinkLost, NotSent, TimedOut, Unreachable
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import LoneGroup, Watcher
from tests.fakes import FakeClock, FakeUpstream, frame, group_config, settled
from tests.groups.lives import refusal, scene, serving

# --- a lost link -----------------------------------------------------------------------------------------


async def test_a_lost_link_fails_its_calls_and_the_next_use_reconnects_at_once() -> None:
    silent, fresh = serving(), serving()
    async with scene(silent, fresh) as on:
        await on.call()
        del silent.answers["tools/call"]
        call = on.call()
        await silent.hears("tools/call", times=2)

        silent.die("the server exited with code 1")
        with pytest.raises(LinkLost, match="may have run"):
            await call
        assert (on.group.state, on.group.reason) == (State.WAITING, "the server exited with code 1")
        await on.call()

        assert on.is_(State.READY)
        assert silent.closed
        assert [len(each.heard("tools/call")) for each in (silent, fresh)] == [2, 1]


async def test_a_call_on_a_link_that_is_found_dead_is_sent_once_on_a_new_one() -> None:
    dead, fresh = serving(), serving()
    async with scene(dead, fresh) as on:
        await on.call()

        dead.deaf = "the server has stopped reading its input"
        await on.call()

        assert [len(each.heard("tools/call")) for each in (dead, fresh)] == [1, 1]
        assert on.opener.opened == ["up", "up"]


async def test_a_link_that_is_found_dead_at_its_first_use_is_replaced_at_once() -> None:
    dead, fresh = serving(), serving()
    async with scene(dead, fresh) as on:
        await on.until(State.READY)

        dead.deaf = "the server has forgotten the session"
        await on.call()

        assert [len(each.heard("tools/call")) for each in (dead, fresh)] == [0, 1]


class Hung(FakeUpstream):
    """A server that has stopped reading when it is asked whether it lives."""

    def send(self, line: bytes) -> None:
        if b'"ping"' in line:
            raise NotSent(self.link.group, "the server has stopped reading its input")
        super().send(line)


async def test_a_server_that_answers_neither_calls_nor_a_ping_is_ended_and_replaced() -> None:
    hung = Hung()
    async with scene(hung, serving()) as on:
        await on.until(State.READY)

        for _ in range(2):
            with pytest.raises(TimedOut):
                await on.group.send("tools/call", None, timeout_s=0.01)
        await on.until(State.WAITING)

        assert on.group.reason == "the server has stopped answering, and was ended"
        await on.clock.pass_(2)
        await on.call()
        assert hung.closed


async def test_a_link_that_was_lost_is_replaced_even_if_nobody_asks() -> None:
    upstream = serving()
    async with scene(upstream, FakeUpstream()) as on:
        await on.call()

        upstream.die()
        await settled()
        assert on.is_(State.WAITING)
        await on.clock.pass_(2)

        assert on.is_(State.READY)


async def test_a_link_that_never_served_counts_as_a_failure() -> None:
    first = FakeUpstream()
    async with scene(first, serving()) as on:
        await on.until(State.READY)
        first.die("the server exited with code 1")
        await settled()

        with pytest.raises(Unreachable, match="exited with code 1"):
            await on.call()

        await on.clock.pass_(1.25)
        await on.call()
        assert on.opener.opened == ["up", "up"]


_AT_HOME = Program(command="fake", args=(), env={}, cwd=None, home=Home("socket", "launch"))


async def test_a_home_that_ended_before_it_served_is_replaced_at_once() -> None:
    ended, fresh = FakeUpstream(), serving()
    async with scene(ended, fresh, upstream=_AT_HOME, attempts=1) as on:
        await on.until(State.READY)
        ended.die("the process that runs this server has ended")
        await settled()

        await on.call()
        assert on.opener.opened == ["up", "up"]


async def test_a_call_waits_for_a_home_that_ended_while_its_lists_were_read() -> None:
    ended, fresh = serving(), serving()
    del ended.answers["tools/list"]
    async with scene(ended, fresh, upstream=_AT_HOME, attempts=1) as on:
        await ended.hears("tools/list")
        ended.die("the process that runs this server has ended")

        await on.call()
        assert on.opener.opened == ["up", "up"]


async def test_a_server_that_dies_after_every_handshake_is_started_ever_more_seldom() -> None:
    upstreams = [FakeUpstream() for _ in range(5)]
    async with scene(*upstreams) as on:
        for upstream, delay_s in zip(upstreams, [2, 4, 8, 30], strict=False):
            await on.until(State.READY)
            upstream.die()
            await settled()
            assert on.clock.sleeps() == [delay_s]
            await on.clock.pass_(delay_s)


async def test_a_group_that_has_served_has_all_its_retries_again() -> None:
    upstream = serving()
    async with scene(refusal(), refusal(), upstream, refusal(), idle_after_s=60) as on:
        await settled()
        await on.clock.pass_(2)
        await on.clock.pass_(4)
        await on.call()
        await on.clock.pass_(60)
        assert on.is_(State.COLD)

        with pytest.raises(Unreachable):
            await on.call()
        await settled()

        assert on.is_(State.WAITING)
        assert on.clock.sleeps() == [2]


# --- idle ------------------------------------------------------------------------------------------------


async def test_an_idle_group_closes_its_link_and_keeps_its_catalog() -> None:
    first, second = FakeUpstream(tools=["a"]), serving()
    async with scene(first, second, idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(59)
        assert on.is_(State.READY)
        await on.clock.pass_(1)

        assert (on.group.state, first.closed) == (State.COLD, True)
        assert list((await on.group.read_catalog()).tools) == ["a"]
        assert on.opener.opened == ["up"]

        await on.call()
        assert on.opener.opened == ["up", "up"]


async def test_a_use_starts_the_idle_clock_anew() -> None:
    async with scene(serving(), idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(50)
        await on.call()

        await on.clock.pass_(50)
        assert on.is_(State.READY)
        await on.clock.pass_(10)

        assert on.is_(State.COLD)


async def test_a_group_is_not_idle_while_a_call_is_in_flight() -> None:
    upstream = FakeUpstream()
    async with scene(upstream, idle_after_s=60) as on:
        call = on.call()
        id = (await upstream.hears("tools/call"))["id"]

        await on.clock.pass_(1000)
        assert (on.group.state, on.group.in_flight) == (State.READY, 1)
        upstream.say({"jsonrpc": "2.0", "id": id, "result": {}})
        await call

        await on.clock.pass_(59)
        assert (on.group.state, on.group.in_flight) == (State.READY, 0)
        await on.clock.pass_(1)
        assert on.is_(State.COLD)


async def test_a_group_is_not_idle_while_somebody_is_subscribed_and_is_afterwards() -> None:
    async with scene(serving(), idle_after_s=60) as on:
        await on.call()
        on.group.instance.activity.is_subscribed = True

        await on.clock.pass_(1000)
        assert on.is_(State.READY)
        on.group.instance.activity.is_subscribed = False

        await on.clock.pass_(60)
        assert on.is_(State.COLD)


async def test_what_a_client_tells_a_server_without_a_link_starts_nothing() -> None:
    upstream = serving()
    async with scene(upstream, idle_after_s=60) as on:
        await on.call()
        await on.clock.pass_(61)
        assert on.is_(State.COLD)

        on.group.notify(on.group.client, "notifications/roots/list_changed", Raw(b"{}"))
        await settled()

        assert on.is_(State.COLD)
        assert upstream.heard("notifications/roots/list_changed") == []


async def test_a_group_is_not_idle_while_its_upstream_waits_for_the_client() -> None:
    upstream = serving()
    async with scene(upstream, start=False, idle_after_s=60) as on:
        on.group.begin()
        client = on.group.client
        await on.call()
        upstream.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"})

        await on.clock.pass_(1000)
        assert on.is_(State.READY)
        client.answer.set_result(frame(result=b"{}"))
        await upstream.hears("an answer")

        await on.clock.pass_(1)
        assert on.is_(State.COLD)


async def test_without_an_idle_timeout_a_link_stays() -> None:
    async with scene(FakeUpstream(), idle_after_s=None) as on:
        await on.until(State.READY)

        await on.clock.pass_(1e9)

        assert on.is_(State.READY)


# --- the end ---------------------------------------------------------------------------------------------


async def test_closing_ends_the_link_and_the_calls_in_flight() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        call = on.call()
        await upstream.hears("tools/call")

        await on.group.close()

        with pytest.raises(LinkLost):
            await call
        assert (on.group.state, upstream.closed) == (State.CLOSED, True)


async def test_closing_during_an_attempt_ends_it_and_all_who_wait_hear_so() -> None:
    async with scene(serving()) as on:
        on.opener.gate.clear()
        calls = [on.call() for _ in range(3)]
        await settled()

        await on.group.close()

        for call in calls:
            with pytest.raises(Unreachable, match="shutting down"):
                await call


async def test_closing_during_the_first_reading_closes_the_link() -> None:
    upstream = FakeUpstream()
    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        await upstream.hears("tools/list")

        await on.group.close()

        assert upstream.closed


@pytest.mark.parametrize("start", [True, False], ids=["started", "never started"])
async def test_a_closed_group_stays_closed(*, start: bool) -> None:
    async with scene(serving(), start=start) as on:
        await on.group.close()
        await on.group.close()

        with pytest.raises(Unreachable):
            await on.call()
        with pytest.raises(Unreachable):
            await on.group.read_catalog()

        assert on.is_(State.CLOSED)
        assert on.opener.opened == []


async def test_closing_while_waiting_between_attempts_ends_the_group() -> None:
    async with scene(refusal()) as on:
        await on.until(State.WAITING)

        await on.group.close()

        assert (on.group.state, on.group.reason) == (State.CLOSED, "")
        assert on.clock.sleeps() == []


async def test_a_retired_instance_does_not_start() -> None:
    async with scene(serving(), start=False) as on:
        instance = on.group.instance
        instance.retire()

        instance.start(wanted=True)
        await settled()

        assert (on.opener.opened, instance.wanted_for_s()) == ([], 0.0)


async def test_a_group_that_an_error_of_our_own_ends_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def open_wrongly(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("a bug")

    group = LoneGroup(group_config("up"), Watcher(), opener=open_wrongly, clock=FakeClock())
    with pytest.raises(Unreachable, match="ended by an error in dynamic-mcp"):
        await group.send("tools/call", None, timeout_s=5)
    await group.close()

    assert "a bug: group up ends" in caplog.text


async def test_a_client_that_is_released_hears_no_more_of_its_tasks() -> None:
    upstream = serving()
    upstream.answers["tools/call"] = {"task": {"taskId": "t1"}}
    async with scene(upstream) as on:
        params = {"name": Raw(b'"echo"'), "task": Raw(b"{}"), "_meta": Raw(b'{"progressToken":"t"}')}
        await on.group.send("tools/call", params, timeout_s=5)
        token = upstream.heard("tools/call")[0]["params"]["_meta"]["progressToken"]
        progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
        upstream.say({**progress, "params": {"progress": 1, "progressToken": token}})
        await settled()
        assert len(on.group.client.told) == 1

        on.group.instance.forget(on.group.client)
        upstream.say({**progress, "params": {"progress": 2, "progressToken": token}})
        await settled()

        assert len(on.group.client.told) == 1
