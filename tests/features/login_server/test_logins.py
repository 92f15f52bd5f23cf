from __future__ import annotations

from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from dynamic_mcp.identity import Authentication, Principal
from tests.features.login_server.parties import (
    ORIGIN,
    REDIRECT,
    URL,
    Browser,
    Site,
    authorize_url,
    error_of,
    header,
    json_of,
    open_site,
    query_of,
)

pytestmark = pytest.mark.usefixtures("kept")


async def test_a_person_who_allows_a_client_is_who_its_access_token_stands_for(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in("ann", scope="files offline_access unknown")
        assert await site.authenticate(tokens["access_token"]) == Authentication(
            principal=Principal(ORIGIN, "ann"),
            provider="login",
            roles=("reader",),
            claims=(("groups", ("dev", "ops")),),
            scopes=frozenset({"files", "offline_access"}),
        )
        assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == (
            "Bearer",
            3600,
            "files offline_access",
        )


async def test_the_answer_names_the_issuer_and_the_state_beside_the_code(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client()))
        answer = query_of(await browser.submit("allow"))
        assert (answer["iss"], answer["state"], len(answer)) == (ORIGIN, "s-1", 3)


async def test_a_client_whose_person_says_no_is_told_so(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client(f"{REDIRECT}?a=b"), redirect_uri=f"{REDIRECT}?a=b"))
        response = await browser.submit("deny")
        assert query_of(response) == {"a": "b", "error": "access_denied", "state": "s-1", "iss": ORIGIN}


async def test_the_page_says_who_is_logged_in_which_client_asks_and_where_the_browser_goes(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site, "ann@example.com")
        await browser.open(authorize_url(await site.client(), scope="files"))
        for shown in ("Client", "ann@example.com", "client.example", URL, "files"):
            assert shown in browser.form.text
        assert "Any program on your computer" not in browser.form.text


