"""A server of either era is asked whether it wants a login, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.oauth.probe import probe
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.documents import DocumentError, open_documents
from tests.certificates import make_certificate, server_for_known_clients
from tests.oauth.parts import remote
from tests.upstreams.auth_server import Answer, AuthServer


@pytest.mark.parametrize("is_modern_only", [True, False])
async def test_a_server_that_wants_a_login_says_how(server: AuthServer, is_modern_only: bool) -> None:
    server.manners.is_modern_only = is_modern_only

    outcome = await probe(remote(server.mcp_url))

    assert (outcome.status, outcome.challenge.scope) == (401, "tools")
    assert not outcome.is_open()


@pytest.mark.parametrize("is_modern_only", [True, False])
async def test_a_server_without_logins_is_open(server: AuthServer, is_modern_only: bool) -> None:
    server.manners.is_modern_only, server.manners.is_open = is_modern_only, True

    assert (await probe(remote(server.mcp_url))).is_open()


@pytest.mark.parametrize("is_modern_only", [True, False])
async def test_a_token_is_tried(server: AuthServer, is_modern_only: bool) -> None:
    server.manners.is_modern_only = is_modern_only
    token = server.issue()["access_token"]

    assert (await probe(remote(server.mcp_url), token)).is_open()
    assert (await probe(remote(server.mcp_url), "another")).status == 401


async def test_a_modern_request_says_who_asks_and_in_which_revision(server: AuthServer) -> None:
    server.manners.is_modern_only = True

    await probe(remote(server.mcp_url))

    asked = server.requests_to("/mcp")[-1]
    meta = json.loads(asked.body)["params"]["_meta"]
    assert asked.headers["mcp-protocol-version"] == meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "dynamic-mcp"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_a_server_that_knows_neither_is_reported_by_its_first_answer(server: AuthServer) -> None:
    server.manners.overrides["/mcp"] = lambda request: Answer(404 if "mcp-method" in request.headers else 400)

    assert (await probe(remote(server.mcp_url))).status == 400


async def test_a_server_that_wants_a_certificate_of_its_clients_is_not_asked_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with server_for_known_clients(tmp_path) as port:
        url = f"https://localhost:{port}/mcp"

        outcome = await probe(remote(url))
        with pytest.raises(DocumentError) as raised:
            async with open_documents(AddressPolicy(url)) as documents:
                await documents.fetch(url)

    assert "certificate required" in outcome.reason
    assert "certificate required" in raised.value.why
