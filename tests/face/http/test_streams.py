"""Streams: no message on two of them, and nothing is lost when a connection is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dynamic_mcp.face.http.core import HttpFace
from tests.face.http.parties import EVERYTHING, HttpClient, Reply, face_of
from tests.fakes import FakeClock, FakeUpstream, FullUpstream, Opener, settled


class Held:
    """A call whose answer a test gives when it wants, and what the upstream says before it."""

    def __init__(self, upstream: FakeUpstream) -> None:
        self.upstream = upstream

    async def begin(self, client: HttpClient, **options: Any) -> Reply:
        reply = client.call("hold", **options)
        await self.upstream.hears("tools/call")
        return reply

    def progress(self, n: int) -> None:
        token = self.upstream.heard("tools/call")[-1]["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": n}
        self.upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def answer(self) -> None:
        call = self.upstream.heard("tools/call")[-1]
        self.upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": [], "n": 1}})


def _steps(reply: Reply) -> list[int]:
    return [each["params"]["progress"] for each in reply.messages if "method" in each]


async def _client(face: HttpFace, version: str = "2025-11-25") -> HttpClient:
    client = HttpClient(face)
    await client.initialize(version=version)
    return client


async def test_a_stream_goes_on_after_the_last_event_that_the_client_has_seen() -> None:
    held = Held(FakeUpstream(tools=["hold"]))
    async with face_of(Opener(up=[held.upstream])) as face:
        client = await _client(face)
        first = await held.begin(client, token="t")
        for n in (1, 2, 3):
            held.progress(n)
        await first.hears(3)
        first.cut()
        held.progress(4)
        await settled()

        second = client.listen(after=first.ids[-2])  # of the second: the third did not arrive
        held.progress(5)
        held.answer()
        await second.ends()

        assert _steps(second) == [3, 4, 5]
        assert second.messages[-1]["result"]["n"] == 1


async def test_an_answer_that_came_while_nobody_was_connected_is_given_to_who_comes_back() -> None:
    held = Held(FakeUpstream(tools=["hold"]))
    async with face_of(Opener(up=[held.upstream])) as face:
        client = await _client(face)
        first = await held.begin(client, token="t", id="a")
        held.progress(1)
        await first.hears(1)
        first.cut()
        held.answer()
        await settled()

        second = await client.listen(after=first.ids[-1]).ends()
        third = await client.listen(after=second.ids[-1]).ends()
        fourth = await client.listen(after=third.ids[-1]).ends()

        assert [each["id"] for each in second.messages] == ["a"]
        assert third.messages == fourth.messages == []


async def test_a_stream_that_is_resumed_while_it_is_open_goes_on_in_one_place_only() -> None:
    held = Held(FakeUpstream(tools=["hold"]))
    async with face_of(Opener(up=[held.upstream])) as face:
        client = await _client(face)
        first = await held.begin(client, token="t")
        held.progress(1)
        await first.hears(1)

        second = client.listen(after=first.ids[-1])
        held.progress(2)
        held.answer()
        await second.ends()

        assert first.has_ended
        assert (_steps(first), _steps(second)) == ([1], [2])


async def test_a_connection_that_is_not_read_is_not_kept_beside_the_next_one() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        held = Held(upstream)
        client = await _client(face)
        first = await held.begin(client, token=1)
        held.progress(1)
        await first.hears(1)
        first.unread = 1000

        second = client.listen(after=first.ids[0])
        held.answer()

        assert first.is_aborted
        assert len((await second.ends()).messages) == 2


async def test_a_resumed_stream_gets_nothing_of_another() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = await _client(face)
        listening = client.listen()
        one = await client.call("progress", {"steps": 1}, token="one").ends()
        await client.call("progress", {"steps": 2}, token="two").ends()
        listening.cut()

        again = await client.listen(after=one.ids[0]).ends()

        assert [each.get("params", {}).get("progressToken") for each in again.messages] in (["one", None], [None])


@pytest.mark.parametrize("id", ["1-99", "9-1", "x", "-1", "1", "1-1-1", "99999999999999999999-1"])
async def test_an_event_that_is_not_known_any_more_is_said_to_be(id: str) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = await _client(face)
        client.listen()

        assert client.listen(after=id).status == 400


async def test_what_happens_before_the_client_listens_waits_for_it() -> None:
    upstream = FullUpstream()
    async with face_of(Opener(up=[upstream])) as face:
        client = await _client(face)
        await client.request("prompts/list").ends()
        upstream.server.added["prompts"].append(b'{"name":"new"}')
        for _ in range(3):
            upstream.say({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"})
            await upstream.hears("prompts/list", times=2)
        await settled()

        listening = client.listen()

        await listening.hears_of("notifications/prompts/list_changed")
        heard = [each["method"] for each in listening.messages]
        assert len(heard) == len(set(heard))


@pytest.mark.parametrize("listens", [True, False])
async def test_what_may_be_about_any_of_several_calls_comes_on_the_stream_for_everything_else(listens: bool) -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize(EVERYTHING)
        listening = client.listen() if listens else None
        calls = [client.call("hold"), client.call("hold")]
        await upstream.hears("tools/call", times=2)

        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
        upstream.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})

        expected = listening or calls[-1]  # a client that does not listen gets it where it can
        question = await expected.hears_of("sampling/createMessage")
        assert await expected.hears_of("notifications/message")
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant"}})
        assert (await upstream.hears("an answer"))["result"] == {"role": "assistant"}
        for request in upstream.heard("tools/call"):
            upstream.say({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}})
        for call in calls:
            await call.ends()
            assert call is expected or "method" not in call.json


async def test_of_two_streams_for_everything_else_the_later_one_gets_it() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = await _client(face)
        await client.request("prompts/list").ends()
        earlier, later = client.listen(), client.listen()
        waited_for_the_first = earlier.messages

        await client.call("add", {"list": "prompts", "entry": {"name": "new"}}).ends()

        assert await later.hears_of("notifications/prompts/list_changed")
        assert (earlier.has_ended, earlier.messages) == (True, waited_for_the_first)


@pytest.mark.parametrize(("version", "is_primed"), [("2025-11-25", True), ("2025-06-18", False)])
async def test_a_client_of_a_revision_that_polls_is_told_where_to_come_back_at_once(
    version: str, is_primed: bool
) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = await _client(face, version)

        listening = client.listen()

        assert (listening.is_stream, listening.headers["content-type"]) == (True, "text/event-stream")
        assert listening.body.startswith(b"id: ") is is_primed
        assert (b"\nretry: " in listening.body) is is_primed
        assert listening.messages == []


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
async def test_a_stream_begins_with_bytes_without_which_a_reverse_proxy_may_hold_its_head_back(version: str) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = await _client(face, version)
        assert client.listen().body


async def test_a_slow_answer_becomes_a_stream_that_is_kept_alive() -> None:
    held, clock = Held(FakeUpstream(tools=["hold"])), FakeClock()
    async with face_of(Opener(up=[held.upstream]), now=clock.now) as face:
        client = await _client(face)
        reply = await held.begin(client)
        face.tick()
        assert reply.status == 0

        clock.time += 6
        face.tick()
        assert reply.headers["content-type"] == "text/event-stream"
        before = len(reply.body)
        clock.time += 20
        face.tick()
        assert len(reply.body) > before
        held.answer()

        assert [each["result"]["n"] for each in (await reply.ends()).messages] == [1]


async def test_a_stream_that_lasts_long_ends_and_goes_on_for_a_client_that_polls() -> None:
    held, clock = Held(FakeUpstream(tools=["hold"])), FakeClock()
    async with face_of(Opener(up=[held.upstream]), now=clock.now) as face:
        client = await _client(face)
        reply = await held.begin(client)
        clock.time += 6
        face.tick()

        clock.time += 3600
        face.tick()
        held.answer()
        await settled()

        assert (reply.has_ended, reply.messages) == (True, [])
        again = await client.listen(after=reply.ids[-1]).ends()
        assert [each["result"]["n"] for each in again.messages] == [1]


async def test_a_long_stream_of_a_client_that_does_not_poll_stays_open() -> None:
    held, clock = Held(FakeUpstream(tools=["hold"])), FakeClock()
    async with face_of(Opener(up=[held.upstream]), now=clock.now) as face:
        client = await _client(face, "2025-06-18")
        reply, listening = await held.begin(client), client.listen()
        clock.time += 6
        face.tick()
        clock.time += 3600
        face.tick()

        assert not reply.has_ended
        assert not listening.has_ended


async def test_a_client_that_does_not_read_is_left_and_finds_what_it_missed() -> None:
    held = Held(FakeUpstream(tools=["hold"]))
    async with face_of(Opener(up=[held.upstream])) as face:
        client = await _client(face)
        reply = await held.begin(client, token="t")
        held.progress(1)
        await reply.hears(1)

        seen = reply.ids[-1]
        reply.unread = 1 << 30
        held.progress(2)  # may be missed
        held.answer()
        await settled()

        assert reply.is_aborted
        again = await client.listen(after=seen).ends()
        assert [each["result"]["n"] for each in again.messages] == [1]


async def test_one_message_may_be_longer_than_what_a_client_may_leave_unread() -> None:
    text = "x" * (8 << 20)
    held = Held(FakeUpstream(tools=["hold"]))
    async with face_of(Opener(up=[held.upstream])) as face:
        client = await _client(face)
        reply = await held.begin(client, token="t")
        held.progress(1)
        await reply.hears(1)

        reply.reads_nothing = True
        call = held.upstream.heard("tools/call")[-1]
        held.upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": [], "text": text}})

        assert (await reply.ends()).messages[-1]["result"]["text"] == text
        assert not reply.is_aborted


async def test_a_question_that_nobody_has_read_yet_is_asked_again_on_the_resumed_stream() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize(EVERYTHING)
        first = client.call("ask", {"method": "roots/list", "params": {}})
        await first.hears_of("roots/list")
        first.cut()

        second = client.listen(after=first.ids[0])
        [question] = await second.hears(1)
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///a"}]}})

        assert "file:///a" in json.dumps((await second.ends()).messages[-1])


async def test_what_a_task_does_after_its_call_was_answered_goes_to_the_client_that_listens() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = await _client(face)
        listening = client.listen()
        arguments = {"group": "up", "name": "plain"}
        params = {"name": "call_dynamic_tool", "arguments": arguments, "task": {}, "_meta": {"progressToken": "p"}}
        created = (await client.request("tools/call", params).ends()).json

        task = created["result"]["task"]["taskId"]
        await client.call("step_task", {"task": task, "step": 1}).ends()

        assert (await listening.hears_of("notifications/progress"))["params"]["progressToken"] == "p"
