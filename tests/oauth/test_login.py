"""A login in a browser, against a real authorization server."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from msgspec.structs import replace

from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.oauth.login import LoginAborted, begin_login
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.authorization_response import UnexpectedResponse
from tests.journeys.remote_server import free_port
from tests.oauth.parts import bearer, refusal, remote, store_login
from tests.oauth.visits import abort_reason, browse, fetch_challenge, log_in, parameters, read_all
from tests.upstreams.auth_server import Answer, AuthServer
from tests.web import web_client


async def test_a_login_is_discovered_registered_allowed_and_exchanged(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)

    login, attempt = await log_in(config)

    assert login.issuer == server.url
    assert login.token is not None
    assert login.token.scope == "tools"
    assert login.token.refresh is not None
    assert attempt.warnings == []
    store_login(tmp_path, config, login)
    async with web_client() as client:
        header = await bearer(config, tmp_path).get_header()
        answer = await client.post(
            server.mcp_url, json={"id": 1, "method": "tools/list"}, headers={"Authorization": header or ""}
        )
    assert answer.status_code == 200


async def test_the_resource_is_in_authorize_token_and_refresh(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    store_login(tmp_path, config, login)
    credentials = bearer(config, tmp_path)
    assert await credentials.handle_challenge(refusal(await credentials.get_header()))

    requests = [*server.requests_to("/authorize"), *server.requests_to("/token")]
    assert len(requests) == 3
    assert {parameters(request)["resource"] for request in requests} == {server.mcp_url}


async def test_pkce_and_state_are_new_each_time_and_long(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    await log_in(config)
    await log_in(config)

    one, other = (request.query for request in server.requests_to("/authorize"))
    assert one["code_challenge_method"] == "S256"
    assert one["code_challenge"] != other["code_challenge"]
    assert one["state"] != other["state"]
    assert len(one["state"]) >= 43


@pytest.mark.parametrize("challenges", [True, False])
async def test_the_metadata_is_found_with_and_without_a_url_in_the_challenge(challenges: bool) -> None:
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
    assert "another issuer" in await abort_reason(remote(server.mcp_url))


async def test_metadata_at_the_configs_url_must_be_of_the_configs_issuer(server: AuthServer) -> None:
    url = f"{server.url}/.well-known/oauth-authorization-server"

    reason = await abort_reason(remote(server.mcp_url, metadata_url=url, issuer="https://as.example.com"))

    assert "a different `issuer`" in reason


async def test_the_configs_metadata_url_is_used_where_the_server_names_none(server: AuthServer) -> None:
    server.manners.challenges = False
    server.remove("/.well-known/oauth-protected-resource/mcp")
    server.move("/.well-known/oauth-authorization-server", "/custom")

    login, _ = await log_in(remote(server.mcp_url, metadata_url=f"{server.url}/custom"))

    assert login.issuer == server.url


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_a_registered_client_authenticates_with_a_method_of_the_server(server: AuthServer, method: str) -> None:
    server.manners.metadata = {"token_endpoint_auth_methods_supported": [method]}

    login, _ = await log_in(remote(server.mcp_url))

    assert login.client is not None
    assert login.client.auth_method == method
    (asked,) = server.requests_to("/token")
    assert ("authorization" in asked.headers) == (method == "client_secret_basic")
    assert ("client_secret" in asked.form) == (method == "client_secret_post")


async def test_the_configs_client_is_used_and_its_secret_encoded_and_not_kept(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url, client_id="me:1", client_secret="s%cret+", redirect_port=free_port())
    server.clients["me:1"] = {
        "client_secret": "s%cret+",
        "redirect_uris": [f"http://127.0.0.1:{config.oauth.redirect_port}/callback"],
    }

    login, _ = await log_in(config)

    assert server.requests_to("/register") == []
    pair = base64.b64decode(server.requests_to("/token")[0].headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == "me%3A1:s%25cret%2B"
    store_login(tmp_path, config, login)
    assert b"s%cret+" not in read_all(tmp_path)


async def test_a_client_metadata_document_is_preferred_to_registration(server: AuthServer) -> None:
    document = "https://example.com/client.json"
    server.manners.metadata = {"client_id_metadata_document_supported": True}
    port = free_port()
    server.clients[document] = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"]}

    login, _ = await log_in(remote(server.mcp_url, client_metadata_url=document, redirect_port=port))

    assert server.requests_to("/register") == []
    assert login.client is not None
    assert login.client.id == document


async def test_a_registration_and_its_port_are_reused(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)

    again, _ = await log_in(config, login)

    assert len(server.requests_to("/register")) == 1
    assert again.client == login.client


async def test_if_its_port_is_taken_another_client_is_registered(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    login, _ = await log_in(config)
    assert login.client is not None
    port = urlsplit(login.client.redirect_uri or "").port
    holder = await asyncio.start_server(lambda r, w: None, "127.0.0.1", port)

    again, _ = await log_in(config, login)

    holder.close()
    assert len(server.requests_to("/register")) == 2
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
        assert len(other.requests_to("/register")) == 1
        assert not any(old.client.secret.encode() in request.body for request in other.requests)
        assert old.token is not None
        assert not any((old.token.refresh or "").encode() in request.body for request in other.requests)


async def test_the_configs_client_is_used_at_no_other_authorization_server_than_before(server: AuthServer) -> None:
    config = remote(server.mcp_url, client_id="me", redirect_port=free_port())
    client = {"redirect_uris": [f"http://127.0.0.1:{config.oauth.redirect_port}/callback"]}
    server.clients["me"] = client
    old, _ = await log_in(config)
    async with AuthServer() as other:
        other.clients["me"] = client
        server.manners.prm = {"authorization_servers": [other.url]}
        with pytest.raises(LoginAborted, match=f"another authorization server.*{other.url}.*oauth.issuer"):
            await log_in(config, old)
        assert other.requests_to("/authorize") == []

        login, _ = await log_in(replace(config, oauth=replace(config.oauth, issuer=other.url)), old)
        assert login.issuer == other.url


async def test_a_client_metadata_document_is_used_at_every_authorization_server(server: AuthServer) -> None:
    document, port = "https://example.com/client.json", free_port()
    config = remote(server.mcp_url, client_metadata_url=document, redirect_port=port)
    server.manners.metadata = {"client_id_metadata_document_supported": True}
    server.clients[document] = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
    old, _ = await log_in(config)
    async with AuthServer(server.manners) as other:
        other.clients = server.clients
        server.manners.prm = {"authorization_servers": [other.url]}

        login, _ = await log_in(config, old)

        assert login.issuer == other.url
        assert login.client == old.client


async def test_what_a_registration_leaves_empty_is_left_out(server: AuthServer) -> None:
    redirect_port = free_port()
    redirects = {"redirect_uris": [f"http://127.0.0.1:{redirect_port}/callback"]}
    server.clients["empty"] = redirects
    empty = {"client_secret": None, "token_endpoint_auth_method": "", "client_secret_expires_at": ""}
    server.manners.overrides["/register"] = lambda request: Answer(201, {"client_id": "empty", **empty})

    login, _ = await log_in(remote(server.mcp_url, redirect_port=redirect_port))

    assert login.client is not None
    assert (login.client.id, login.client.secret, login.client.auth_method) == ("empty", None, "none")


@pytest.mark.parametrize("answer", [{}, {"client_id": 5}, [], {"client_id": "a", "client_secret": ["s"]}])
async def test_an_answer_that_is_no_registration_leads_to_no_client(server: AuthServer, answer: Any) -> None:
    server.manners.overrides["/register"] = lambda request: Answer(201, answer)

    assert "did not register a client" in await abort_reason(remote(server.mcp_url))


async def test_metadata_of_a_server_that_is_not_named_by_a_url_is_passed_over(server: AuthServer) -> None:
    server.manners.prm = {"resource": "api://us", "authorization_servers": ["https://as.example.com"]}

    login, _ = await log_in(remote(server.mcp_url))

    assert login.issuer == server.url


async def test_a_slash_at_the_end_of_a_host_makes_no_other_issuer(server: AuthServer) -> None:
    login, _ = await log_in(remote(server.mcp_url, issuer=f"{server.url}/"))
    assert login.issuer == server.url

    server.manners.prm = {"authorization_servers": [f"{server.url}/tenant"]}
    assert "a different `issuer`" in await abort_reason(remote(server.mcp_url, issuer=f"{server.url}/tenant/"))


async def test_an_authorization_endpoint_keeps_its_query(server: AuthServer) -> None:
    server.manners.metadata = {"authorization_endpoint": f"{server.url}/authorize?tenant=a%26b"}
    config = remote(server.mcp_url)

    async with begin_login(config, AddressPolicy(config.url), await fetch_challenge(config), None) as attempt:
        pairs = parse_qsl(urlsplit(attempt.url).query)

    assert pairs[0] == ("tenant", "a&b")
    assert ("response_type", "code") in pairs
    assert len({name for name, _ in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"token_endpoint": None}, "`token_endpoint`"),
        ({"authorization_endpoint": 5, "token_endpoint": None}, "`authorization_endpoint`, `token_endpoint`"),
        ({"scopes_supported": "tools"}, "`scopes_supported`"),
    ],
)
async def test_what_is_wrong_in_the_metadata_is_named(
    server: AuthServer, changes: dict[str, Any], named: str
) -> None:
    server.manners.metadata = changes

    assert f"is wrong or incomplete: {named}" in await abort_reason(remote(server.mcp_url))


async def test_a_client_registers_as_a_native_application_that_renews_its_tokens(server: AuthServer) -> None:
    await log_in(remote(server.mcp_url))

    (asked,) = server.requests_to("/register")
    registered = json.loads(asked.body)
    assert registered["application_type"] == "native"
    assert set(registered["grant_types"]) == {"authorization_code", "refresh_token"}


@pytest.mark.parametrize("path", ["", "/", "/mcp", "/mcp?"])
async def test_the_resource_is_sent_as_the_metadata_spells_it(server: AuthServer, path: str) -> None:
    spelled = f"http://127.0.0.1:{server.port}{path}"
    server.manners.prm = {"resource": spelled}

    await log_in(remote(server.mcp_url))

    sent = [*server.requests_to("/authorize"), *server.requests_to("/token")]
    assert [parameters(request)["resource"] for request in sent] == [spelled, spelled]


@pytest.mark.parametrize(
    ("says", "supported", "expected"),
    [("tools", ["tools", "more"], "tools"), ("", ["tools", "more"], "tools more"), ("", None, None)],
)
async def test_only_the_scope_that_the_server_asks_for_is_requested(
    server: AuthServer, says: str, supported: list[str] | None, expected: str | None
) -> None:
    server.manners.scopes_supported = supported
    server.manners.metadata = {"scopes_supported": ["everything"]}
    config = remote(server.mcp_url)

    async with begin_login(config, AddressPolicy(config.url), BearerChallenge(scope=says or None), None) as attempt:
        asked = dict(parse_qsl(urlsplit(attempt.url).query))

    assert asked.get("scope") == expected


async def test_the_configs_scopes_win(server: AuthServer) -> None:
    config = remote(server.mcp_url, scopes=("tools", "mine"))

    login, _ = await log_in(config)

    assert login.token is not None
    assert login.token.scope == "tools mine"


async def test_more_scope_than_requested_causes_a_warning(server: AuthServer) -> None:
    server.manners.granted = "tools admin"

    _, attempt = await log_in(remote(server.mcp_url))

    assert ["admin" in warning for warning in attempt.warnings] == [True]


async def test_over_ssh_the_address_of_the_browser_can_be_pasted(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    async with begin_login(config, AddressPolicy(config.url), await fetch_challenge(config), None) as attempt:
        async with web_client() as elsewhere:
            redirect = (await elsewhere.get(attempt.url)).headers["location"]
        attempt.paste(f"  {redirect}\n")
        login = await attempt.finish()

    assert login.token is not None


async def test_if_nobody_logs_in_the_login_ends_and_the_listener_closes(server: AuthServer) -> None:
    config = remote(server.mcp_url)
    async with begin_login(config, AddressPolicy(config.url), await fetch_challenge(config), None) as attempt:
        asked = dict(parse_qsl(urlsplit(attempt.url).query))
        with pytest.raises(LoginAborted, match="not completed"):
            await attempt.finish(within_s=0)

    with pytest.raises(httpx2.ConnectError):
        await browse(asked["redirect_uri"])


async def test_a_pasted_address_of_another_login_is_refused_and_the_right_one_still_works(
    server: AuthServer,
) -> None:
    config = remote(server.mcp_url)
    async with begin_login(config, AddressPolicy(config.url), await fetch_challenge(config), None) as attempt:
        for text in ("", "x", "http://127.0.0.1/callback?code=a&state=b", "http://127.0.0.1/callback?code=a"):
            with pytest.raises(UnexpectedResponse):
                attempt.paste(text)
        assert server.requests_to("/token") == []
        login, _ = await asyncio.gather(attempt.finish(), browse(attempt.url))
    assert login.token is not None
