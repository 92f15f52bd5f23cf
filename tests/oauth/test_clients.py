"""Clients that log in by themselves, with a secret or a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.errors import Unreachable
from dynamic_mcp.web.jwk import import_keys
from dynamic_mcp.web.signed_token import parse_token
from tests.oauth.parts import bearer, refusal, remote
from tests.signing_keys import key_for, public_jwk
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


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [("RS256", None), ("RS256", "PS256"), ("ES256", None), ("ES384", None), ("EdDSA", None), ("EdDSA", "EdDSA")],
)
async def test_a_private_key_signs_for_the_issuer(
    server: AuthServer, tmp_path: Path, kind: str, chosen: str | None
) -> None:
    key = key_for(kind)
    (tmp_path / "key.pem").write_bytes(key.as_pem(private=True))
    config = remote(
        server.mcp_url,
        client_id="robot",
        private_key_file=str(tmp_path / "key.pem"),
        private_key_alg=chosen,
        grant="client_credentials",
    )

    assert await bearer(config, tmp_path / "logins").get_header() is not None

    (asked,) = server.requests_to("/token")
    assert asked.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    signed = parse_token(asked.form["client_assertion"])
    (public,) = import_keys({"keys": [public_jwk(key)]})
    assert signed.algorithm == (chosen or kind)
    assert public.has_signed(signed.algorithm, signed.signed, signed.signature)
    assert {name: signed.claims[name] for name in ("iss", "sub", "aud")} == {
        "iss": "robot",
        "sub": "robot",
        "aud": server.url,
    }
    expires_at, issued_at = signed.claims["exp"], signed.claims["iat"]
    assert isinstance(expires_at, int)
    assert isinstance(issued_at, int)
    assert 0 < expires_at - issued_at <= 301


@pytest.mark.parametrize(
    ("content", "chosen", "why"),
    [
        (None, None, "cannot be read"),
        (b"no key", None, "is not a private key"),
        (key_for("ES256").as_pem(private=False), None, "is not a private key"),
        (key_for("ES256").as_pem(private=True), "RS256", "is for ES256"),
    ],
    ids=["missing", "no key", "public", "of another kind"],
)
async def test_a_key_that_cannot_sign_is_named(
    server: AuthServer, tmp_path: Path, content: bytes | None, chosen: str | None, why: str
) -> None:
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_bytes(content)
    facts: dict[str, Any] = {"private_key_file": str(file), "private_key_alg": chosen}
    config = remote(server.mcp_url, client_id="robot", grant="client_credentials", **facts)

    with pytest.raises(Unreachable, match=rf"key\.pem` {why}"):
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