async def test_the_page_warns_of_a_client_that_any_program_of_the_computer_could_be(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        id = await site.client("http://localhost:3000/cb", "http://127.0.0.1/cb")
        await browser.open(authorize_url(id, redirect_uri="http://localhost:41001/cb"))
        assert "Any program on your computer" in browser.form.text
        assert "localhost:41001" in browser.form.text


async def test_a_refresh_gives_new_tokens_with_the_same_rights(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first = await site.log_in("ann", scope="files")
        site.clock.advance(3000)
        second = json_of(await site.refresh(first))
        assert second["refresh_token"] != first["refresh_token"]
        assert await site.authenticate(second["access_token"]) == await site.authenticate(first["access_token"])
        site.clock.advance(700)
        assert not await site.is_good(first["access_token"])
        assert await site.is_good(second["access_token"])


async def test_a_login_that_nobody_uses_for_thirty_days_has_expired(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        site.clock.advance(30 * 24 * 3600 + 1)
        assert error_of(await site.refresh(tokens)) == "invalid_grant"


async def test_a_login_that_is_used_goes_on_for_longer_than_thirty_days(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        for _ in range(4):
            site.clock.advance(20 * 24 * 3600)
            tokens = {**tokens, **json_of(await site.refresh(tokens))}
        assert await site.is_good(tokens["access_token"])


async def test_after_ninety_days_a_person_has_to_log_in_again_so_that_their_groups_are_asked_for(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        for _ in range(5):
            site.clock.advance(17.9 * 24 * 3600)
            tokens = {**tokens, **json_of(await site.refresh(tokens))}
        site.clock.advance(24 * 3600)
        assert error_of(await site.refresh(tokens)) == "invalid_grant"


async def test_a_client_that_wants_no_refresh_token_gets_none(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client(grant_types=["authorization_code"])
        assert "refresh_token" not in await site.log_in(client_id=id)


async def test_a_stream_goes_on_with_the_next_token_and_ends_with_the_last(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first = await site.log_in()
        somebody = await site.authenticate(first["access_token"])
        assert isinstance(somebody, Authentication)
        site.clock.advance(3599)
        second = json_of(await site.refresh(first))
        assert await site.is_good(second["access_token"])
        site.clock.advance(3599)
        assert site.provider.is_valid(somebody)
        site.clock.advance(2)
        assert not site.provider.is_valid(somebody)


# --- for which part of the server ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "resource", ["", URL, f"{URL}/", ORIGIN, f"{ORIGIN}/", f"{ORIGIN}:443/mcp", "HTTPS://MCP.example.com/mcp"]
)
async def test_people_write_the_url_of_the_server_in_many_ways(tmp_path: Path, resource: str) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in(resource=resource)
        assert await site.is_good(tokens["access_token"], "/mcp")
        assert await site.is_good(tokens["access_token"], "/mcp/github")
        assert await site.is_good(tokens["access_token"], "/sse")


async def test_a_token_for_one_group_is_for_no_other(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        token = (await site.log_in(resource=f"{URL}/github"))["access_token"]
        assert await site.is_good(token, "/mcp/github")
        assert await site.is_good(token, "/mcp/%67ithub/")
        assert await site.is_good(token, "/sse/github")
        for path in ("/mcp", "/mcp/git", "/mcp/github2", "/mcp/other", "/sse", "/mcp/profile/github"):
            assert not await site.is_good(token, path)


@pytest.mark.parametrize(
    "resource",
    [
        "https://other.example/mcp",
        f"{ORIGIN}/other",
        f"{URL}x",
        f"{URL}#a",
        f"{URL}?a=b",
        "mcp",
        "http://[",
        f"{ORIGIN}.evil/mcp",
    ],
)
async def test_no_token_is_given_for_another_server(tmp_path: Path, resource: str) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        assert (await browser.open(authorize_url(await site.client(), resource=resource))).status == 400
        tokens = await site.log_in()
        assert error_of(await site.refresh(tokens, resource=resource)) == "invalid_target"


async def test_a_token_is_for_few_parts_of_the_server_so_that_it_stays_short(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        url = authorize_url(await site.client())
        few, many = ("".join(f"&resource={URL}/g{number}" for number in range(count)) for count in (5, 6))
        assert (await Browser(site).open(url + few)).status == 200
        assert (await Browser(site).open(url + many)).status == 400
        assert (await Browser(site).open(f"{url}&resource={URL}/{'a' * 500}")).status == 400


async def test_a_refresh_can_be_for_less_and_never_for_more(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in(resource=f"{URL}/a", scope="files")
        assert error_of(await site.refresh(tokens, resource=URL)) == "invalid_target"
        less = json_of(await site.refresh(tokens, resource=f"{URL}/a", scope="offline_access"))
        assert "scope" not in less
        assert await site.is_good(less["access_token"], "/mcp/a")


async def test_the_usual_port_makes_no_difference_to_browsers_nor_to_us(tmp_path: Path) -> None:
    async with open_site(tmp_path, public_url=f"{ORIGIN}:443/mcp") as site:
        assert await site.is_good((await site.log_in(resource=URL))["access_token"])


# --- documents -----------------------------------------------------------------------------------------


async def test_the_metadata_says_where_everything_is_and_what_is_required(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        metadata = json_of(await site.ask("GET", "/.well-known/oauth-authorization-server"))
        assert metadata["issuer"] == ORIGIN
        assert metadata["code_challenge_methods_supported"] == ["S256"]
        assert metadata["authorization_response_iss_parameter_supported"] is True
        assert metadata["client_id_metadata_document_supported"] is True
        assert metadata["scopes_supported"] == ["offline_access"]
        for name in ("authorization", "token", "registration", "revocation"):
            path = metadata[f"{name}_endpoint"].removeprefix(ORIGIN).encode()
            assert any(site.provider.find_page(method, path) for method in ("GET", "POST"))


async def test_behind_a_path_of_a_reverse_proxy_the_issuer_has_it_too(tmp_path: Path) -> None:
    url = f"{ORIGIN}/tools/mcp"
    async with open_site(tmp_path, public_url=url) as site:
        for path in (
            "/.well-known/oauth-authorization-server/tools",
            "/.well-known/oauth-authorization-server",
            "/tools/.well-known/openid-configuration",
            "/.well-known/openid-configuration/tools",
        ):
            assert json_of(await site.ask("GET", path))["issuer"] == f"{ORIGIN}/tools"
        assert site.provider.find_page("GET", b"/tools/authorize") is not None
        assert site.provider.find_page("GET", b"/authorize") is not None
        tokens = await site.log_in(resource=url)
        assert await site.is_good(tokens["access_token"], "/tools/mcp/a")
        assert await site.is_good(tokens["access_token"], "/mcp/a")


async def test_the_published_keys_are_those_that_sign_and_nothing_of_them_is_private(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        token = (await site.log_in())["access_token"]
        published = json_of(await site.ask("GET", "/.well-known/jwks.json"))
        assert [set(key) & {"d", "k"} for key in published["keys"]] == [set()]
        decoded = jwt.decode(token, KeySet.import_key_set(published), algorithms=["ES256"])
        assert (decoded.header["typ"], decoded.claims["aud"], decoded.claims["iss"]) == ("at+jwt", URL, ORIGIN)


async def test_a_key_is_replaced_after_a_while_and_what_it_has_signed_still_counts(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.clock.advance(0)
        await site.ask("GET", "/.well-known/jwks.json")
        site.clock.advance(90 * 24 * 3600 - 60)
        old = (await site.log_in())["access_token"]
        site.clock.advance(120)
        new = (await site.log_in())["access_token"]
        assert old.partition(".")[0] != new.partition(".")[0]
        assert await site.is_good(old)
        assert await site.is_good(new)


async def test_what_is_asked_with_the_wrong_method_is_told_the_right_one(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        response = await site.ask("GET", "/token")
        assert (response.status, header(response, "allow")) == (405, "POST, OPTIONS")
        assert (await site.ask("OPTIONS", "/token")).status == 204


async def test_paths_of_mcp_are_none_of_its_pages(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        paths = (b"/mcp", b"/mcp/", b"/mcp/token", b"/sse", b"/messages", b"/health", b"/ready", b"/")
        assert all(site.provider.find_page(method, path) is None for method in ("GET", "POST") for path in paths)


async def _revoke(site: Site, client_id: str, token: str) -> None:
    response = await site.post_form("/revoke", {"token": token, "client_id": client_id})
    assert response.status == 200


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_client_can_revoke_its_login_by_either_of_its_tokens(tmp_path: Path, kind: str) -> None:
    async with open_site(tmp_path) as site:
        tokens, others = await site.log_in(), await site.log_in()
        assert await site.is_good(tokens["access_token"])
        await _revoke(site, others["client_id"], tokens[kind])
        await _revoke(site, tokens["client_id"], "unknown")
        assert await site.is_good(tokens["access_token"])
        await _revoke(site, tokens["client_id"], tokens[kind])
        assert not await site.is_good(tokens["access_token"])
        assert error_of(await site.refresh(tokens)) == "invalid_grant"
        assert await site.is_good(others["access_token"])
