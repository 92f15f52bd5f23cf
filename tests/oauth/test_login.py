"""A login in a browser, against a real authorization server; and against hostile ones, which get nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.oauth.callback import NotOurs
from dynamic_mcp.oauth.challenges import Demand, demand
from dynamic_mcp.oauth.login import Attempt, NoClient, Stopped, begun
from dynamic_mcp.oauth.reach import Forbidden, Reach
from dynamic_mcp.oauth.records import Login
from tests.oauth.parts import bearer, keep, refused, remote
from tests.upstreams.auth_server import Answer, AuthServer, Request


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server


async def browse(url: str) -> httpx2.Response:
    """Do what a browser does with a person who agrees: follow the link, and the redirect to us."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return await browser.get(url)


async def asks(config: Remote) -> Demand:
    """Return what a server says when nobody is logged in."""
    async with httpx2.AsyncClient() as client:
        answer = await client.post(config.url, json={})
    return demand(answer.headers.get_list("www-authenticate"))


async def log_in(config: Remote, known: Login | None = None, reach: Reach | None = None) -> tuple[Login, Attempt]:
    """Log in as a person would."""
    reach = reach or Reach(config.url)
    async with begun(config, reach, await asks(config), known) as attempt:
        login, page = await asyncio.gather(attempt.finished(), browse(attempt.url))
    assert page.status_code == 200
    return login, attempt


def sent(request: Request) -> dict[str, str]:
    return request.query or request.form


# --- well-mannered servers -------------------------------------------------------------------------------


async def test_a_login_is_discovered_registered_allowed_and_exchanged(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)

    login, attempt = await log_in(config)

    assert login.issuer == server.url
    assert login.token is not None
    assert login.token.scope == "tools"
    assert login.token.refresh is not None
    assert attempt.warnings == []
    keep(tmp_path, config, login)
    async with httpx2.AsyncClient() as client:
        header = await bearer(config, tmp_path).header()
        answer = await client.post(
            server.mcp_url, json={"id": 1, "method": "tools/list"}, headers={"Authorization": header or ""}
        )
    assert answer.status_code == 200


