"""What is bounded over HTTP: sessions, their requests in flight, their time, what is kept; and the end."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from dynamic_mcp.errors import Unreachable
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.replay import ReplayBudget, ReplayStore
from dynamic_mcp.face.http.session import HttpSession
from dynamic_mcp.mcp.envelope import CLIENT_INFO
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.modern import ModernDispatcher
from tests.face.http.modern_parties import META, ModernHttpClient, modern
from tests.face.http.parties import EVERYTHING, HELLO, ByUserHeader, HttpClient, Reply, face_of
from tests.fakes import (
    BOUND_S,
    FakeClock,
    FakeUpstream,
    FullUpstream,
    Json,
    Opener,
    config_of,
    group_config,
    settled,
)


async def test_a_session_too_many_is_told_to_come_back_later() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), max_sessions=2) as face:
        first = HttpClient(face)
        await first.initialize()
        await HttpClient(face).initialize()

        refused = HttpClient(face).request("initialize", HELLO)
        first.send("DELETE")

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        await HttpClient(face).initialize()


async def test_the_log_says_once_a_minute_that_sessions_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with face_of(Opener(up=[FakeUpstream()]), max_sessions=1, now=clock.now) as face:
        await HttpClient(face).initialize()
        for passes_s in (0, 1, 61):
            clock.time += passes_s
            assert HttpClient(face).request("initialize", HELLO).status == 503
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "the limit of 1 sessions is reached; refusing more for now"
    ] * 2


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


@pytest.mark.parametrize("transport", ["streamable", "older"])
async def test_each_request_of_a_batch_counts(transport: str) -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream]), max_in_flight=3) as face:
        client = await _client_with_batches(face, transport)

        assert client.post(_batch("a", "b", "c", "d")).status == 413
        client.post(_batch("a", "b"))
        await upstream.hears("tools/call", times=2)
        too_many = client.post(_batch("c", "d"))
        assert (too_many.status, int(too_many.headers["retry-after"]) > 0) == (503, True)
        client.post(_batch("e"))
        await upstream.hears("tools/call", times=3)
        assert client.request("ping").status == 503


async def _client_with_batches(face: HttpFace, transport: str) -> HttpClient:
    hello = {**HELLO, "protocolVersion": "2025-03-26"}
    client = HttpClient(face)
    if transport == "older":
        stream = client.send("GET", "/sse", accept="text/event-stream")
        client.path = stream.body.decode().split("data: ")[1].strip()
        client.request("initialize", hello)
        await stream.until(lambda: b"protocolVersion" in stream.body)
    else:
        client.session = (await client.request("initialize", hello).ends()).headers["mcp-session-id"]
    client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return client


def _batch(*ids: str) -> list[Json]:
    call = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "hold", "args": {}}}
    return [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call} for id in ids]


async def test_one_principal_has_half_of_the_sessions_at_most() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), authenticator=ByUserHeader(), max_sessions=10) as face:
        for _ in range(5):
            assert (await _begin(face, "ann")).status == 200

        refused = await _begin(face, "ann")

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert "your limit" in refused.json["error"]["message"]
        assert (await _begin(face, "admin")).status == 200


async def test_where_all_sessions_are_taken_somebody_without_one_gets_one_of_who_has_most() -> None:
    clock = FakeClock()
    options = {"authenticator": ByUserHeader(), "max_sessions": 4, "now": clock.now}
    async with face_of(Opener(up=[FakeUpstream()]), **options) as face:
        sessions: list[tuple[str, str]] = []
        for user in ("ann", "ann", "bob", "cid"):
            clock.time += 1
            sessions.append((user, (await _begin(face, user)).headers["mcp-session-id"]))

        assert (await _begin(face, "admin")).status == 200

        statuses = [HttpClient(face).request("ping", mcp_session_id=id, x_user=user).status for user, id in sessions]
        assert statuses == [404, 0, 0, 0], "0 is not answered yet"
        assert (await _begin(face, "eve")).status == 503, "everybody has one"


async def test_the_local_user_may_have_all_sessions() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), max_sessions=3) as face:
        for _ in range(3):
            await HttpClient(face).initialize()


async def _begin(face: HttpFace, user: str) -> Reply:
    return await HttpClient(face).request("initialize", HELLO, x_user=user).ends()


async def test_modern_clients_are_shared_between_principals_like_sessions() -> None:
    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[FakeUpstream()]))
    dispatcher = ModernDispatcher(proxy)
    face = HttpFace(proxy, HttpOptions(max_sessions=4), authenticator=ByUserHeader(), dispatcher=dispatcher)
    for user, name in [("bob", "b"), *(("ann", f"a{number}") for number in range(20))]:
        message = modern("tools/list", {"_meta": {**META, CLIENT_INFO: {"name": name, "version": "1"}}})
        assert (await ModernHttpClient(face).post(message, {"x-user": user}).ends()).status == 200

    assert dispatcher.clients == 3, "the one of bob, and two of ann"

    face.close()
    await proxy.close()


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
    store.evict_older(4999.0)
    assert (len(store), store.after(1, 4998)) == (2, [b"x" * 2000] * 2)
    store.evict_older(5001.0)
    assert (len(store), budget.used) == (0, 0)


def test_of_many_small_events_the_last_thousand_are_kept() -> None:
    store = ReplayStore(ReplayBudget())
    for number in range(1, 1003):
        store.add(1, number, b"x", 0.0)

    assert store.after(1, 2) == [b"x"] * 1000
    assert store.after(1, 1) is None


def test_a_session_that_floods_loses_its_own_events_and_not_those_of_others() -> None:
    budget = ReplayBudget()
    quiet, loud = ReplayStore(budget), ReplayStore(budget)
    quiet.add(1, 1, b"a", 0.0)
    for number in range(1, 200):
        loud.add(1, number, b"x" * (1 << 20), 0.0)

    assert quiet.after(1, 0) == [b"a"]


def test_a_session_keeps_1_mb_and_all_keep_64_mb_and_who_adds_beyond_loses_its_own_oldest() -> None:
    budget, half = ReplayBudget(), b"x" * (1 << 19)
    stores = [ReplayStore(budget) for _ in range(127)]
    for store in stores:
        store.add(1, 1, half, 0.0)
    stores[0].add(1, 2, half, 0.0)
    assert (budget.used, stores[0].after(1, 0)) == (64 << 20, [half, half])

    stores[1].add(1, 2, b"y", 1.0)

    assert (stores[1].after(1, 0), stores[1].after(1, 1)) == (None, [b"y"])
    assert all(each.after(1, 0) for each in stores if each is not stores[1])
    stores[2].clear()
    assert (len(stores[2]), budget.used) == (0, (63 << 20) + 1)


# --- the end -------------------------------------------------------------------------------------------


async def test_at_the_end_calls_get_their_time_and_streams_are_told_to_come_back() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        listening, reply = client.listen(), client.call("hold")
        call = await upstream.hears("tools/call")

        finishing = asyncio.create_task(face.drain(BOUND_S))
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
            await face.drain(0.01)

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
