"""The tokens of callers are exchanged by oidc-provider, an OpenID certified authorization server for Node.

It is where $DYNAMIC_MCP_TEST_OIDC_PROVIDER names a folder of npm with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from joserfc.jwk import KeySet

from tests.face.auth.exchange_office import whoami, whoami_modern
from tests.http_client import HttpClient
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port, listening
from tests.mcp_client import McpClient
from tests.program import BOUND_S, Json
from tests.signing_keys import key_for, public_jwk
from tests.upstreams.exchanged_mcp import ExchangedMcp
from tests.web import web_client

pytestmark = [pytest.mark.full, pytest.mark.alone_only("HTTP is served the same by a daemon")]

SCRIPT = Path(__file__).parent / "oidc_provider.mjs"


@pytest.fixture
def issuer_command() -> list[str]:
    """The command that runs the authorization server."""
    modules = Path(os.environ.get("DYNAMIC_MCP_TEST_OIDC_PROVIDER", "nowhere"))
    node = os.environ.get("DYNAMIC_MCP_TEST_NODE") or shutil.which("node")
    if node is None:
        pytest.skip("the command `node` is not on the PATH of this machine")
    if not (modules / "oidc-provider").is_dir():
        pytest.skip("DYNAMIC_MCP_TEST_OIDC_PROVIDER does not name a folder with `oidc-provider`")
    return [node, str(SCRIPT), str(modules)]


@contextlib.asynccontextmanager
async def issuing(command: list[str], audience: str, target: str) -> AsyncIterator[str]:
    """Run the authorization server; return its issuer."""
    port = free_port()
    jwk = json.dumps(public_jwk(key_for("ES256"), kid="ours", use="sig", alg="ES256"))
    async with listening(*command, str(port), audience, target, jwk, port=port):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("way", ["secret", "key"])
async def test_each_person_is_served_with_a_token_that_oidc_provider_has_exchanged(
    issuer_command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("SECRET", "secret-of-dynamic-mcp")
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(key_for("ES256").as_pem(private=True))
    authentication: Json = {"client_id": "dynamic-mcp", "client_secret": "${SECRET}"}
    if way == "key":
        authentication = {"client_id": "dynamic-mcp-with-key", "private_key_file": str(key_file)}
    port, behind = free_port(), free_port()
    public_url, target = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{behind}/mcp"
    async with asyncio.timeout(BOUND_S), issuing(issuer_command, public_url, target) as issuer:
        async with web_client() as http:
            keys = KeySet.import_key_set((await http.get(f"{issuer}/jwks")).json())
            tokens = [(await http.get(f"{issuer}/token-of/{name}")).text for name in ("ann", "bob")]
        oauth = {"grant": "token_exchange", "issuer": issuer, "scopes": ["read"], **authentication}
        settings = {"http": {"public_url": public_url, "auth": [{"kind": "jwt", "issuer": issuer}]}}
        servers = {"far": {"url": target, "oauth": oauth}}
        async with (
            ExchangedMcp(issuer, keys, port=behind) as server,
            serving_http(tmp_path, servers, port=port, settings=settings) as program,
            HttpClient(program.origin) as client,
        ):
            ann = McpClient(client, headers={"Authorization": f"Bearer {tokens[0]}"})
            await ann.initialize()
            said = [await whoami(ann), await whoami_modern(program.origin, tokens[1])]

    assert said == [f"{name} by {authentication['client_id']}" for name in ("ann", "bob")]
    assert not {*tokens} & {*server.tokens}
    assert server.breaches == []
