"""Logins that are refused are told to observers: who is refused, and not what is only written wrong."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.face.http.authenticator import AuthRejection
from dynamic_mcp.face.http.exchange import Response
from tests.features.login_server.parties import Browser, authorize_url, open_site


def why(response: Response) -> str:
    """Return what observers are told of an answer; empty if nothing."""
    if not isinstance(response, AuthRejection):
        return ""
    assert response.provider == "login"
    return response.why


async def test_wrong_codes_verifiers_and_refresh_tokens_are_told(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        client = await site.client()
        assert why(await site.redeem(client, "made-up")) == "unknown code"
        code = await site.code("ann", client)
        assert "`code_verifier`" in why(await site.redeem(client, code, code_verifier="x" * 43))
        assert why(await site.redeem(client, code)) == "the code has expired"
        tokens = await site.log_in()
        assert why(await site.refresh({**tokens, "refresh_token": "made-up"})) == "unknown refresh token"
        assert why(await site.refresh({**tokens, "client_id": "nobody"})).startswith("unknown client")
        assert why(await site.refresh(tokens)) == ""


async def test_a_person_who_says_no_is_told_with_the_client(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        client, browser = await site.client(), Browser(site)
        await browser.open(authorize_url(client))
        said = why(await browser.submit("deny"))
    assert said == f"the user denied the client '{client}' access"


async def test_a_consent_that_was_not_asked_for_is_told(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client()))
        assert why(await browser.submit("allow", csrf="made-up")) == "this page has expired or was already used"


async def test_a_person_whom_nobody_names_is_told(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        url = authorize_url(await site.client())
        assert "did not name a user" in why(await site.ask("GET", url))


async def test_what_goes_well_or_is_written_wrong_is_not_told(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser, client = Browser(site), await site.client()
        assert why(await browser.open(authorize_url(client))) == ""
        assert why(await browser.submit("allow")) == ""
        assert why(await site.post_form("/token", {"grant_type": "password"})) == ""
        assert why(await site.ask("GET", authorize_url(client, response_type="token"))) == ""
        assert why(await site.ask("PUT", "/token")) == ""
