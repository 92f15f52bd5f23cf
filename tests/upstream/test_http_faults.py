"""What a server over HTTP does wrong with one request: it costs that request, in plain words, and nothing else.

The numbers are those of the kinds of faults that tests/upstreams/odd_http_faults.py groups.
"""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation, TimedOut, UpstreamError
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear
from tests.upstream.remote import call, open_remote, remote, text
from tests.upstreams.odd_http import OddHttp
from tests.upstreams.odd_http_faults import SECRET


async def fails(server: OddHttp, kind: str, *, timeout_s: float = 5) -> UpstreamError:
    """Make a call that fails so, beside others that do not, and return why."""
    headers = {"X-Api-Key": SECRET}
    async with open_remote(remote(server.url, headers=headers, max_message_bytes=1 << 20)) as link:
        faulty = asyncio.create_task(call(link, "fault", kind=kind, timeout_s=timeout_s))
        for n in range(5):
            assert await text(link, "echo", text=f"nonce {n}") == f"nonce {n}"
        with pytest.raises(UpstreamError) as raised:
            await faulty
        assert await text(link, "echo", text="after") == "after"
        assert link.loss is None
    assert SECRET not in str(raised.value)
    assert raised.value.reason.isprintable()
    assert "far" in str(raised.value)
    return raised.value


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("redirect_same", "/hop/3"),  # 43
        ("429", "fine"),  # 39
        ("503", "fine"),
        ("gzip", "fine"),  # 44
        ("indented", "fine"),
        ("drop_resumable", "resumed"),  # 45
        ("never_ends", "fine"),
        ("crlf", "fine"),
        ("cr", "fine"),
        ("many_lines", "fine"),
        ("no_blank", "fine"),
        ("other_events", "fine"),
        ("flood", "fine"),
    ],
)
async def test_an_unusual_but_valid_answer_arrives(kind: str, said: str) -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        assert await text(link, "fault", kind=kind) == said
        assert await text(link, "echo", text="after") == "after"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("401", "401 Unauthorized: invalid_token"),  # 36
        ("403", "403 Forbidden"),  # 37
        ("429_bare", "429 Too Many Requests: slow down"),  # 39
        ("500", "500 Internal Server Error: <html>"),  # 40
        ("400", "400 Bad Request: what?"),
        ("redirect_cross", "a redirect to `http://localhost:1/mcp`, which is not followed"),  # 43
        ("redirect_meta", "a redirect to `http://169.254.169.254/latest/meta-data`, which is not followed"),
        ("redirect_loop", "a redirect to `/mcp`"),
        ("redirect_302", "a redirect to `/elsewhere`"),
        ("redirect_bare", "a redirect to ``"),
    ],
)
async def test_an_error_status_fails_its_call(kind: str, said: str) -> None:
    async with OddHttp() as server:
        error = await fails(server, kind)

        assert isinstance(error, HttpError)
        assert said in error.reason


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("html", "sent `text/html`, which is not an MCP message: <html>"),  # 44
        ("no_type", "sent `no content type`, which is not an MCP message: hello"),
        ("gzip_bomb", "over `max_message_bytes`"),
        ("not_gzip", "cannot be decoded"),
        ("big_body", "over `max_message_bytes`"),
        ("bad_json", "sent JSON that does not answer the request"),
        ("bad_utf8", "sent JSON that does not answer the request"),
        ("wrong_id", "sent JSON that does not answer the request"),
        ("empty", "sent an empty answer"),
        ("accepted", "answered 202 with an empty body"),
        ("no_content", "answered 204 with an empty body"),
    ],
)
async def test_content_that_does_not_answer_fails_its_call(kind: str, said: str) -> None:
    async with OddHttp() as server:
        error = await fails(server, kind)

        assert isinstance(error, ProtocolViolation)
        assert said in error.reason


