"""How a server over HTTP shows its era, and what it answers whatever that is."""

from __future__ import annotations

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import LoginNeeded, UpstreamError
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.upstream.modern_open import discover
from dynamic_mcp.upstream.modern_stamp import Stamp
from dynamic_mcp.upstream.open import open_link
from dynamic_mcp.upstream.remote import connect_modern
from tests.fake_parties import Ear
from tests.fakes import BOUND_S
from tests.upstream.modern import LEGACY_HELLO, discovered
from tests.upstream.remote import remote
from tests.upstream.scripted_http import Respond, ScriptedHttp, with_body, with_error, with_result
from tests.upstreams.odd_http import Connection, Request

# --- credentials -----------------------------------------------------------------------------------------


class _Tokens:
    """Credentials that are handed out one after another, until a login is needed."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    async def get_header(self) -> str | None:
        return f"Bearer {self._tokens[0]}"

    async def handle_challenge(self, challenge: Challenge) -> bool:
        del self._tokens[0]
        if not self._tokens:
            raise LoginNeeded("far", "dynamic-mcp login far")
        return True


async def _authorized(request: Request, to: Connection) -> None:
    if request.headers.get("authorization") == "Bearer good":
        await with_result(discovered())(request, to)
    else:
        await with_error(401, {"code": -32000, "message": "who are you?"})(request, to)


async def _discover(far: ScriptedHttp, tokens: _Tokens) -> object:
    config = remote(far.url)
    assert isinstance(config.upstream, Remote)
    link, _ = connect_modern(config, config.upstream, listener=Ear(), authorization=tokens)
    try:
        return await discover(link, Stamp(LEGACY_HELLO), config, BOUND_S)
    finally:
        await link.close()


async def test_credentials_are_renewed_when_a_modern_server_asks_for_others() -> None:
    async with ScriptedHttp(**{"server/discover": _authorized}) as far:
        assert await _discover(far, _Tokens("stale", "good")) is not None


async def test_a_modern_server_that_wants_a_login_is_not_taken_for_a_legacy_one() -> None:
    async with ScriptedHttp(**{"server/discover": _authorized}) as far:
        with pytest.raises(LoginNeeded):
            await _discover(far, _Tokens("stale"))


# --- which era? ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "respond",
    [
        with_body(400, b"Bad Request: no session"),
        with_body(404, b""),
        with_body(405, b""),
        with_body(200, b"<html>", "text/html"),
        with_result({}),
        with_error(400, {"code": -32000, "message": "no session"}, id=None),
        with_error(200, {"code": -32601, "message": "no such method"}),
        with_error(400, {"code": -32022, "message": "m", "data": {"supported": ["2025-11-25"]}}),
        with_result({"supportedVersions": ["2025-11-25", "2025-06-18"], "capabilities": {}}),
    ],
)
async def test_whatever_a_legacy_server_answers_shows_its_era(respond: Respond) -> None:
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
    accepted = with_body(202, b"")
    async with ScriptedHttp(
        **{
            "server/discover": respond,
            "initialize": with_result(greeting),
            "notifications/initialized": accepted,
        }
    ) as far:
        link, server = await open_link(remote(far.url), Ear(), ClientInfo(MODERN))
        await link.close()

        assert (link.is_modern, server.lacks) == (False, "modern")


@pytest.mark.parametrize(
    "respond",
    [
        with_error(400, {"code": -32020, "message": "bad headers"}),
        with_error(400, {"code": -32021, "message": "needs more"}),
        with_error(400, {"code": -32022, "message": "m", "data": {"supported": ["2099-01-01"]}}),
        with_result({"supportedVersions": ["2099-01-01"], "capabilities": {}}),
        with_body(401, b""),
        with_body(403, b""),
        with_body(429, b""),
        with_body(500, b""),
        with_body(503, b""),
    ],
)
async def test_what_only_a_modern_server_answers_or_any_may_is_the_error(respond: Respond) -> None:
    async with ScriptedHttp(**{"server/discover": respond}) as far:
        with pytest.raises(UpstreamError):
            await open_link(remote(far.url), Ear(), ClientInfo(MODERN))

        assert [request.message["method"] for request in far.requests] == ["server/discover"]
