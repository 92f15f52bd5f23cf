"""The whole program with its own authorization server: clients that people use log in unaided."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import httpx2
import pytest
from mcp import Client

from tests.headless_browser import HeadlessBrowser
from tests.journeys.remote_server import free_port
from tests.login_program import REDIRECT, make_certificate, publishing, serving_logins
from tests.oidc_provider import OidcProvider
from tests.sdk_client import SdkClient
from tests.web import web_client

pytestmark = pytest.mark.alone_only("HTTP is served the same by a daemon")


async def _use(client: Client) -> str:
    result = await client.call_tool("call_dynamic_tool", {"group": "a", "name": "echo", "args": {"text": "hi"}})
    return json.dumps(result.model_dump(mode="json"))


async def test_the_python_sdk_registers_logs_in_and_calls_a_tool(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            assert "hi" in await _use(client)
        assert len(sdk.logins) == 1
        assert "SDK &lt;b&gt;client&lt;/b&gt;" in sdk.browser.pages[0]
        async with sdk.connected() as client:
            await client.list_tools()
        assert len(sdk.logins) == 1, "it has kept its tokens"


async def test_the_python_sdk_refreshes_its_tokens_without_its_person(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            await client.list_tools()
        before = sdk.storage.tokens
        async with sdk.connected(is_expired=True) as client:
            assert "hi" in await _use(client)
        after = sdk.storage.tokens
        assert before is not None
        assert after is not None
        assert before.access_token != after.access_token
        assert before.refresh_token != after.refresh_token
        assert len(sdk.logins) == 1


async def test_the_login_of_a_client_outlives_the_program(tmp_path: Path) -> None:
    port = free_port()
    async with serving_logins(tmp_path, port=port) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            await client.list_tools()
    async with serving_logins(tmp_path, port=port), sdk.connected() as client:
        assert "hi" in await _use(client)
    assert len(sdk.logins) == 1


async def test_a_login_for_one_group_is_for_that_group(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program:
        sdk = SdkClient(program.url_of("a"), HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            assert "echo" in [tool.name for tool in (await client.list_tools()).tools]
        assert sdk.storage.tokens is not None
        shown = {"authorization": f"Bearer {sdk.storage.tokens.access_token}"}
        async with web_client(trust_env=False) as http:
            refused = await http.post(program.url, json={}, headers=shown)
            assert refused.status_code == 401
            assert "invalid_token" in refused.headers["www-authenticate"]


async def test_the_python_sdk_asks_its_person_again_for_a_scope_that_a_tool_needs(tmp_path: Path) -> None:
    rules = {"roles": {"dev": [{"servers": ["a"], "scope": "echoes"}]}, "people": {"ann": ["dev"]}}
    async with serving_logins(tmp_path, access=rules) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            await client.list_tools()
            assert len(sdk.logins) == 1
            assert "hi" in await _use(client)
        assert len(sdk.logins) == 2
        assert "echoes" not in sdk.browser.pages[0]
        assert "echoes" in sdk.browser.pages[1]


async def test_a_person_who_says_no_lets_no_client_in(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann", decision="deny"))
        with pytest.raises(BaseExceptionGroup):
            async with sdk.connected():
                raise AssertionError
        assert "error=access_denied" in sdk.logins[0]
        assert sdk.storage.tokens is None


async def test_the_python_sdk_logs_in_where_an_identity_provider_is_asked(tmp_path: Path) -> None:
    port = free_port()
    async with OidcProvider() as idp:
        idp.register("us", f"http://127.0.0.1:{port}/login/callback", secret="secret")
        idp.person.groups = ["dev"]
        oidc = {"issuer": idp.issuer, "client_id": "us", "client_secret": "secret"}
        rules = {
            "roles": {"dev": [{"servers": ["a"]}]},
            "roles_from": {"claim": "groups", "map": {"dev": ["dev"]}},
        }
        async with serving_logins(tmp_path, [{"kind": "login", "oidc": oidc}], port, access=rules) as program:
            sdk = SdkClient(program.url, HeadlessBrowser())
            async with sdk.connected() as client:
                assert "hi" in await _use(client)
            assert "ann@example.com" in sdk.browser.pages[0]


async def test_a_registration_of_ten_megabytes_is_not_read(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program, web_client(trust_env=False) as http:
        body = json.dumps({"redirect_uris": [REDIRECT], "client_name": "x" * (10 << 20)}).encode()
        headers = {"content-type": "application/json"}
        with contextlib.suppress(httpx2.WriteError, httpx2.RemoteProtocolError, httpx2.ReadError):
            answer = await http.post(f"{program.origin}/register", content=body, headers=headers)
            assert answer.status_code == 413
        answer = await http.post(f"{program.origin}/register", json={"redirect_uris": [REDIRECT]})
        assert answer.status_code == 201


async def test_pages_of_any_origin_read_the_metadata_and_none_sends_the_form(tmp_path: Path) -> None:
    async with serving_logins(tmp_path) as program, web_client(trust_env=False) as http:
        evil = {"origin": "https://evil.example"}
        metadata = await http.get(f"{program.origin}/.well-known/oauth-authorization-server", headers=evil)
        assert metadata.headers["access-control-allow-origin"] == "*"
        for method, path in (("POST", "/consent"), ("POST", "/token"), ("POST", "/register"), ("GET", "/authorize")):
            answer = await http.request(method, f"{program.origin}{path}", headers=evil)
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


# --- documents -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for localhost and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def test_the_python_sdk_logs_in_by_its_document_and_registers_nothing(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    auth = [
        {"kind": "login", "local_client_documents": True},
        {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]},
    ]
    async with publishing(certificate) as (url, requests), serving_logins(tmp_path, auth) as program:
        sdk = SdkClient(program.url, HeadlessBrowser("ann"), document=url)
        async with sdk.connected() as client:
            assert "hi" in await _use(client)
        assert sdk.storage.client is None or sdk.storage.client.client_id == url
        assert len(requests) == 1
        assert "Published by" in sdk.browser.pages[0]
        async with sdk.connected(is_expired=True) as client:
            assert "hi" in await _use(client)
        assert len(sdk.logins) == 1
