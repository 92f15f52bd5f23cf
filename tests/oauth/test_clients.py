"""Clients that log in by themselves, with a secret or a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.errors import Unreachable
from tests.oauth.parts import bearer, refusal, remote
from tests.upstreams.auth_server import AuthServer


async def test_client_credentials_need_nobody(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"] = {"client_secret": "s"}
    config = remote(
        server.mcp_url, client_id="robot", client_secret="s", grant="client_credentials", scopes=("tools",)
    )
    credentials = bearer(config, tmp_path)

    header = await credentials.get_header()

    assert header is not None
    (asked,) = server.requests_to("/token")
    assert asked.form["resource"] == server.mcp_url
    server.expire()
    assert await bearer(config, tmp_path).handle_challenge(refusal(header))
    assert await credentials.get_header() != header


@pytest.mark.parametrize(("kind", "alg"), [("rsa", "RS256"), ("ec", "ES256")])
async def test_a_private_key_signs_for_the_issuer(server: AuthServer, tmp_path: Path, kind: str, alg: str) -> None:
    from joserfc import jwt
    from joserfc.jwk import ECKey, RSAKey

    key = RSAKey.generate_key(2048) if kind == "rsa" else ECKey.generate_key("P-256")
    (tmp_path / "key.pem").write_bytes(key.as_pem(private=True))
    config = remote(
        server.mcp_url, client_id="robot", private_key_file=str(tmp_path / "key.pem"), grant="client_credentials"
    )

    assert await bearer(config, tmp_path / "logins").get_header() is not None

    (asked,) = server.requests_to("/token")
    assert asked.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    signed = jwt.decode(asked.form["client_assertion"], key, algorithms=[alg])
    assert {name: signed.claims[name] for name in ("iss", "sub", "aud")} == {
        "iss": "robot",
        "sub": "robot",
        "aud": server.url,
    }
    assert signed.claims["exp"] - signed.claims["iat"] <= 301


@pytest.mark.parametrize("content", [None, "no key"])
async def test_a_key_that_cannot_be_read_is_named(server: AuthServer, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_text(content)
    config = remote(server.mcp_url, client_id="robot", private_key_file=str(file), grant="client_credentials")

    with pytest.raises(Unreachable, match=r"key\.pem"):
        await bearer(config, tmp_path / "logins").get_header()
    assert server.requests_to("/token") == []


async def test_the_secret_goes_to_no_other_host_unless_the_config_names_it(
    server: AuthServer, tmp_path: Path
) -> None:
    elsewhere = f"http://localhost:{server.port}"
    server.manners.prm = {"authorization_servers": [elsewhere]}
    server.manners.metadata = {"issuer": elsewhere}
    server.clients["robot"] = {"client_secret": "s"}
    facts: dict[str, Any] = {"client_id": "robot", "client_secret": "s", "grant": "client_credentials"}

    with pytest.raises(Unreachable, match=r"oauth\.issuer"):
        await bearer(remote(server.mcp_url, **facts), tmp_path).get_header()
    assert server.requests_to("/token") == []

    assert await bearer(remote(server.mcp_url, issuer=elsewhere, **facts), tmp_path).get_header() is not None
