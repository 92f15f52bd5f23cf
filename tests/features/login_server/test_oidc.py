"""Logins where an OpenID Connect provider says who somebody is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dynamic_mcp.config.auth import Oidc
from dynamic_mcp.config.http import Http
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.oidc import OidcIdentityProvider
from dynamic_mcp.identity import Authentication
from tests.features.login_server.parties import (
    ORIGIN,
    URL,
    Browser,
    Site,
    authorize_url,
    header,
    json_of,
    open_site,
    query_of,
)
from tests.oidc_provider import OidcProvider
from tests.web import web_client

pytestmark = pytest.mark.usefixtures("kept")

CALLBACK = f"{ORIGIN}/login/callback"


@asynccontextmanager
async def open_sites(folder: Path) -> AsyncIterator[tuple[Site, OidcProvider]]:
    """Open a server, and the provider that it asks."""
    async with OidcProvider() as provider:
        provider.register("us", CALLBACK, secret="secret")
        provider.person.groups = ["dev"]
        who = OidcIdentityProvider(Oidc(provider.issuer, "us", "secret"), Addresses(Http(public_url=URL)))
        async with open_site(folder, who=who) as site:
            yield site, provider


async def log_in(browser: Browser) -> str:
    """Let a browser that was sent to the provider log in there; return where it is sent back to."""
    async with web_client() as web:
        answer = await web.get(header(browser.page, "location"))
        return answer.headers["location"]


async def test_a_person_logs_in_elsewhere_and_decides_here(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        id = await site.client()
        browser = Browser(site, "")
        await browser.open(authorize_url(id))
        back = await log_in(browser)
        await browser.open(back)
        assert "ann@example.com" in browser.form.text
        tokens = json_of(await site.redeem(id, query_of(await browser.submit("allow"))["code"]))
        somebody = await site.authenticate(tokens["access_token"])
        assert isinstance(somebody, Authentication)
        assert (somebody.principal.issuer, somebody.principal.subject) == (ORIGIN, "ann@example.com")
        assert somebody.claim("groups") == ("dev",)
        assert somebody.claim("nonce") == somebody.claim("iss") == ()


async def test_nobody_decides_for_a_person_whom_they_have_sent_to_log_in(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        id = await site.client()
        eve, ann = Browser(site, ""), Browser(site, "")
        await eve.open(authorize_url(id))
        state_of_eve = query_of(eve.page)["state"]
        await ann.open(await log_in(eve))  # Ann has clicked a link of Eve's, and was logged in at the provider
        assert "ann@example.com" in ann.form.text
        fields = {"request": state_of_eve, "csrf": state_of_eve, "decision": "allow"}
        cookie = "; ".join(f"{name}={value}" for name, value in eve.cookies.items())
        assert (await eve.post(fields, origin=ORIGIN, cookie=cookie)).status == 400
        assert (await eve.post({**ann.form.fields, "decision": "allow"}, origin=ORIGIN, cookie=cookie)).status == 400
        assert (await ann.submit("allow")).status == 303


async def test_a_browser_that_began_another_login_does_not_end_this_one(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        id = await site.client()
        eve, ann = Browser(site, ""), Browser(site, "")
        await eve.open(authorize_url(id))
        await ann.open(authorize_url(id))
        back = await log_in(eve)
        assert (await ann.open(back)).status == 400
        assert (await eve.open(back)).status == 200


async def test_a_login_comes_back_once(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        browser = Browser(site, "")
        await browser.open(authorize_url(await site.client()))
        back = await log_in(browser)
        assert (await browser.open(back)).status == 200
        assert (await browser.open(back)).status == 400


async def test_a_login_that_comes_back_too_late_is_over(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        browser = Browser(site, "")
        await browser.open(authorize_url(await site.client()))
        back = await log_in(browser)
        site.clock.advance(601)
        assert (await browser.open(back)).status == 400


@pytest.mark.parametrize(
    "query", ["", "?state=x", "?code=a&state=x", "?state=", "?error=access_denied&state=x", "?state=a&state=b"]
)
async def test_a_callback_that_belongs_to_no_login_is_a_page_that_says_so(tmp_path: Path, query: str) -> None:
    async with open_sites(tmp_path) as (site, _):
        assert (await Browser(site, "").open(f"/login/callback{query}")).status == 400


async def test_who_is_refused_by_the_provider_reads_why_and_gets_no_page_to_decide_on(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, provider):
        provider.manners.refuses = "access_denied"
        browser = Browser(site, "")
        await browser.open(authorize_url(await site.client()))
        await browser.open(await log_in(browser))
        assert (browser.page.status, "access_denied" in browser.form.text, browser.form.fields) == (403, True, {})


async def test_an_answer_of_another_provider_is_not_believed(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, provider):
        provider.manners.callback = {"iss": "https://evil.example"}
        browser = Browser(site, "")
        await browser.open(authorize_url(await site.client()))
        assert (await browser.open(await log_in(browser))).status == 403


async def test_while_the_provider_is_gone_people_are_told_so(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, provider):
        await provider.stop()
        assert (await Browser(site, "").open(authorize_url(await site.client()))).status == 403


async def test_headers_of_a_reverse_proxy_mean_nothing_where_a_provider_is_asked(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        browser = Browser(site, "root")
        assert (await browser.open(authorize_url(await site.client()))).status == 303
        await browser.open(await log_in(browser))
        assert "root" not in browser.form.text


async def test_a_browser_that_loses_cookies_can_log_in_elsewhere(tmp_path: Path) -> None:
    async with open_sites(tmp_path) as (site, _):
        browser = Browser(site, "", loses_cookies=True)
        await browser.open(authorize_url(await site.client()))
        await browser.open(await log_in(browser))
        assert (await browser.submit("allow")).status == 303
