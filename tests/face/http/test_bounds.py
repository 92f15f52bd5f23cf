"""What is bounded over HTTP: sessions, their requests in flight, their time, what is kept; and the end."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from dynamic_mcp.errors import Unreachable
from dynamic_mcp.face.http.replay import ReplayBudget, ReplayStore
from dynamic_mcp.face.http.session import HttpSession
from dynamic_mcp.session.legacy import Session
from tests.face.http.parties import EVERYTHING, HELLO, HttpClient, face_of
from tests.fakes import BOUND_S, FakeClock, FakeUpstream, FullUpstream, Opener, settled


async def test_a_session_too_many_is_told_to_come_back_later() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), max_sessions=2) as face:
        first = HttpClient(face)
        await first.initialize()
        await HttpClient(face).initialize()

        refused = HttpClient(face).request("initialize", HELLO)
        first.send("DELETE")

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        await HttpClient(face).initialize()


async def test_a_session_that_was_left_behind_makes_room_for_a_new_one() -> None:
    clock = FakeClock()
    async with face_of(Opener(up=[FakeUpstream()]), max_sessions=2, now=clock.now) as face:
        left, used = HttpClient(face), HttpClient(face)
        await used.initialize()
        await left.initialize()
        clock.time += 600
        await used.request("ping").ends()

        await HttpClient(face).initialize()

        assert left.request("ping").status == 404
        assert (await used.request("ping").ends()).status == 200
        assert HttpClient(face).request("initialize", HELLO).status == 503


async def test_a_request_too_many_of_a_session_is_told_to_come_back_later() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream]), max_in_flight=2) as face:
        client, other = HttpClient(face), HttpClient(face)
        await client.initialize()
        await other.initialize()
        client.call("hold")
        client.call("hold")
        await upstream.hears("tools/call", times=2)

        refused = client.request("ping")

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert (await other.request("ping").ends()).status == 200


async def test_a_session_with_many_requests_in_flight_can_cancel_one() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream]), max_in_flight=1) as face:
        client = HttpClient(face)
        await client.initialize()
        held = client.call("hold", id="a")
        await upstream.hears("tools/call")

        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
        cancelled = client.post(body)

        assert cancelled.status == 202
        assert (await held.ends()).status == 202
        assert (await client.request("ping").ends()).status == 200


async def test_a_session_whose_initialize_fails_does_not_begin() -> None:
    async with face_of(Opener(up=[Unreachable("up", "no such program", final=True)])) as face:
        failed = await HttpClient(face, "/mcp/up").request("initialize", HELLO).ends()

        assert "error" in failed.json
        assert "mcp-session-id" not in failed.headers
        assert repr(face) == "<HttpFace 0 sessions, 0 modern requests>"


async def test_a_session_whose_id_reaches_nobody_ends() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        gone = HttpClient(face).request("initialize", HELLO)
        gone.cut()
        await settled()

        assert repr(face) == "<HttpFace 0 sessions, 0 modern requests>"


async def test_what_an_upstream_says_after_the_end_of_a_session_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold", token=1)
        token = (await upstream.hears("tools/call"))["params"]["_meta"]["progressToken"]

        client.send("DELETE")
        params = {"progressToken": token, "progress": 1}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await settled()

        assert reply.status == 404
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_message_that_begins_a_session_is_never_long() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        first = client.post(b"x").receiver
        await client.initialize()
        later = client.post(b"x").receiver

        assert first is not None
        assert later is not None
        assert (first.max_body_bytes, later.max_body_bytes) == (1 << 20, 64 << 20)


async def test_a_session_that_nobody_uses_ends_after_a_while() -> None:
    clock = FakeClock()
    async with face_of(Opener(up=[FakeUpstream()]), session_timeout_s=100, now=clock.now) as face:
        idle, listening = HttpClient(face), HttpClient(face)
        await idle.initialize()
        await listening.initialize()
        stream = listening.listen()
        clock.time += 99
        face.tick()
        assert (await idle.request("ping").ends()).status == 200

        clock.time += 101
        face.tick()

        assert idle.request("ping").status == 404
        assert not stream.has_ended
        stream.cut()
        clock.time += 101
        face.tick()
        assert listening.request("ping").status == 404


async def test_a_session_with_a_call_in_flight_is_not_idle() -> None:
    clock, upstream = FakeClock(), FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream]), session_timeout_s=100, now=clock.now) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold")
        call = await upstream.hears("tools/call")
        reply.cut()

        clock.time += 1000
        face.tick()

        upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}})
        await settled()
        assert (await client.request("ping").ends()).status == 200


async def test_a_client_that_is_asked_and_never_comes_back_leaves_its_call_behind() -> None:
    """Its call has all the time it needs while the client is asked, so it would never end."""
    clock = FakeClock()
    async with face_of(Opener(up=[FullUpstream()]), session_timeout_s=100, now=clock.now) as face:
        client = HttpClient(face)
        await client.initialize(EVERYTHING)
        reply = client.call("ask", {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        await reply.hears_of("sampling/createMessage")
        clock.time += 1000
        face.tick()
        assert (await client.request("ping").ends()).status == 200

        reply.cut()
        clock.time += 101
        face.tick()

        assert client.request("ping").status == 404


# --- replay --------------------------------------------------------------------------------------------


def test_the_newest_event_is_kept_however_long_it_is() -> None:
    store = ReplayStore(ReplayBudget())
    store.add(1, 1, b"a", 0.0)
    store.add(1, 2, b"x" * (8 << 20), 1.0)

    assert store.after(1, 1) == [b"x" * (8 << 20)]
    assert store.after(1, 0) is None


def test_events_are_bounded_in_number_bytes_and_time() -> None:
    budget = ReplayBudget()
    store = ReplayStore(budget)
    for number in range(1, 5001):
        store.add(1, number, b"x" * 2000, float(number))

    assert len(store) <= 1000
    assert budget.used <= 2 << 20
    assert store.after(1, 4999) == [b"x" * 2000]
    store.evict_older(5001.0)
    assert (len(store), budget.used) == (0, 0)


def test_a_session_that_floods_loses_its_own_events_and_not_those_of_others() -> None:
    budget = ReplayBudget()
    quiet, loud = ReplayStore(budget), ReplayStore(budget)
    quiet.add(1, 1, b"a", 0.0)
    for number in range(1, 200):
        loud.add(1, number, b"x" * (1 << 20), 0.0)

    assert quiet.after(1, 0) == [b"a"]


# --- the end -------------------------------------------------------------------------------------------


async def test_at_the_end_calls_get_their_time_and_streams_are_told_to_come_back() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        listening, reply = client.listen(), client.call("hold")
        call = await upstream.hears("tools/call")

        finishing = asyncio.create_task(face.finish(BOUND_S))
        await settled()
        refused, late = HttpClient(face).request("initialize", HELLO), client.request("ping")
        ready = client.send("GET", "/ready")
        upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}})
        async with asyncio.timeout(BOUND_S):
            await finishing

        assert (refused.status, late.status, ready.status) == (503, 503, 503)
        assert reply.json["result"] == {"content": []}
        assert listening.has_ended
        assert listening.body.rstrip().splitlines()[-1].startswith(b"retry: ")


async def test_a_call_that_takes_too_long_at_the_end_is_told_that_it_may_have_run() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold")
        await upstream.hears("tools/call")

        async with asyncio.timeout(BOUND_S):
            await face.finish(0.01)

        assert "may have run" in (await reply.ends()).json["result"]["content"][0]["text"]


async def test_nothing_of_a_session_stays_after_its_end() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        before = {id(each) for each in _sessions()}  # those of other tests may not have been forgotten yet
        client = HttpClient(face)
        await client.initialize()
        client.listen()
        await client.request("tools/list").ends()
        client.send("DELETE")
        await settled()

        assert repr(face) == "<HttpFace 0 sessions, 0 modern requests>"
        assert {id(each) for each in _sessions()} <= before


def _sessions() -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, HttpSession | Session)]
