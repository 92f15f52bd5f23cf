"""The older transport, HTTP+SSE, and finding out which one a server speaks."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Timeouts
from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation, TimedOut, Unreachable, UpstreamError
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear
from tests.upstream.remote import WaitingEar, call, open_remote, remote, text
from tests.upstreams.odd_http import OddHttp, Request


def _first(request: Request) -> bool:
    return request.method == "POST" and request.path == "/sse"


async def test_calls_are_answered_on_the_stream() -> None:  # 47
    async with OddHttp(older="yes") as server, open_remote(remote(server.url, "sse")) as link:
        results = await asyncio.gather(*(text(link, "echo", text=f"nonce {n}") for n in range(40)))

        assert results == [f"nonce {n}" for n in range(40)]
        assert not server.matching_requests(_first)


@pytest.mark.parametrize(
    "endpoint", ["http://evil.test/messages/1", "https://127.0.0.1/m/", "//evil.test/m", "file:///m"]
)
async def test_an_endpoint_elsewhere_is_refused_and_gets_nothing(endpoint: str) -> None:  # 47
    async with OddHttp(older=endpoint) as server:
        with pytest.raises(ProtocolViolation, match="elsewhere"):
            await open_link(remote(server.url, "sse"), Ear(), ClientInfo())

        assert len(server.requests) == 1


async def test_a_stream_that_drops_ends_the_link_and_its_calls_which_may_have_run() -> None:  # 47
    ear = WaitingEar()
    async with OddHttp(older="yes") as server, open_remote(remote(server.url, "sse"), listener=ear) as link:
        with pytest.raises(LinkLost, match="closed the connection") as raised:
            await call(link, "fault", kind="drop")
        await ear.wait_for_loss()

        assert "may have run" in raised.value.hint


async def test_a_request_in_a_lost_session_was_not_executed() -> None:
    ear = WaitingEar()
    async with OddHttp(older="yes") as server, open_remote(remote(server.url, "sse"), listener=ear) as link:
        server.sessions.clear()
        with pytest.raises(NotSent, match="session"):
            await call(link, "echo", text="x")
        await ear.wait_for_loss()


@pytest.mark.parametrize(
    ("kind", "said"), [("500", "500"), ("401", "401"), ("close", "closed the connection"), ("redirect_302", "302")]
)
async def test_a_failed_post_fails_only_its_own_call(kind: str, said: str) -> None:
    async with OddHttp(older="yes") as server, open_remote(remote(server.url, "sse")) as link:
        faulty = asyncio.create_task(call(link, "fault", kind=kind))
        assert await text(link, "echo", text="x") == "x"
        with pytest.raises(UpstreamError, match=said):
            await faulty

        assert await text(link, "echo", text="y") == "y"
        assert link.loss is None


async def test_a_post_that_is_never_answered_is_ended_by_the_timeout() -> None:
    async with OddHttp(older="yes") as server, open_remote(remote(server.url, "sse")) as link:
        with pytest.raises(TimedOut):
            await call(link, "fault", kind="slow_headers", timeout_s=0.1)

        assert await text(link, "echo", text="y") == "y"


async def test_a_server_that_names_no_endpoint_is_given_up() -> None:
    timeouts = Timeouts(connect_s=0.1, tools_s=1, resources_s=1, prompts_s=1)
    async with OddHttp(older="never") as server:
        with pytest.raises(TimedOut, match="sent no endpoint"):
            await open_link(remote(server.url, "sse", timeouts=timeouts), Ear(), ClientInfo())


async def test_a_server_without_an_event_stream_says_so() -> None:
    async with OddHttp() as server:
        with pytest.raises(HttpError, match="405"):
            await open_link(remote(server.url, "sse"), Ear(), ClientInfo())


# --- which one is it? ----------------------------------------------------------------------------------------


async def test_a_server_with_the_older_transport_is_detected_and_remembered() -> None:
    async with OddHttp(older="yes") as server:
        for _ in range(3):
            async with open_remote(remote(server.url, None)) as link:
                assert await text(link, "echo", text="x") == "x"

        first = [request.message["method"] for request in server.matching_requests(_first)]
        assert first == ["initialize", "server/discover"]


async def test_a_server_that_switches_to_the_newer_transport_is_detected() -> None:
    async with OddHttp(older="yes") as server:
        url = server.url
        async with open_remote(remote(url, None)):
            pass
        server.odd.older = ""
        async with open_remote(remote(url, None)) as link:
            assert await text(link, "echo", text="x") == "x"


@pytest.mark.parametrize("status", ["400", "404"])
async def test_a_server_without_either_transport_is_quoted_with_its_first_answer(status: str) -> None:
    async with OddHttp(on_initialize=status) as server:
        with pytest.raises(HttpError, match=status):
            await open_link(remote(server.url, None), Ear(), ClientInfo())

        assert [request.method for request in server.requests] == ["POST", "POST", "GET"]


@pytest.mark.parametrize("kind", ["401", "500", "html", "close"])
async def test_only_some_statuses_lead_to_the_older_transport(kind: str) -> None:
    async with OddHttp(on_initialize=kind) as server:
        with pytest.raises(UpstreamError):
            await open_link(remote(server.url, None), Ear(), ClientInfo())

        assert [request.method for request in server.requests] == ["POST"]


async def test_an_unusable_url_is_final() -> None:
    with pytest.raises(Unreachable) as raised:
        await open_link(remote("http://[::1%25]:x/"), Ear(), ClientInfo())

    assert raised.value.final
