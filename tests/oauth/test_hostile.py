"""Servers that want more than they may have get nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from dynamic_mcp.errors import LoginNeeded
from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.oauth.login import LoginAborted, NoClient, begin_login
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl
from tests.oauth.parts import bearer, refusal, remote, store_login
from tests.oauth.visits import abort_reason, browse, fetch_challenge, log_in, read_all
from tests.upstreams.auth_server import Answer, AuthServer, Request


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [
        ("https://a.test/$(touch canary)", "authorization_endpoint"),
        ("https://a.test/`touch canary`", "authorization_endpoint"),
        ("https://a.test/;calc.exe'", "authorization_endpoint"),
        ('https://a.test/"&calc', "authorization_endpoint"),
        ("javascript:alert(1)", "javascript"),
        ("file:///etc/passwd", "file"),
        ("vscode://x/y", "vscode"),
        ("data:text/html,x", "data"),
        ("http://a.test/authorize", "not https"),
        ("https://", "not a URL"),
        ("https://a b/", "not a URL"),
        ("https://a.test/#/authorize", "characters"),
        ("https://accounts.example.com@a.test/authorize", "user name"),
        ("https://accounts.example.com:443@a.test/authorize", "user name"),
    ],
)
async def test_an_authorization_endpoint_that_is_not_a_plain_link_is_refused(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    server.manners.metadata = {"authorization_endpoint": endpoint}

    assert named in await abort_reason(remote(server.mcp_url))
    assert server.requests_to("/register") == []
    assert not read_all(tmp_path)


async def to_documentation(host: str, port: int) -> list[str]:
    """Resolve every name to an address on the internet that nobody has."""
    return ["93.184.215.14"] if host.endswith(".com") else [host]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/",
        "https://[fd00:ec2::254]/",
        "https://10.1.2.3/",
        "https://192.168.0.1/",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://127.0.0.1/",
        "https://0.0.0.0/",
        "https://localhost/",
        "https://x.localhost/",
    ],
)
async def test_a_public_server_leads_into_no_private_network(url: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host.endswith("localhost") else await to_documentation(host, port)

    with pytest.raises(ForbiddenUrl, match=r"leads into|not https"):
        await AddressPolicy("https://mcp.example.com/mcp", resolve).resolve(url)
    config = remote("https://mcp.example.com/mcp")
    assert await abort_reason(config, resolve=resolve, challenge=BearerChallenge(resource_metadata=url))


@pytest.mark.parametrize("host", ["0x7f000001", "2130706433", "127.1", "017700000001"])
async def test_an_address_in_another_notation_is_the_same_address(host: str) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        if name == "mcp.example.com":
            return ["93.184.215.14"]
        found = await asyncio.get_running_loop().getaddrinfo(name, port)
        return [str(address[0]) for *_, address in found]

    with pytest.raises(ForbiddenUrl, match="leads into this machine"):
        await AddressPolicy("https://mcp.example.com/mcp", resolve).resolve(f"https://{host}/")


async def test_even_a_local_server_leads_to_no_metadata_service(server: AuthServer) -> None:
    server.manners.prm = {"authorization_servers": ["https://169.254.169.254"]}

    assert "169.254.169.254" in await abort_reason(remote(server.mcp_url))


async def test_the_connection_goes_to_the_address_that_was_checked(server: AuthServer) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    config = remote(server.mcp_url)
    policy = AddressPolicy(config.url, rebinding)
    first = await policy.resolve(f"http://localhost:{server.port}/")
    assert first == ["127.0.0.1"]
    public = AddressPolicy("https://mcp.example.com/", _always("93.184.215.14", then="127.0.0.1"))
    with pytest.raises(ForbiddenUrl, match="leads into this machine"):
        await public.resolve("https://as.example.com/")


def _always(own: str, *, then: str) -> Any:
    async def resolve(host: str, port: int) -> list[str]:
        return [own] if host == "mcp.example.com" else [then]

    return resolve


@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"]
)
async def test_redirects_of_metadata_are_not_followed(server: AuthServer, path: str) -> None:
    async with AuthServer() as evil:
        server.manners.overrides[path] = lambda request: Answer(307, headers={"Location": f"{evil.url}{path}"})
        if "authorization" in path:
            await abort_reason(remote(server.mcp_url))
        else:
            await log_in(remote(server.mcp_url))  # the server is its own authorization server then

        assert evil.requests == []


async def test_a_redirect_of_the_token_endpoint_is_not_followed(server: AuthServer) -> None:
    async with AuthServer() as evil:
        server.manners.overrides["/token"] = lambda request: Answer(307, headers={"Location": f"{evil.url}/token"})

        with pytest.raises(LoginAborted, match="redirect"):
            await log_in(remote(server.mcp_url))
        assert evil.requests == []


async def test_metadata_of_another_resource_stops_the_login(server: AuthServer) -> None:
    server.manners.prm = {"resource": "https://other.example.com/mcp"}

    assert "other.example.com" in await abort_reason(remote(server.mcp_url))
    assert server.requests_to("/.well-known/oauth-authorization-server") == []


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_without_pkce_stops_the_login(
    server: AuthServer, methods: list[str] | None
) -> None:
    server.manners.metadata = {"code_challenge_methods_supported": methods}

    assert "PKCE" in await abort_reason(remote(server.mcp_url))


async def test_metadata_of_another_issuer_stops_the_login(server: AuthServer) -> None:
    server.manners.metadata = {"issuer": "https://other.example.com"}

    assert "another issuer" in await abort_reason(remote(server.mcp_url))


@pytest.mark.parametrize("is_advertised", [True, None])
@pytest.mark.parametrize("suffix", ["/", "/.", ":80", None])
async def test_a_response_of_another_issuer_is_not_exchanged(
    server: AuthServer, is_advertised: bool | None, suffix: str | None
) -> None:
    server.manners.metadata = {"authorization_response_iss_parameter_supported": is_advertised}
    server.manners.iss = "https://evil.example.com" if suffix is None else server.url + suffix

    with pytest.raises(LoginAborted) as raised:
        await log_in(remote(server.mcp_url))

    assert "evil" not in str(raised.value)
    assert server.requests_to("/token") == []


async def test_a_response_without_the_issuer_that_was_promised_is_not_exchanged(server: AuthServer) -> None:
    server.manners.iss = None

    with pytest.raises(LoginAborted, match="does not name"):
        await log_in(remote(server.mcp_url))
    assert server.requests_to("/token") == []


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_response_of_a_server_that_does_not_promise_its_issuer_is_exchanged(
    server: AuthServer, is_named: bool
) -> None:
    server.manners.metadata = {"authorization_response_iss_parameter_supported": None}
    server.manners.iss = server.url if is_named else None

    login, _ = await log_in(remote(server.mcp_url))

    assert login.token is not None


@pytest.mark.parametrize("iss", ["https://evil.example.com", ""])
async def test_an_error_is_shown_only_if_it_is_from_the_issuer_that_was_asked(server: AuthServer, iss: str) -> None:
    def refuse(request: Request) -> Answer:
        back = {"error": "evil_words", "state": request.query["state"], "iss": iss or server.url}
        return Answer(302, headers={"Location": f"{request.query['redirect_uri']}?{urlencode(back)}"})

    server.manners.overrides["/authorize"] = refuse
    config = remote(server.mcp_url)
    async with begin_login(config, AddressPolicy(config.url), await fetch_challenge(config), None) as attempt:
        page = await browse(attempt.url)
        with pytest.raises(LoginAborted) as raised:
            await attempt.finish()

    assert "evil" not in page.text
    assert ("evil_words" in str(raised.value)) == (iss == "")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"x" * 10_000_000),
        Answer(200, b"<html>", {"Content-Type": "text/html"}),
        Answer(200, b"[" * 100_000),
        Answer(200, {}),
        Answer(200, {"access_token": "a\r\nX-Evil: 1"}),
        Answer(200, {"access_token": 5}),
        Answer(200, {"access_token": "a", "token_type": "mac"}),
        Answer(302, None, {"Location": "http://127.0.0.1:9/"}),
        Answer(500, {"access_token": "a", "token_type": "Bearer"}),
        Answer(400, {"access_token": "a", "token_type": "Bearer"}),
        Answer(400, {"error": "<script>", "error_description": "evil words"}),
        Answer(400, {"error": {"a": 1}}),
    ],
)
async def test_nonsense_from_a_token_endpoint_ends_the_login_with_a_reason(
    server: AuthServer, answer: Answer
) -> None:
    server.manners.overrides["/token"] = lambda request: answer

    with pytest.raises(LoginAborted) as raised:
        await log_in(remote(server.mcp_url))

    assert "/token" in str(raised.value)
    assert "evil" not in str(raised.value).lower()
    assert "<" not in str(raised.value)


@pytest.mark.parametrize(
    "body", [b"x" * 10_000_000, b"<html>", b"[" * 100_000, b"null", b'"a"', b'{"issuer": 1}', b"\xff"]
)
@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"]
)
async def test_metadata_that_is_nonsense_never_breaks_anything(server: AuthServer, path: str, body: bytes) -> None:
    server.manners.overrides[path] = lambda request: Answer(200, body)
    config = remote(server.mcp_url)

    with contextlib.suppress(LoginAborted):
        await log_in(config)


async def test_a_server_that_registers_no_clients_is_named(server: AuthServer) -> None:
    server.manners.registers = False
    with pytest.raises(NoClient):
        async with begin_login(remote(server.mcp_url), AddressPolicy(server.mcp_url), BearerChallenge(), None):
            pass


@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_a_refused_registration_raises_no_client(server: AuthServer, status: int) -> None:
    server.manners.overrides["/register"] = lambda request: Answer(status, {"error": "invalid_redirect_uri"})
    with pytest.raises(NoClient):
        async with begin_login(remote(server.mcp_url), AddressPolicy(server.mcp_url), BearerChallenge(), None):
            pass


async def test_a_scope_loop_ends(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"] = {"client_secret": "s"}
    config = remote(server.mcp_url, client_id="robot", client_secret="s", grant="client_credentials")
    credentials = bearer(config, tmp_path)
    tries = 0
    for n in range(20):
        says = f'Bearer error="insufficient_scope", scope="more-{n}"'
        if not await credentials.handle_challenge(refusal(await credentials.get_header(), says, status=403)):
            break
        tries += 1

    assert tries == 3
    assert len(server.requests_to("/token")) == 4


async def test_a_step_up_asks_again_for_what_was_requested_and_not_granted(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url, scopes=("tools", "more"))
    server.manners.granted = "tools"
    login, _ = await log_in(config)
    store = store_login(tmp_path, config, login)
    credentials = bearer(config, tmp_path)
    says = 'Bearer error="insufficient_scope", scope="admin"'
    with pytest.raises(LoginNeeded):
        await credentials.handle_challenge(refusal(await credentials.get_header(), says, status=403))

    await log_in(remote(server.mcp_url), store.load())

    assert set(server.requests_to("/authorize")[-1].query["scope"].split()) == {"tools", "more", "admin"}


async def test_a_step_up_asks_for_the_old_scopes_and_the_new_ones(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    store = store_login(tmp_path, config, login)
    server.manners.scope = "tools admin"
    credentials = bearer(config, tmp_path)
    says = 'Bearer error="insufficient_scope", scope="admin"'
    challenge = refusal(await credentials.get_header(), says, status=403)
    for _ in range(5):  # calls that come meanwhile are no further tries
        with pytest.raises(LoginNeeded):
            await credentials.handle_challenge(challenge)

    again, _ = await log_in(config, store.load())

    assert again.token is not None
    assert again.token.scope == "tools admin"
    assert again.requested_scope == "tools admin"
    assert json.dumps(again.wanted_scope) == "null"
