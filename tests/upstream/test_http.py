"""Streamable HTTP with a correct server: sessions, headers, both kinds of answers, and who gets a request."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import Any

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation, TimedOut
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear, FakeCaller
from tests.fakes import frame
from tests.program import BOUND_S
from tests.upstream.remote import WaitingEar, call, open_remote, remote, text
from tests.upstreams.odd_http import OddHttp, Request, message_event


def _posts(server: OddHttp) -> list[Request]:
    return server.matching_requests(lambda request: request.method == "POST")


def _gets(server: OddHttp) -> list[Request]:
    return server.matching_requests(lambda request: request.method == "GET")


@pytest.mark.parametrize("answers", ["json", "events"])
async def test_calls_are_answered_by_json_and_by_event_streams(answers: str) -> None:
    async with OddHttp(answers=answers) as server, open_remote(remote(server.url)) as link:
        results = await asyncio.gather(*(text(link, "echo", text=f"nonce {n}") for n in range(40)))

        assert results == [f"nonce {n}" for n in range(40)]


async def test_requests_carry_the_session_and_the_version_once_they_are_known() -> None:
    headers = {"X-Team": "a", "Accept": "text/html", "MCP-Session-Id": "mine"}
    async with OddHttp() as server, open_remote(remote(server.url, headers=headers)) as link:
        await text(link, "echo", text="x")

        hello, initialized, called = _posts(server)
        assert "mcp-session-id" not in hello.headers
        assert "mcp-protocol-version" not in hello.headers
        for request in (initialized, called):
            assert request.headers["mcp-session-id"].startswith("session-")
            assert request.headers["mcp-protocol-version"] == "2025-11-25"
        for request in (hello, called):
            assert request.headers["accept"] == "application/json, text/event-stream"
            assert request.headers["content-type"] == "application/json"
            assert request.headers["x-team"] == "a"


async def test_a_server_without_sessions_is_fine() -> None:
    async with OddHttp(has_sessions=False) as server:
        async with open_remote(remote(server.url)) as link:
            assert await text(link, "echo", text="x") == "x"

        assert all("mcp-session-id" not in request.headers for request in server.requests)
        assert not server.matching_requests(lambda request: request.method == "DELETE")


async def test_a_server_is_reached_where_the_system_refuses_to_be_told_when_to_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(socket.socket):
        def setsockopt(self, level: int, option: int, value: Any, *length: int) -> None:  # Any: what sockets take
            if level == socket.IPPROTO_TCP and option != socket.TCP_NODELAY:
                raise OSError(errno.ENOPROTOOPT, "no such option")
            super().setsockopt(level, option, value, *length)

    async with OddHttp() as server:
        monkeypatch.setattr(socket, "socket", Refusing)
        async with open_remote(remote(server.url)) as link:
            assert await text(link, "echo", text="x") == "x"


async def test_a_remote_server_is_no_process_of_ours() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        assert link.pid is None


async def test_the_session_is_deleted_when_the_link_closes() -> None:
    async with OddHttp() as server:
        async with open_remote(remote(server.url)):
            session = next(iter(server.sessions))

        deleted = server.matching_requests(lambda request: request.method == "DELETE")
        assert [request.headers["mcp-session-id"] for request in deleted] == [session]
        assert not server.sessions


@pytest.mark.parametrize("session", ["two words", "caf\u00e9", "tab\tbed", "x" * 5000])
async def test_a_session_id_that_is_not_visible_ascii_is_never_sent_back(session: str) -> None:  # U13
    async with OddHttp(session=session) as server:
        with pytest.raises(ProtocolViolation, match="session id"):
            await open_link(remote(server.url), Ear(), ClientInfo())

        assert len(server.requests) == 1


async def test_no_request_is_sent_before_the_server_has_accepted_initialized() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        await text(link, "echo", text="x")

        assert [r.message["method"] for r in _posts(server)] == [
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]


async def test_a_level_that_is_set_is_set_before_the_next_request() -> None:
    async with OddHttp(answers="events") as server, open_remote(remote(server.url)) as link:
        level = asyncio.create_task(link.request("logging/setLevel", timeout_s=BOUND_S))
        call_after = asyncio.create_task(text(link, "echo", text="x"))
        await server.wait_for_message("logging/setLevel")
        assert [r.message["method"] for r in _posts(server)][2:] == ["logging/setLevel"]
        server.release("level")
        await asyncio.gather(level, call_after)


async def test_notifications_arrive_in_the_order_in_which_they_were_sent() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        for n in range(30):
            link.notify(f"notifications/{n}")
        await server.wait_for_message("notifications/29")

        assert [r.message["method"] for r in _posts(server)][2:] == [f"notifications/{n}" for n in range(30)]


async def test_a_request_of_the_server_goes_to_the_caller_in_whose_stream_it_came() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        callers = [FakeCaller() for _ in range(3)]
        calls = [
            asyncio.create_task(call(link, "fault", kind="asks", text=f"{n}", caller=callers[n])) for n in range(3)
        ]
        for n, caller in enumerate(callers):
            caller.answer.set_result(frame(result=b'{"action":"accept","content":{"n":%d}}' % n))
        results = [(await each)["content"][0]["text"] for each in calls]

        assert [bytes(caller.asked[0].params) for caller in callers] == [b'{"message": "%d"}' % n for n in range(3)]
        assert [json.loads(result)["content"]["n"] for result in results] == [0, 1, 2]


async def test_a_cancelled_call_is_cancelled_at_the_server_while_its_stream_is_open() -> None:
    async with OddHttp(answers="events") as server, open_remote(remote(server.url)) as link:
        held = asyncio.create_task(call(link, "hold", key="k"))
        asked = await server.wait_for_message("tools/call")
        held.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await held
        cancelled = await server.wait_for_message("notifications/cancelled")

        assert cancelled.message["params"] == {"requestId": asked.message["id"], "reason": "enough"}
        assert await text(link, "echo", text="x") == "x"


async def test_a_timeout_ends_a_call_and_the_server_is_told() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        with pytest.raises(TimedOut):
            await call(link, "hold", key="k", timeout_s=0.05)
        await server.wait_for_message("notifications/cancelled")

        assert await text(link, "echo", text="x") == "x"


async def test_a_notification_that_the_server_rejects_affects_nothing_else() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        server.sessions, known = {}, server.sessions
        server.odd.forgets = ["500"]
        link.notify("notifications/roots/list_changed")
        await server.wait_for_message("notifications/roots/list_changed")
        server.sessions = known

        assert await text(link, "echo", text="x") == "x"


# --- a lost session (row 38) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["no_session", "no_session_400"])
async def test_requests_in_a_lost_session_were_certainly_not_executed(how: str) -> None:
    async with OddHttp(forgets=[how]) as server:
        ear = WaitingEar()
        async with open_remote(remote(server.url), listener=ear) as link:
            server.sessions.clear()
            calls = [asyncio.create_task(call(link, "echo", text="x")) for _ in range(8)]
            results = await asyncio.gather(*calls, return_exceptions=True)

            assert {type(result) for result in results} == {NotSent}
            await ear.wait_for_loss()
            assert not server.matching_requests(lambda request: request.method == "DELETE")


async def test_a_404_without_a_session_is_just_an_error() -> None:
    async with OddHttp(has_sessions=False) as server, open_remote(remote(server.url)) as link:
        with pytest.raises(HttpError, match="404"):
            await call(link, "fault", kind="404")

        assert link.loss is None
        assert await text(link, "echo", text="x") == "x"


# --- the stream for notifications (row 46) --------------------------------------------------------------------------


async def test_notifications_that_belong_to_no_request_arrive() -> None:
    ear = WaitingEar()
    async with OddHttp(get="events") as server, open_remote(remote(server.url), listener=ear):
        await server.wait_for_request(lambda request: request.method == "GET")
        queue = next(iter(server.sessions.values()))
        queue.put_nowait(message_event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        await ear.wait_for_frame()

        assert ear.frames[0].method == "notifications/tools/list_changed"


@pytest.mark.parametrize("status", ["405", "404", "400", "501"])
async def test_a_server_without_a_stream_is_not_asked_for_it_again(status: str) -> None:
    async with OddHttp(get=status) as server, open_remote(remote(server.url)) as link:
        await server.wait_for_request(lambda request: request.method == "GET")
        for n in range(20):
            assert await text(link, "echo", text=str(n)) == str(n)

        assert len(_gets(server)) == 1
        assert link.loss is None


async def test_a_stream_that_ends_at_once_is_reopened_only_after_a_delay() -> None:
    async with OddHttp(get="storm") as server, open_remote(remote(server.url)) as link:
        for n in range(100):
            assert await text(link, "echo", text=str(n)) == str(n)

        assert len(_gets(server)) <= 2


async def test_a_server_that_has_stopped_ends_the_link() -> None:  # row 41
    ear = WaitingEar()
    async with OddHttp() as server, open_remote(remote(server.url), listener=ear) as link:
        await server.stop()
        with pytest.raises(NotSent, match="refuses connections"):
            await call(link, "echo", text="x")
        await ear.wait_for_loss()

        assert isinstance(ear.losses[0], LinkLost)