async def test_the_resource_is_in_authorize_token_and_refresh(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    keep(tmp_path, config, login)
    credentials = bearer(config, tmp_path)
    assert await credentials.challenged(refused(await credentials.header()))

    requests = [*server.asked("/authorize"), *server.asked("/token")]
    assert len(requests) == 3
    assert {sent(request)["resource"] for request in requests} == {server.mcp_url}


async def test_pkce_and_state_are_new_each_time_and_long(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    await log_in(config)
    await log_in(config)

    one, other = (request.query for request in server.asked("/authorize"))
    assert one["code_challenge_method"] == "S256"
    assert one["code_challenge"] != other["code_challenge"]
    assert one["state"] != other["state"]
    assert len(one["state"]) >= 43


@pytest.mark.parametrize("challenges", [True, False])
async def test_the_metadata_is_found_with_and_without_a_word_of_the_server(challenges: bool) -> None:
    async with AuthServer() as server:
        server.manners.challenges = challenges
        login, _ = await log_in(remote(server.mcp_url))
    assert login.issuer == server.url


@pytest.mark.parametrize(
    ("path", "issuer_path"),
    [
        ("/.well-known/oauth-authorization-server/tenant", "/tenant"),
        ("/.well-known/openid-configuration/tenant", "/tenant"),
        ("/tenant/.well-known/openid-configuration", "/tenant"),
        ("/.well-known/openid-configuration", ""),
    ],
)
async def test_the_authorization_servers_metadata_is_found_where_the_rfcs_put_it(
    server: AuthServer, path: str, issuer_path: str
) -> None:
    issuer = server.url + issuer_path
    server.manners.prm = {"authorization_servers": [issuer]}
    server.manners.metadata = {"issuer": issuer}
    server.manners.iss = issuer
    at_root = "/.well-known/oauth-authorization-server"
    server.manners.overrides = {at_root: lambda request: Answer(404)}
    server.serve_metadata_at(path)

    login, _ = await log_in(remote(server.mcp_url))

    assert login.issuer == issuer


async def test_the_resource_metadata_is_found_at_the_root_too(server: AuthServer) -> None:
    server.manners.challenges = False
    server.move("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource")

    login, _ = await log_in(remote(server.mcp_url))

    assert login.issuer == server.url


@pytest.mark.parametrize("has_metadata", [True, False])
async def test_a_server_of_2025_03_is_its_own_authorization_server(server: AuthServer, has_metadata: bool) -> None:
    server.manners.challenges = False
    server.remove("/.well-known/oauth-protected-resource/mcp")
    if not has_metadata:
        server.remove("/.well-known/oauth-authorization-server")

    login, _ = await log_in(remote(server.mcp_url))

    assert login.token_endpoint == f"{server.url}/token"


async def test_a_server_of_2025_03_may_name_an_issuer_of_its_own_origin_and_no_other(server: AuthServer) -> None:
    server.manners.challenges = False
    server.remove("/.well-known/oauth-protected-resource/mcp")
    server.manners.metadata = {"issuer": f"{server.url}/oauth"}
    server.manners.iss = f"{server.url}/oauth"
    login, _ = await log_in(remote(server.mcp_url))
    assert login.issuer == f"{server.url}/oauth"

    server.manners.metadata = {"issuer": f"http://localhost:{server.port}"}
    assert "another issuer" in await stopped(remote(server.mcp_url))


async def test_the_configs_metadata_url_is_used_where_the_server_names_none(server: AuthServer) -> None:
    server.manners.challenges = False
    server.remove("/.well-known/oauth-protected-resource/mcp")
    server.move("/.well-known/oauth-authorization-server", "/custom")

    login, _ = await log_in(remote(server.mcp_url, metadata_url=f"{server.url}/custom"))

    assert login.issuer == server.url


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_a_registered_client_proves_itself_as_the_server_wants(server: AuthServer, method: str) -> None:
    server.manners.metadata = {"token_endpoint_auth_methods_supported": [method]}

    login, _ = await log_in(remote(server.mcp_url))

    assert login.client is not None
    assert login.client.auth_method == method
    (asked,) = server.asked("/token")
    assert ("authorization" in asked.headers) == (method == "client_secret_basic")
    assert ("client_secret" in asked.form) == (method == "client_secret_post")


async def test_the_configs_client_is_used_and_its_secret_encoded_and_not_kept(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url, client_id="me:1", client_secret="s%cret+", redirect_port=await free_port())
    server.clients["me:1"] = {
        "client_secret": "s%cret+",
        "redirect_uris": [f"http://127.0.0.1:{config.oauth.redirect_port}/callback"],
    }

    login, _ = await log_in(config)

    assert server.asked("/register") == []
    pair = base64.b64decode(server.asked("/token")[0].headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == "me%3A1:s%25cret%2B"
    keep(tmp_path, config, login)
    assert b"s%cret+" not in all_written(tmp_path)


async def test_a_client_metadata_document_goes_before_registration(server: AuthServer) -> None:
    document = "https://example.com/client.json"
    server.manners.metadata = {"client_id_metadata_document_supported": True}
    port = await free_port()
    server.clients[document] = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"]}

    login, _ = await log_in(remote(server.mcp_url, client_metadata_url=document, redirect_port=port))

    assert server.asked("/register") == []
    assert login.client is not None
    assert login.client.id == document


async def test_a_registration_and_its_port_are_used_again(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)

    again, _ = await log_in(config, login)

    assert len(server.asked("/register")) == 1
    assert again.client == login.client


async def test_where_its_port_is_taken_another_client_is_registered(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    assert login.client is not None
    port = urlsplit(login.client.redirect_uri or "").port
    holder = await asyncio.start_server(lambda r, w: None, "127.0.0.1", port)

    again, _ = await log_in(config, login)

    holder.close()
    assert len(server.asked("/register")) == 2
    assert again.client != login.client


async def test_another_authorization_server_gets_another_registration_and_no_old_secret(server: AuthServer) -> None:
    server.manners.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    config = remote(server.mcp_url)
    old, _ = await log_in(config)
    assert old.client is not None
    assert old.client.secret is not None
    async with AuthServer() as other:
        server.manners.prm = {"authorization_servers": [other.url]}
        login, _ = await log_in(config, old)

        assert login.issuer == other.url
        assert len(other.asked("/register")) == 1
        assert not any(old.client.secret.encode() in request.body for request in other.requests)
        assert old.token is not None
        assert not any((old.token.refresh or "").encode() in request.body for request in other.requests)


@pytest.mark.parametrize(
    ("says", "supported", "expected"),
    [("tools", ["tools", "more"], "tools"), ("", ["tools", "more"], "tools more"), ("", None, None)],
)
async def test_the_least_scope_that_the_server_asks_for_is_asked_for(
    server: AuthServer, says: str, supported: list[str] | None, expected: str | None
) -> None:
    server.manners.scopes_supported = supported
    server.manners.metadata = {"scopes_supported": ["everything"]}
    config = remote(server.mcp_url)

    async with begun(config, Reach(config.url), Demand(scope=says or None), None) as attempt:
        asked = dict(parse_qsl(urlsplit(attempt.url).query))

    assert asked.get("scope") == expected


async def test_the_configs_scopes_win(server: AuthServer) -> None:
    config = remote(server.mcp_url, scopes=("tools", "mine"))

    login, _ = await log_in(config)

    assert login.token is not None
    assert login.token.scope == "tools mine"


async def test_more_scope_than_was_asked_for_is_warned_of(server: AuthServer) -> None:
    server.manners.granted = "tools admin"

    _, attempt = await log_in(remote(server.mcp_url))

    assert ["admin" in warning for warning in attempt.warnings] == [True]


async def test_over_ssh_the_address_that_the_browser_ended_at_is_pasted(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    async with begun(config, Reach(config.url), await asks(config), None) as attempt:
        async with httpx2.AsyncClient() as elsewhere:
            redirect = (await elsewhere.get(attempt.url)).headers["location"]
        attempt.paste(f"  {redirect}\n")
        login = await attempt.finished()

    assert login.token is not None


async def test_when_nobody_comes_the_login_ends_and_the_listener_closes(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    async with begun(config, Reach(config.url), await asks(config), None) as attempt:
        asked = dict(parse_qsl(urlsplit(attempt.url).query))
        with pytest.raises(Stopped, match="nobody"):
            await attempt.finished(within_s=0)

    with pytest.raises(httpx2.ConnectError):
        await browse(asked["redirect_uri"])


async def test_a_pasted_address_of_another_login_is_refused_and_the_right_one_still_counts(
    server: AuthServer,
) -> None:
    config = remote(server.mcp_url)
    async with begun(config, Reach(config.url), await asks(config), None) as attempt:
        for text in ("", "x", "http://127.0.0.1/callback?code=a&state=b", "http://127.0.0.1/callback?code=a"):
            with pytest.raises(NotOurs):
                attempt.paste(text)
        assert server.asked("/token") == []
        login, _ = await asyncio.gather(attempt.finished(), browse(attempt.url))
    assert login.token is not None


# --- client credentials ----------------------------------------------------------------------------------


async def test_client_credentials_need_nobody(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"] = {"client_secret": "s"}
    config = remote(
        server.mcp_url, client_id="robot", client_secret="s", is_client_credentials=True, scopes=("tools",)
    )
    credentials = bearer(config, tmp_path)

    header = await credentials.header()

    assert header is not None
    (asked,) = server.asked("/token")
    assert asked.form["resource"] == server.mcp_url
    server.expire()
    assert await bearer(config, tmp_path).challenged(refused(header))
    assert await credentials.header() != header


@pytest.mark.parametrize(("kind", "alg"), [("rsa", "RS256"), ("ec", "ES256")])
async def test_a_private_key_signs_for_the_issuer(server: AuthServer, tmp_path: Path, kind: str, alg: str) -> None:
    from joserfc import jwt
    from joserfc.jwk import ECKey, RSAKey

    key = RSAKey.generate_key(2048) if kind == "rsa" else ECKey.generate_key("P-256")
    (tmp_path / "key.pem").write_bytes(key.as_pem(private=True))
    config = remote(
        server.mcp_url, client_id="robot", private_key_file=str(tmp_path / "key.pem"), is_client_credentials=True
    )

    assert await bearer(config, tmp_path / "logins").header() is not None

    (asked,) = server.asked("/token")
    assert asked.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    signed = jwt.decode(asked.form["client_assertion"], key, algorithms=[alg])
    assert {name: signed.claims[name] for name in ("iss", "sub", "aud")} == {
        "iss": "robot",
        "sub": "robot",
        "aud": server.url,
    }
    assert signed.claims["exp"] - signed.claims["iat"] <= 301


@pytest.mark.parametrize("content", [None, "no key"])
async def test_a_key_that_is_not_there_is_named(server: AuthServer, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_text(content)
    config = remote(server.mcp_url, client_id="robot", private_key_file=str(file), is_client_credentials=True)

    with pytest.raises(Unreachable, match=r"key\.pem"):
        await bearer(config, tmp_path / "logins").header()
    assert server.asked("/token") == []


async def test_the_secret_goes_to_no_other_host_unless_the_config_names_it(
    server: AuthServer, tmp_path: Path
) -> None:
    elsewhere = f"http://localhost:{server.port}"
    server.manners.prm = {"authorization_servers": [elsewhere]}
    server.manners.metadata = {"issuer": elsewhere}
    server.clients["robot"] = {"client_secret": "s"}
    facts: dict[str, Any] = {"client_id": "robot", "client_secret": "s", "is_client_credentials": True}

    with pytest.raises(Unreachable, match=r"oauth\.issuer"):
        await bearer(remote(server.mcp_url, **facts), tmp_path).header()
    assert server.asked("/token") == []

    assert await bearer(remote(server.mcp_url, issuer=elsewhere, **facts), tmp_path).header() is not None


# --- hostile servers -------------------------------------------------------------------------------------


async def stopped(config: Remote, *, resolve: Any = None, wanted: Demand | None = None) -> str:
    """Try to log in, and return why that was stopped before a person was sent anywhere."""
    with pytest.raises(Stopped) as raised:
        async with begun(config, Reach(config.url, resolve), wanted or await asks(config), None):
            pytest.fail("the login went on")
    return str(raised.value)


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
    ],
)
async def test_an_authorization_endpoint_that_is_no_plain_link_is_refused(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    server.manners.metadata = {"authorization_endpoint": endpoint}

    assert named in await stopped(remote(server.mcp_url))
    assert server.asked("/register") == []
    assert not all_written(tmp_path)


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

    with pytest.raises(Forbidden, match=r"leads into|not https"):
        await Reach("https://mcp.example.com/mcp", resolve).addresses(url)
    config = remote("https://mcp.example.com/mcp")
    assert await stopped(config, resolve=resolve, wanted=Demand(resource_metadata=url))


@pytest.mark.parametrize("host", ["0x7f000001", "2130706433", "127.1", "017700000001"])
async def test_an_address_in_another_notation_is_the_same_address(host: str) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        if name == "mcp.example.com":
            return ["93.184.215.14"]
        found = await asyncio.get_running_loop().getaddrinfo(name, port)
        return [str(address[0]) for *_, address in found]

    with pytest.raises(Forbidden, match="leads into this machine"):
        await Reach("https://mcp.example.com/mcp", resolve).addresses(f"https://{host}/")


async def test_even_a_local_server_leads_to_no_metadata_service(server: AuthServer) -> None:
    server.manners.prm = {"authorization_servers": ["https://169.254.169.254"]}

    assert "169.254.169.254" in await stopped(remote(server.mcp_url))


async def test_a_name_is_connected_to_at_the_address_that_was_looked_at(server: AuthServer) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    config = remote(server.mcp_url)
    reach = Reach(config.url, rebinding)
    first = await reach.addresses(f"http://localhost:{server.port}/")
    assert first == ["127.0.0.1"]
    public = Reach("https://mcp.example.com/", _always("93.184.215.14", then="127.0.0.1"))
    with pytest.raises(Forbidden, match="leads into this machine"):
        await public.addresses("https://as.example.com/")


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
            await stopped(remote(server.mcp_url))
        else:
            await log_in(remote(server.mcp_url))  # the server is its own authorization server then

        assert evil.requests == []


async def test_a_redirect_of_the_token_endpoint_is_not_followed(server: AuthServer) -> None:
    async with AuthServer() as evil:
        server.manners.overrides["/token"] = lambda request: Answer(307, headers={"Location": f"{evil.url}/token"})

        with pytest.raises(Stopped, match="redirect"):
            await log_in(remote(server.mcp_url))
        assert evil.requests == []


async def test_metadata_of_another_resource_stops_the_login(server: AuthServer) -> None:
    server.manners.prm = {"resource": "https://other.example.com/mcp"}

    assert "other.example.com" in await stopped(remote(server.mcp_url))
    assert server.asked("/.well-known/oauth-authorization-server") == []


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_without_pkce_stops_the_login(
    server: AuthServer, methods: list[str] | None
) -> None:
    server.manners.metadata = {"code_challenge_methods_supported": methods}

    assert "PKCE" in await stopped(remote(server.mcp_url))


async def test_metadata_of_another_issuer_stops_the_login(server: AuthServer) -> None:
    server.manners.metadata = {"issuer": "https://other.example.com"}

    assert "another issuer" in await stopped(remote(server.mcp_url))


@pytest.mark.parametrize("iss", ["https://evil.example.com", None])
async def test_an_answer_of_another_issuer_is_not_exchanged_and_its_words_are_not_shown(
    server: AuthServer, iss: str | None
) -> None:
    server.manners.iss = iss
    config = remote(server.mcp_url)

    with pytest.raises(Stopped) as raised:
        await log_in(config)

    assert "evil" not in str(raised.value)
    assert server.asked("/token") == []


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
        Answer(400, {"error": "<script>", "error_description": "evil words"}),
        Answer(400, {"error": {"a": 1}}),
    ],
)
async def test_a_token_endpoint_that_answers_nonsense_gives_a_reason(server: AuthServer, answer: Answer) -> None:
    server.manners.overrides["/token"] = lambda request: answer

    with pytest.raises(Stopped) as raised:
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

    with contextlib.suppress(Stopped):
        await log_in(config)


async def test_where_no_client_can_be_had_that_is_said(server: AuthServer) -> None:
    server.manners.registers = False
    with pytest.raises(NoClient):
        async with begun(remote(server.mcp_url), Reach(server.mcp_url), Demand(), None):
            pass


@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_a_registration_that_is_refused_is_no_client(server: AuthServer, status: int) -> None:
    server.manners.overrides["/register"] = lambda request: Answer(status, {"error": "invalid_redirect_uri"})
    with pytest.raises(NoClient):
        async with begun(remote(server.mcp_url), Reach(server.mcp_url), Demand(), None):
            pass


async def test_a_scope_loop_ends(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"] = {"client_secret": "s"}
    config = remote(server.mcp_url, client_id="robot", client_secret="s", is_client_credentials=True)
    credentials = bearer(config, tmp_path)
    tries = 0
    for n in range(20):
        says = f'Bearer error="insufficient_scope", scope="more-{n}"'
        if not await credentials.challenged(refused(await credentials.header(), says, status=403)):
            break
        tries += 1

    assert tries == 3
    assert len(server.asked("/token")) == 4


async def test_step_up_asks_for_what_there_was_and_what_is_wanted(server: AuthServer, tmp_path: Path) -> None:
    from dynamic_mcp.errors import LoginNeeded

    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    store = keep(tmp_path, config, login)
    server.manners.scope = "tools admin"
    credentials = bearer(config, tmp_path)
    says = 'Bearer error="insufficient_scope", scope="admin"'
    challenge = refused(await credentials.header(), says, status=403)
    for _ in range(5):  # calls that come meanwhile are no further tries
        with pytest.raises(LoginNeeded):
            await credentials.challenged(challenge)

    again, _ = await log_in(config, store.load())

    assert again.token is not None
    assert again.token.scope == "tools admin"
    assert json.dumps(again.wanted_scope) == "null"


def all_written(folder: Path) -> bytes:
    """Return what is in all files of a folder."""
    return b"".join(file.name.encode() + file.read_bytes() for file in folder.iterdir())


async def free_port() -> int:
    """Return a port that was free just now."""
    probe = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port: int = probe.sockets[0].getsockname()[1]
    probe.close()
    return port
