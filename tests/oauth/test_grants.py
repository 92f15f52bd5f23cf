"""Logins without a user: an assertion of the config, and what an identity provider makes of it."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.resolved import IdentityProviderConfig, OAuth
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.oauth.store import LoginStore
from tests.oauth.parts import bearer, refusal, remote
from tests.upstreams.auth_server import Answer, AuthServer, Request

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
STEP_UP = 'Bearer error="insufficient_scope", scope="admin"'


class Provider:
    """An identity provider that knows one ID token, and exchanges it for what an authorization server accepts."""

    def __init__(self, http: AuthServer, accepts_from: AuthServer) -> None:
        self.http = http
        self.id_token = "id-token-1"
        self.changes: dict[str, Any] = {}  # to its answer
        self._accepts_from = accepts_from
        self._numbers = itertools.count(1)
        http.manners.overrides["/token"] = self._exchange

    @property
    def requests(self) -> list[Request]:
        return self.http.requests_to("/token")

    def oauth(self, **changes: Any) -> dict[str, Any]:
        """Return the config of a login that uses it."""
        provider = IdentityProviderConfig(f"{self.http.url}/token", "at-idp")
        facts = {"client_id": "robot", "client_secret": "AS-SECRET", "assertion": self.id_token}
        return {"grant": "cross_app", "identity_provider": provider, **facts, **changes}

    def _exchange(self, request: Request) -> Answer:
        if request.form.get("subject_token") != self.id_token:
            return Answer(400, {"error": "invalid_grant", "error_description": "SECRET words"})
        assertion = f"id-jag-{next(self._numbers)}"
        self._accepts_from.assertions.add(assertion)
        answer = {"access_token": assertion, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}
        return Answer(200, answer | self.changes)


@pytest.fixture
async def provider(server: AuthServer) -> AsyncIterator[Provider]:
    server.clients["robot"] = {"client_secret": "AS-SECRET"}
    async with AuthServer() as http:
        yield Provider(http, server)


# --- cross-app access --------------------------------------------------------------------------------------


async def test_an_id_token_is_exchanged_at_the_identity_provider_and_its_grant_at_the_authorization_server(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    header = await bearer(remote(server.mcp_url, **provider.oauth(scopes=("tools",))), tmp_path).get_header()

    assert header is not None
    (asked,) = provider.requests
    assert asked.form == {
        "grant_type": EXCHANGE,
        "subject_token": "id-token-1",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "requested_token_type": ID_JAG,
        "audience": server.url,
        "resource": server.mcp_url,
        "scope": "tools",
        "client_id": "at-idp",
    }
    (granted,) = server.requests_to("/token")
    assert granted.form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert granted.form["assertion"] == "id-jag-1"
    assert granted.form["resource"] == server.mcp_url


async def test_neither_side_gets_the_secrets_of_the_other(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    confidential = IdentityProviderConfig(f"{provider.http.url}/token", "at-idp", "IDP-SECRET")

    await bearer(remote(server.mcp_url, **provider.oauth(identity_provider=confidential)), tmp_path).get_header()

    (asked,) = provider.requests
    pair = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == "at-idp:IDP-SECRET"
    assert b"AS-SECRET" not in asked.body
    assert not any(b"id-token" in request.body or b"IDP-SECRET" in request.body for request in server.requests)


async def test_nobody_is_sent_anywhere_and_nothing_is_registered(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    server.manners.metadata = {"code_challenge_methods_supported": None}  # there is no code to challenge

    assert await bearer(remote(server.mcp_url, **provider.oauth()), tmp_path).get_header() is not None

    assert server.requests_to("/register") == server.requests_to("/authorize") == []


async def test_a_rejected_token_is_replaced_by_way_of_the_identity_provider(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    credentials = bearer(remote(server.mcp_url, **provider.oauth()), tmp_path)
    sent = await credentials.get_header()

    assert await credentials.handle_challenge(refusal(sent))

    assert len(provider.requests) == 2
    assert await credentials.get_header() != sent


async def test_a_step_up_asks_the_identity_provider_for_more(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    credentials = bearer(remote(server.mcp_url, **provider.oauth(scopes=("tools",))), tmp_path)
    sent = await credentials.get_header()

    assert await credentials.handle_challenge(refusal(sent, STEP_UP, status=403))

    assert [request.form["scope"] for request in provider.requests] == ["tools", "tools admin"]
    assert server.requests_to("/token")[-1].form["scope"] == "tools admin"


async def test_if_the_identity_provider_grants_less_no_more_is_requested(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    provider.changes = {"scope": "tools"}

    await bearer(remote(server.mcp_url, **provider.oauth(scopes=("tools", "admin"))), tmp_path).get_header()

    assert server.requests_to("/token")[-1].form["scope"] == "tools"


async def test_a_refusal_names_the_identity_provider_and_its_code_and_shows_no_secret(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    config = remote(server.mcp_url, **provider.oauth(assertion="SECRET-token"))

    with pytest.raises(Unreachable, match=r"invalid_grant.*may have expired") as raised:
        await bearer(config, tmp_path).get_header()

    assert f"{provider.http.url}/token" in str(raised.value)
    assert "SECRET" not in str(raised.value)
    assert server.requests_to("/token") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
        {"issued_token_type": None},
        {"access_token": None},
        {"access_token": "a\r\nb"},
    ],
)
async def test_an_answer_without_the_requested_grant_is_not_passed_on(
    server: AuthServer, provider: Provider, tmp_path: Path, changes: dict[str, object]
) -> None:
    provider.changes = changes

    with pytest.raises(Unreachable, match=r"identity provider.*/token"):
        await bearer(remote(server.mcp_url, **provider.oauth()), tmp_path).get_header()
    assert server.requests_to("/token") == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://idp.example.com/token", "not https"), ("http://127.0.0.1:9/token", "refuses connections")],
)
async def test_an_identity_provider_that_cannot_be_asked_is_named(
    server: AuthServer, provider: Provider, tmp_path: Path, url: str, reason: str
) -> None:
    config = remote(server.mcp_url, **provider.oauth(identity_provider=IdentityProviderConfig(url, "at-idp")))

    with pytest.raises(Unreachable, match=f"{url}.*{reason}"):
        await bearer(config, tmp_path).get_header()


# --- the assertion -----------------------------------------------------------------------------------------


def assertion_config(server: AuthServer, **changes: Any) -> dict[str, Any]:
    server.clients["robot"] = {}
    server.assertions = {"jwt-1", "jwt-2"}
    return {"grant": "jwt_bearer", "client_id": "robot", **changes}


async def test_an_assertion_of_the_config_is_exchanged_for_a_token(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url, **assertion_config(server, assertion="jwt-1", scopes=("tools",)))

    assert await bearer(config, tmp_path).get_header() is not None

    (asked,) = server.requests_to("/token")
    assert asked.form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "jwt-1",
        "scope": "tools",
        "resource": server.mcp_url,
        "client_id": "robot",
    }


async def test_an_assertion_in_a_file_is_read_for_each_token(server: AuthServer, tmp_path: Path) -> None:
    file = tmp_path / "jwt"
    config = remote(server.mcp_url, **assertion_config(server, assertion_file=str(file)))
    credentials = bearer(config, tmp_path / "logins")
    file.write_text("jwt-1\n")
    sent = await credentials.get_header()
    file.write_text("jwt-2\n")

    assert await credentials.handle_challenge(refusal(sent))

    assert [request.form["assertion"] for request in server.requests_to("/token")] == ["jwt-1", "jwt-2"]


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff", b"a" * 100_000, b"a" * (2 << 20)])
async def test_a_file_without_an_assertion_is_named_and_nothing_is_sent(
    server: AuthServer, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "the-jwt"
    if content is not None:
        file.write_bytes(content)
    config = remote(server.mcp_url, **assertion_config(server, assertion_file=str(file)))

    with pytest.raises(Unreachable, match="the-jwt"):
        await bearer(config, tmp_path / "logins").get_header()
    assert server.requests_to("/token") == []


async def test_a_refused_assertion_is_reported_with_the_code(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url, **assertion_config(server, assertion="SECRET-jwt"))

    with pytest.raises(Unreachable, match="invalid_grant") as raised:
        await bearer(config, tmp_path).get_header()

    assert "SECRET" not in str(raised.value)
    assert len(server.requests_to("/token")) == 1


@pytest.mark.parametrize("grant", ["jwt_bearer", "cross_app"])
async def test_what_stands_for_somebody_goes_to_no_other_host_unless_the_config_names_it(
    server: AuthServer, provider: Provider, tmp_path: Path, grant: str
) -> None:
    elsewhere = f"http://localhost:{server.port}"
    server.manners.prm = {"authorization_servers": [elsewhere]}
    server.manners.metadata = {"issuer": elsewhere}
    facts = (
        provider.oauth(client_secret=None) if grant == "cross_app" else assertion_config(server, assertion="jwt-1")
    )
    server.clients["robot"] = {}

    with pytest.raises(Unreachable, match=r"oauth\.issuer"):
        await bearer(remote(server.mcp_url, **facts), tmp_path).get_header()
    assert server.requests_to("/token") == provider.requests == []

    assert await bearer(remote(server.mcp_url, issuer=elsewhere, **facts), tmp_path).get_header() is not None


# --- another authorization server --------------------------------------------------------------------------


async def test_a_configured_client_is_not_used_at_an_authorization_server_that_the_server_moves_to(
    server: AuthServer, tmp_path: Path
) -> None:
    facts = assertion_config(server, assertion="jwt-1")
    credentials = bearer(remote(server.mcp_url, **facts), tmp_path)
    sent = await credentials.get_header()
    async with AuthServer() as other:
        server.manners.prm = {"authorization_servers": [other.url]}

        with pytest.raises(Unreachable, match=f"another authorization server.*{other.url}") as raised:
            await credentials.handle_challenge(refusal(sent))
        assert "oauth.issuer" in raised.value.hint
        assert other.requests_to("/token") == []

        other.issue()  # so that its next token is another one
        other.clients["robot"], other.assertions = {}, {"jwt-1"}
        config = remote(server.mcp_url, issuer=other.url, **facts)
        assert await bearer(config, tmp_path).handle_challenge(refusal(sent))
        assert len(other.requests_to("/token")) == 1


async def test_a_token_of_the_authorization_server_that_the_config_named_before_is_not_renewed_there(
    server: AuthServer, tmp_path: Path
) -> None:
    facts = assertion_config(server, assertion="jwt-1")
    await bearer(remote(server.mcp_url, issuer=server.url, **facts), tmp_path).get_header()
    async with AuthServer() as other:
        other.clients["robot"], other.assertions = {}, {"jwt-1"}
        server.manners.prm = {"authorization_servers": [other.url]}
        config = remote(server.mcp_url, issuer=other.url, **facts)
        login = LoginStore(tmp_path, config).load()
        assert login is not None
        assert login.token is not None
        far_ahead = login.token.obtained_at + 4000

        assert await bearer(config, tmp_path, now=lambda: far_ahead).get_header() is not None

        assert len(other.requests_to("/token")) == 1
    assert len(server.requests_to("/token")) == 1


async def test_tokens_of_different_grants_are_kept_apart(
    server: AuthServer, provider: Provider, tmp_path: Path
) -> None:
    person = remote(server.mcp_url, client_id="robot")
    await bearer(remote(server.mcp_url, **provider.oauth()), tmp_path).get_header()

    assert await bearer(person, tmp_path).get_header() is None


def test_a_config_shows_no_assertion_and_no_secret() -> None:
    provider = IdentityProviderConfig("https://idp.test/token", "me", "SECRET")
    assert "SECRET" not in repr(OAuth(grant="cross_app", assertion="SECRET", identity_provider=provider))