@pytest.mark.parametrize(
    "kind",
    ["reset", "close", "truncated", "bad_chunk", "not_http", "drop", "ends_early", "half_event"],  # 41, 45
)
async def test_a_connection_that_breaks_fails_its_call_which_may_have_run(kind: str) -> None:
    async with OddHttp() as server:
        error = await fails(server, kind)

        assert isinstance(error, LinkLost)
        assert not isinstance(error, NotSent)
        assert "may have run" in error.hint
        assert len(server.matching_requests(lambda request: request.body != b"" and request.kind == kind)) == 1


@pytest.mark.parametrize("kind", ["slow_headers", "slow_body", "comments"])  # 42
async def test_a_server_that_never_stops_sending_is_cut_off_by_the_timeout(kind: str) -> None:
    async with OddHttp() as server:
        assert isinstance(await fails(server, kind, timeout_s=0.3), TimedOut)


async def test_an_event_over_the_bound_fails_the_call_that_it_answers() -> None:  # 45
    async with OddHttp() as server:
        assert "over `max_message_bytes`" in (await fails(server, "big_event")).reason


async def test_a_json_rpc_error_with_an_error_status_arrives_unchanged() -> None:
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        answer = await call(link, "fault", kind="rpc_error_400")

        assert answer["error"] == {"code": -32099, "message": "not like this", "data": {"x": 1}}


async def test_a_call_without_the_time_that_a_busy_server_asks_for_fails_at_once_and_is_not_sent_again() -> (
    None
):  # 39
    async with OddHttp() as server, open_remote(remote(server.url)) as link:
        with pytest.raises(HttpError, match="429"):
            await call(link, "fault", kind="429_long")
        with pytest.raises(HttpError, match="asks to wait 3"):
            await call(link, "echo", text="x")

        assert len(server.matching_requests(lambda request: b"tools/call" in request.body)) == 1


async def test_a_missing_scope_is_named() -> None:  # 37
    async with OddHttp() as server:
        assert "`files:write`" in (await fails(server, "403")).hint


async def test_a_quoted_page_is_short_and_shows_no_control_characters() -> None:  # 40
    async with OddHttp() as server:
        reason = (await fails(server, "500")).reason

        assert len(reason.partition("Error: ")[2]) <= 200
        assert "***" in reason
        assert "\x1b" not in reason


async def test_a_redirect_that_is_not_followed_gets_no_credentials() -> None:  # 43
    async with OddHttp() as other, OddHttp(redirect=f"http://127.0.0.1:{other.port}/mcp") as server:
        with pytest.raises(HttpError, match="redirect"):
            await open_link(remote(server.url, headers={"Authorization": f"Bearer {SECRET}"}), Ear(), ClientInfo())

        assert not other.requests


async def test_a_redirect_within_the_origin_keeps_method_body_and_credentials() -> None:  # 43
    headers = {"Authorization": "Bearer t"}
    async with (
        OddHttp(redirect="/moved", wants="Bearer t") as server,
        open_remote(remote(server.url, headers=headers)) as link,
    ):
        assert await text(link, "echo", text="x") == "x"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("401", "401"),
        ("403", "403"),
        ("404", "404"),
        ("500", "500"),
        ("html", "text/html"),
        ("close", "closed the connection"),
        ("redirect_302", "redirect"),
        ("empty", "sent an empty answer"),
    ],
)
async def test_a_server_that_fails_the_handshake_is_named_with_the_reason(kind: str, said: str) -> None:
    async with OddHttp(on_initialize=kind) as server:
        with pytest.raises(UpstreamError, match=said) as raised:
            await open_link(remote(server.url), Ear(), ClientInfo())

        assert f"127.0.0.1:{server.port}" in raised.value.reason
        assert raised.value.hint


async def test_a_handshake_that_is_asked_to_wait_waits() -> None:  # 39
    async with OddHttp(on_initialize="503") as server, open_remote(remote(server.url)):
        assert len(server.matching_requests(lambda request: b'"initialize"' in request.body)) == 2
