"""nginx and Caddy beside oauth2-proxy, as the examples have them: whom they name to the program, and where nobody.

What is behind it are stand-ins that show what they were sent, and then the program itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from tests.http_program import serving_http
from tests.program import BOUND_S
from tests.reverse_proxies import NEEDED, Site, caddy_login, nginx_login, skip_without
from tests.upstreams.odd_http import head_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("HTTP is served the same by a daemon"),
    pytest.mark.skipif(os.name != "posix", reason="the example is for Unix"),
]

LIES = {"x-forwarded-user": "eve@example.com", "x-forwarded-groups": "admin", "x-auth-request-email": "eve"}


class StandIn:
    """A server that answers as a function says, and keeps the heads of requests, in lower case."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self.heads: list[str] = []
        self._answer = answer

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen; yield the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            self.heads.append(head)
            writer.write(self._answer(head))
            await writer.drain()
        writer.close()


def answer(status: int, **headers: str) -> bytes:
    """Return an answer without a body."""
    return head_of(status, content_length="0", connection="close", **headers)


def as_oauth2_proxy(head: str) -> bytes:
    """Answer who has the cookie of Ann, and where others log in."""
    if not head.startswith("get /oauth2/auth "):
        return answer(302, location="https://idp.example.com/login")
    if "cookie: ann" not in head:
        return answer(401)
    return answer(202, x_auth_request_email="ann@example.com", x_auth_request_groups="dev,ops")


LOGIN_SITES = {"nginx": nginx_login, "caddy": caddy_login}


@pytest.fixture(params=LOGIN_SITES)
async def parties(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Site, StandIn, StandIn]]:
    """The site, and what stands behind it in the places of the program and of oauth2-proxy."""
    skip_without(*NEEDED[request.param])
    own, oauth2_proxy = StandIn(lambda head: answer(200)), StandIn(as_oauth2_proxy)
    async with (
        own.listening() as address,
        oauth2_proxy.listening() as other,
        LOGIN_SITES[request.param](tmp_path, address, other) as site,
    ):
        yield site, own, oauth2_proxy


@pytest.fixture
def site(parties: tuple[Site, StandIn, StandIn]) -> tuple[Site, StandIn]:
    """The site, and what stands behind it in the place of the program."""
    return parties[:2]


def client_of(site: Site) -> httpx2.AsyncClient:
    """Return a browser or a client of MCP that says it is somebody else."""
    return httpx2.AsyncClient(headers={**site.headers, **LIES}, verify=site.tls or True, timeout=BOUND_S)


@pytest.mark.parametrize("path", ["/authorize?x=1", "/consent", "/login/callback?code=1", "/login/one-time-id"])
async def test_who_is_logged_in_is_named_to_pages(site: tuple[Site, StandIn], path: str) -> None:
    at, own = site
    async with asyncio.timeout(BOUND_S), client_of(at) as http:
        shown = await http.get(f"{at.origin}{path}", headers={"cookie": "ann"})

    assert shown.status_code == 200
    (head,) = own.heads
    assert head.startswith(f"get {path} ")
    assert "x-forwarded-user: ann@example.com\r\n" in head
    assert "x-forwarded-groups: dev,ops\r\n" in head
    assert "eve@example.com" not in head


@pytest.mark.parametrize("path", ["/authorize?x=1", "/consent", "/login/callback"])
async def test_who_is_not_logged_in_is_sent_to_log_in(site: tuple[Site, StandIn], path: str) -> None:
    at, own = site
    async with asyncio.timeout(BOUND_S), client_of(at) as http:
        sent = await http.get(f"{at.origin}{path}")

    assert (sent.status_code, sent.headers["location"]) == (302, "https://idp.example.com/login")
    assert own.heads == []


@pytest.mark.parametrize(
    "path", ["/mcp", "/mcp/time", "/token", "/register", "/.well-known/oauth-protected-resource/mcp", "/authorizes"]
)
async def test_everywhere_else_nobody_is_named_and_the_token_passes(site: tuple[Site, StandIn], path: str) -> None:
    at, own = site
    async with asyncio.timeout(BOUND_S), client_of(at) as http:
        passed = await http.post(f"{at.origin}{path}", headers={"cookie": "ann", "authorization": "Bearer x"})

    assert passed.status_code == 200
    (head,) = own.heads
    assert "authorization: bearer x\r\n" in head
    assert f"host: {at.headers['host']}\r\n" in head
    assert "x-forwarded-user" not in head
    assert "x-forwarded-groups" not in head


async def test_after_the_login_the_user_comes_back_with_all_that_the_client_has_sent(
    parties: tuple[Site, StandIn, StandIn],
) -> None:
    at, _, oauth2_proxy = parties
    async with asyncio.timeout(BOUND_S), client_of(at) as http:
        await http.get(f"{at.origin}/authorize?client_id=c&state=s&scope=a+b")

    assert "x-auth-request-redirect: /authorize?client_id=c&state=s&scope=a+b\r\n" in oauth2_proxy.heads[-1]


async def test_nobody_outside_asks_who_is_logged_in(site: tuple[Site, StandIn]) -> None:
    at, _ = site
    async with asyncio.timeout(BOUND_S), client_of(at) as http:
        assert (await http.get(f"{at.origin}/oauth2/auth", headers={"cookie": "ann"})).status_code == 404


async def test_the_program_behind_it_asks_whom_it_names_for_consent(tmp_path: Path) -> None:
    skip_without("nginx", "openssl")
    oauth2_proxy = StandIn(as_oauth2_proxy)
    auth = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    settings = {"http": {"public_url": "https://mcp.example.com/mcp", "auth": auth}}
    async with (
        asyncio.timeout(BOUND_S),
        oauth2_proxy.listening() as other,
        serving_http(tmp_path, {}, settings=settings) as program,
        nginx_login(tmp_path, program.origin.removeprefix("http://"), other) as site,
        client_of(site) as http,
    ):
        metadata = await http.get(f"{site.origin}/.well-known/oauth-protected-resource/mcp")
        assert metadata.json()["authorization_servers"] == ["https://mcp.example.com"]
        redirect = "http://127.0.0.1:33418/callback"
        wanted = {"redirect_uris": [redirect], "client_name": "editor", "token_endpoint_auth_method": "none"}
        client = (await http.post(f"{site.origin}/register", json=wanted)).json()
        asked = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": redirect,
            "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            "code_challenge_method": "S256",
            "resource": "https://mcp.example.com/mcp",
            "state": "s",
        }
        stranger = await http.get(f"{site.origin}/authorize", params=asked)
        assert (stranger.status_code, stranger.headers["location"]) == (302, "https://idp.example.com/login")
        page = await http.get(f"{site.origin}/authorize", params=asked, headers={"cookie": "ann"})
        assert page.status_code == 200
        assert "ann@example.com" in page.text
        assert "eve" not in page.text
