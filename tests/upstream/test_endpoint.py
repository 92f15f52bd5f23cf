"""Credentials, cookies, proxies, certificates, sockets: how a remote server is reached."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Literal

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import DynamicMcpError, HttpError, LinkLost, LoginNeeded, NotSent, Unreachable
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.upstream.connections import find_proxy, request_url, tls_context
from dynamic_mcp.upstream.handshake import initialize
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.open import open_link
from dynamic_mcp.upstream.remote import connect
from tests.certificates import make_certificate, server_for_known_clients
from tests.fake_parties import Ear
from tests.fakes import group_config
from tests.upstream.remote import call, open_remote, remote, text
from tests.upstreams.odd_http import Connection, OddHttp


class Tokens:
    """Credentials that a test hands out, one after another; `refusal` is raised when there are no more."""

    def __init__(self, *tokens: str, refusal: DynamicMcpError | None = None) -> None:
        self.tokens = list(tokens)
        self.refusal = refusal
        self.challenges: list[Challenge] = []

    async def get_header(self) -> str | None:
        return f"Bearer {self.tokens[0]}" if self.tokens else None

    async def handle_challenge(self, challenge: Challenge) -> bool:
        self.challenges.append(challenge)
        self.tokens = self.tokens[1:]
        if not self.tokens and self.refusal is not None:
            raise self.refusal
        return bool(self.tokens)


async def _link(server: OddHttp, tokens: Tokens, headers: dict[str, str] | None = None) -> Link:
    config = remote(server.url, headers=headers)
    assert isinstance(config.upstream, Remote)
    return await connect(config, config.upstream, "http", listener=Ear(), authorization=tokens)


async def _open(server: OddHttp, tokens: Tokens, headers: dict[str, str] | None = None) -> Link:
    link = await _link(server, tokens, headers)
    await initialize(link, ClientInfo(), group_config())
    return link


async def test_a_token_is_sent_with_every_request() -> None:
    async with OddHttp(wants="Bearer good", get="405") as server:
        link = await _open(server, Tokens("good"))
        assert await text(link, "echo", text="x") == "x"
        await link.close()

        assert all(request.headers["authorization"] == "Bearer good" for request in server.requests)


async def test_a_token_that_expires_during_a_session_is_renewed_and_the_call_repeated_once() -> None:  # 36
    async with OddHttp(wants="Bearer one") as server:
        tokens = Tokens("one", "two")
        link = await _open(server, tokens)
        server.odd.wants = "Bearer two"
        assert await text(link, "echo", text="x") == "x"
        await link.close()

        assert tokens.challenges[0] == Challenge(401, ('Bearer scope="mcp"',), "Bearer one")
        assert len(tokens.challenges) == 1


async def test_challenges_are_bounded() -> None:  # 36, 37
    async with OddHttp(wants="Bearer none of them") as server:
        tokens = Tokens(*"abcdefgh")
        link = await _link(server, tokens)
        with pytest.raises(HttpError, match="401"):
            await initialize(link, ClientInfo(), group_config())
        await link.close()

        assert len(tokens.challenges) == 2
        assert len(server.requests) == 3


async def test_a_login_that_is_needed_is_raised() -> None:  # 36
    async with OddHttp(wants="Bearer good") as server:
        link = await _link(server, Tokens("bad", refusal=LoginNeeded("far", "dynamic-mcp auth login far")))
        with pytest.raises(LoginNeeded):
            await initialize(link, ClientInfo(), group_config())
        await link.close()


async def test_an_authorization_header_in_the_config_wins() -> None:
    async with OddHttp(wants="Bearer mine") as server:
        tokens = Tokens("other")
        link = await _open(server, tokens, {"authorization": "Bearer mine"})
        await link.close()

        assert not tokens.challenges


async def test_an_empty_authorization_header_in_the_config_counts_as_none() -> None:
    async with OddHttp(wants="Bearer good") as server:
        await (await _open(server, Tokens("good"), {"Authorization": ""})).close()


async def test_the_hint_is_to_renew_rejected_credentials_and_to_add_missing_ones() -> None:
    async with OddHttp(wants="Bearer good") as server:
        for headers, hint in (({}, "Authorization"), ({"Authorization": "Bearer old"}, "renew")):
            with pytest.raises(HttpError) as raised:
                await open_link(remote(server.url, headers=headers), Ear(), ClientInfo())
            assert hint in raised.value.hint


async def test_a_password_in_the_url_is_sent_and_never_shown() -> None:
    async with OddHttp(wants="Basic dXNlcjpodW50ZXIyISE=") as server:
        url = server.url.replace("//", "//user:hunter2!!@")
        async with open_remote(remote(url)) as link:
            with pytest.raises(HttpError) as raised:
                await call(link, "fault", kind="500")

    assert "hunter2" not in str(raised.value)


async def test_cookies_come_back_to_the_server_that_set_them() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        while True:
            request = await connection.request()
            seen.put_nowait(request.headers.get("cookie", ""))
            body = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
            await connection.respond(200, body, content_type="application/json", set_cookie="node=a1; Path=/")

    seen: asyncio.Queue[str] = asyncio.Queue()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_remote(remote(f"http://127.0.0.1:{port}/mcp")):
            assert [await seen.get(), await seen.get()] == ["", "node=a1"]


@pytest.mark.posix_only("Python for Windows has no Unix sockets")
async def test_a_server_behind_a_unix_socket_is_reached(tmp_path: Path) -> None:
    async with OddHttp() as server:
        path = tmp_path / "Mcp.sock"
        behind = await asyncio.start_unix_server(server.take, path)
        url = f"http+unix://{str(path).replace('/', '%2F')}/mcp"
        async with behind, open_remote(remote(url)) as link:
            assert await text(link, "echo", text="x") == "x"


@pytest.mark.posix_only("Python for Windows has no Unix sockets")
async def test_a_socket_that_does_not_exist_is_named(tmp_path: Path) -> None:
    url = f"http+unix://{str(tmp_path / 'none').replace('/', '%2F')}/mcp"
    with pytest.raises(NotSent, match="there is no socket"):
        await open_link(remote(url), Ear(), ClientInfo())


async def test_where_there_are_no_unix_sockets_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    with pytest.raises(Unreachable, match="no Unix sockets"):
        await open_link(remote("http+unix://%2Frun%2Fmcp.sock/mcp"), Ear(), ClientInfo())


async def test_a_name_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(NotSent, match=r"`no-such-host\.invalid` cannot be resolved"):
        await open_link(remote("http://no-such-host.invalid/mcp"), Ear(), ClientInfo())


async def test_a_port_without_a_listener_is_named() -> None:
    async with OddHttp() as server:
        url = server.url
    with pytest.raises(NotSent, match="refuses connections"):
        await open_link(remote(url), Ear(), ClientInfo())


async def test_a_server_without_tls_has_a_message_of_its_own() -> None:
    async with OddHttp() as server:
        with pytest.raises(NotSent, match="does not speak TLS") as raised:
            await open_link(remote(server.url.replace("http:", "https:")), Ear(), ClientInfo())

        assert "http://" in raised.value.hint


async def test_an_unknown_certificate_is_rejected_and_one_from_ssl_cert_file_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with OddHttp() as server:
        behind = await asyncio.start_server(server.take, "127.0.0.1", 0, ssl=context)
        url = f"https://localhost:{behind.sockets[0].getsockname()[1]}/mcp"
        async with behind:
            tls_context.cache_clear()
            with pytest.raises(NotSent, match=r"certificate of `localhost:.*` cannot be verified"):
                await open_link(remote(url), Ear(), ClientInfo())
            tls_context.cache_clear()
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
            async with open_remote(remote(url)) as link:
                assert await text(link, "echo", text="x") == "x"
            tls_context.cache_clear()


@pytest.mark.parametrize("kind", ["http", "sse", None])
async def test_a_server_that_wants_a_certificate_of_its_clients_has_a_message_of_its_own(
    kind: Literal["http", "sse"] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    tls_context.cache_clear()
    async with server_for_known_clients(tmp_path) as port:
        with pytest.raises(LinkLost, match=r"an error of TLS: .*CERTIFICATE_REQUIRED") as raised:
            await open_link(remote(f"https://localhost:{port}/mcp", kind=kind), Ear(), ClientInfo())
    tls_context.cache_clear()

    assert "certificate of its clients" in raised.value.hint
    assert "a bug" not in caplog.text


async def test_requests_go_through_the_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OddHttp() as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        async with open_remote(remote("http://far.invalid/mcp")) as link:
            assert await text(link, "echo", text="x") == "x"

        assert server.requests[0].path == "http://far.invalid/mcp"


@pytest.mark.parametrize(
    ("no_proxy", "host", "expected"),
    [
        ("", "a.test", "http://p:1"),
        ("a.test", "a.test", None),
        (".test", "a.test", None),
        ("*", "a.test", None),
        ("10.0.0.0/8", "10.1.2.3", None),
        ("10.0.0.0/8", "11.1.2.3", "http://p:1"),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, host: str, expected: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "p:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)

    assert find_proxy("https", host, None) == expected


def test_the_request_url_has_no_fragment_and_no_socket() -> None:
    assert str(request_url("https://a.test/mcp?x=1#y")) == "https://a.test/mcp?x=1"
    assert str(request_url("http+unix://%2Frun%2Fa.sock/mcp")) == "http://localhost/mcp"
