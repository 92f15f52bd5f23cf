"""A modern request is answered on its own connection: as JSON, or as a stream that belongs to it alone."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.limits import FLOOD_BYTES, UNREAD_BYTES
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import ModernChannel
from dynamic_mcp.session.client_connection import ClientOrigin
from tests.face.http.modern_parties import (
    LISTEN,
    FakeDispatcher,
    FakeModernCall,
    ModernHttpClient,
    call_of,
    modern,
    opener,
)
from tests.face.http.parties import HttpClient, face_of
from tests.fakes import FakeClock, Json


async def test_an_answer_is_json_when_nothing_has_to_be_said_before_it() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(call_of("echo", id="x"))
        assert not reply.status
        dispatcher.call.answer({"content": []})

        assert (reply.status, reply.headers) == (200, {"content-type": "application/json"})
        assert reply.json == {"jsonrpc": "2.0", "id": "x", "result": {"content": []}}
        assert reply.has_ended


async def test_what_comes_before_an_answer_makes_it_a_stream_without_ids() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(call_of("echo"))
        dispatcher.call.say("notifications/progress", {"progress": 1})
        assert len(reply.messages) == 1
        dispatcher.call.answer({"content": []})

        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.headers["x-accel-buffering"] == "no"
        assert [each.get("method") for each in reply.messages] == ["notifications/progress", None]
        assert (reply.ids, b"retry" in reply.body, reply.has_ended) == ([], False, True)


async def test_an_answer_that_takes_its_time_becomes_a_stream_that_is_kept_alive() -> None:
    clock, dispatcher = FakeClock(), FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher, now=clock.now) as face:
        reply = ModernHttpClient(face).post(call_of("echo"))
        clock.time += 4
        face.tick()
        assert not reply.status
        clock.time += 1
        face.tick()
        assert (reply.status, reply.messages) == (200, [])
        for _ in range(3):
            clock.time += 15
            face.tick()
        face.tick()
        dispatcher.call.fail(-32601)

        assert reply.body.count(b": alive\n\n") == 4
        assert [each["error"]["code"] for each in reply.messages] == [-32601]
        assert dispatcher.ticks == 6


async def test_who_listens_gets_a_stream_at_once_and_hears_on_it_until_the_end() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(modern(LISTEN, {"notifications": {}}))
        assert (reply.status, reply.headers["content-type"], reply.messages) == (200, "text/event-stream", [])
        dispatcher.call.say("notifications/tools/list_changed")
        await face.drain(0)

        assert [each.get("method") or each["result"] for each in reply.messages] == [
            "notifications/tools/list_changed",
            {"ended": True},
        ]
        assert reply.has_ended


@pytest.mark.parametrize(
    ("code", "refused", "failed"),
    [
        (-32700, 400, 400),
        (-32600, 400, 400),
        (-32020, 400, 400),
        (-32021, 400, 400),
        (-32022, 400, 400),
        (-32601, 404, 404),
        (-32602, 400, 200),  # an envelope is invalid before anything ran; a resource is unknown after
        (-32603, 503, 200),  # more than may be in flight; what went wrong later
        (-32001, 200, 200),
        (1, 200, 200),
    ],
)
async def test_an_error_that_is_json_has_the_status_of_its_code(code: int, refused: int, failed: int) -> None:
    dispatcher = FakeDispatcher(refuses_with=code)
    async with face_of(opener(), dispatcher=dispatcher) as face:
        client = ModernHttpClient(face)
        at_once = client.post(call_of("echo"))
        dispatcher.refuses_with = 0
        later = client.post(call_of("echo"))
        dispatcher.call.fail(code)

        assert (at_once.status, later.status) == (refused, failed)
        assert ("retry-after" in at_once.headers) == (refused == 503)
        assert at_once.json["id"] == later.json["id"] == 1


# --- the client closes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spoken", [0, 1])
async def test_a_client_that_closes_cancels_its_request_and_gets_nothing_more(spoken: int) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(call_of("echo"))
        for _ in range(spoken):
            dispatcher.call.say("notifications/progress")
        before = reply.body
        reply.cut()
        dispatcher.call.say("notifications/progress")
        dispatcher.call.answer()
        face.tick()

        assert len(dispatcher.call.reasons) == 1
        assert (reply.body, bool(reply.status)) == (before, bool(spoken))


async def test_a_client_that_closes_before_its_body_has_come_begins_nothing() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).begin(call_of("echo"))
        reply.cut()
        assert dispatcher.calls == []


async def test_a_client_that_closes_after_its_answer_cancels_nothing() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        replies = [ModernHttpClient(face).post(call_of("echo")) for _ in range(2)]
        dispatcher.calls[1].say("notifications/progress")
        for call, reply in zip(dispatcher.calls, replies, strict=True):
            call.answer()
            reply.cut()
        assert [call.reasons for call in dispatcher.calls] == [[], []]


async def test_a_request_that_is_answered_while_it_begins_is_over() -> None:
    dispatcher = FakeDispatcher(answers_at_once=True)
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(modern(LISTEN))
        assert (reply.headers["content-type"], reply.has_ended) == ("application/json", True)
        assert ready(face)["modern_requests"] == 0


# --- a client that does not read -----------------------------------------------------------------------


async def test_progress_and_logs_are_dropped_for_a_client_that_is_flooded_and_its_answer_is_not() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(call_of("echo"))
        dispatcher.call.say("notifications/progress")
        reply.unread = FLOOD_BYTES + 1
        for method in ("notifications/progress", "notifications/message", "notifications/tools/list_changed"):
            dispatcher.call.say(method)
        dispatcher.call.answer()

        heard = [each.get("method") for each in reply.messages]
        assert heard == ["notifications/progress", "notifications/tools/list_changed", None]


@pytest.mark.parametrize("is_answer", [False, True])
async def test_a_client_that_does_not_read_loses_its_connection_and_its_request_is_cancelled(is_answer: bool) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(modern(LISTEN))
        reply.unread = UNREAD_BYTES + 1
        if is_answer:
            dispatcher.call.answer()
        else:
            dispatcher.call.say("notifications/tools/list_changed")
            dispatcher.call.answer()

        assert (reply.is_aborted, reply.messages) == (True, [])
        assert len(dispatcher.call.reasons) == 1
        assert ready(face)["modern_requests"] == 0


class _Talkative(FakeDispatcher):
    """Says something while a request begins."""

    def begin(
        self, frame: Frame, channel: ModernChannel, origin: ClientOrigin, members: RequestMembers | None = None
    ) -> FakeModernCall | None:
        call = super().begin(frame, channel, origin, members)
        for _ in range(2):
            self.call.say("notifications/tools/list_changed")
        return call


async def test_a_request_of_a_client_that_does_not_read_is_cancelled_even_while_it_begins() -> None:
    dispatcher = _Talkative()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        message = modern(LISTEN)
        reply = ModernHttpClient(face).begin(message)
        reply.unread = UNREAD_BYTES + 1
        assert reply.receiver is not None
        reply.receiver.receive_body(json.dumps(message).encode())

        assert (reply.is_aborted, len(dispatcher.call.reasons)) == (True, 1)


# --- how much, and the end -----------------------------------------------------------------------------


def ready(face: HttpFace) -> Json:
    return HttpClient(face).send("GET", "/ready").json


async def test_how_it_serves_counts_modern_clients_and_their_requests() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        for _ in range(3):
            ModernHttpClient(face).post(call_of("echo"))
        counts = ready(face)
        assert (counts["sessions"], counts["modern_clients"], counts["modern_requests"]) == (0, 1, 3)
        dispatcher.call.answer()
        assert ready(face)["modern_requests"] == 2


async def test_the_bound_on_requests_in_flight_is_that_of_the_config() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher, max_in_flight=7) as face:
        assert dispatcher.max_in_flight == 7
        face.configure(HttpOptions(max_in_flight=9))
        assert dispatcher.max_in_flight == 9


async def test_a_server_that_is_about_to_end_takes_no_requests_and_says_that_it_may_be_tried_again() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        client = ModernHttpClient(face)
        held = client.post(call_of("echo"))
        await face.drain(0)
        refused = client.post(call_of("echo", id="late"))

        assert held.json["error"]["code"] == -32603
        assert (refused.status, refused.json["id"], "retry-after" in refused.headers) == (503, "late", True)
        assert client.post({"jsonrpc": "2.0", "method": "notifications/x"}).status == 202
        assert len(dispatcher.calls) == 1


async def test_what_is_left_when_the_server_ends_is_told_so_or_cut() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        waiting = ModernHttpClient(face).post(call_of("echo"))
        streaming = ModernHttpClient(face).post(modern(LISTEN))
        face.close()

        assert dispatcher.is_closed
        assert (waiting.status, waiting.json["id"]) == (503, 1)
        assert streaming.is_aborted


async def test_a_thousand_that_listen_cost_nothing_once_they_have_gone() -> None:
    clock, dispatcher = FakeClock(), FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher, now=clock.now) as face:
        replies = [ModernHttpClient(face).post(modern(LISTEN, id=n)) for n in range(1000)]
        clock.time += 15
        face.tick()
        assert all(reply.body.count(b": alive\n\n") == 2 for reply in replies)
        for reply in replies[::2]:
            reply.cut()
        assert ready(face)["modern_requests"] == 500
        await face.drain(0)

        assert ready(face)["modern_requests"] == 0
        assert all(len(call.reasons) == 1 for call in dispatcher.calls[::2])
        assert all(reply.messages[0]["result"] == {"ended": True} for reply in replies[1::2])
