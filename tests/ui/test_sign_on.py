"""A person logs in to the page by the login server of the config, as to any other client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from dynamic_mcp.config.auth import Forwarded, LoginAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.features.login_server.grants import GRACE_S
from dynamic_mcp.features.login_server.provider import LoginProvider
from tests.features.login_server.parties import ORIGIN, URL, forwarded
from tests.ui.site import Answer, Browser, Site, site_of

LOGIN = LoginAuth(access_ttl_s=300.0, refresh_ttl_s=3600.0)
HTTP = Http(public_url=URL, auth=(LOGIN, Forwarded(trusted_proxies=("127.0.0.1",))))


class LoginServer:
    """The login server in the same process, at whose pages a reverse proxy says that this is Ann."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.provider = LoginProvider(LOGIN, HTTP, folder / "logins.db", forwarded, now=lambda: site.now)
        self.chain = AuthChain([self.provider])
        site.service.configure(site.config, HTTP, self.chain, ORIGIN)
        self._cookies = ""

    async def allow(self, url: str) -> str:
        """Open the page of the login server, press its button, and return where the browser is sent."""
        page = Answer(await self._ask("GET", url))
        self._cookies = page.headers["set-cookie"].partition(";")[0]
        (form,) = page.document.find("form")
        fields = {each["name"]: each["value"] for each in page.document.find("input")}
        answer = Answer(await self._ask("POST", form["action"], urlencode({**fields, "decision": "allow"}).encode()))
        assert answer.status == 303, answer.text
        return answer.headers["location"]

    async def _ask(self, method: str, url: str, body: bytes = b"") -> Response:
        parts = urlsplit(url)
        path, target = parts.path.encode(), f"{parts.path}?{parts.query}".encode()
        page = self.chain.find_page(method, path)
        assert page is not None, url
        headers = {
            b"host": b"mcp.example.com",
            b"origin": ORIGIN.encode(),
            b"x-forwarded-user": b"ann",
            b"cookie": self._cookies.encode(),
            b"content-type": b"application/x-www-form-urlencoded",
        }
        return await page(PageRequest(RequestHead(method, target, headers, peer="127.0.0.1"), body))


@contextlib.asynccontextmanager
async def signing_on(folder: Path) -> AsyncIterator[tuple[Site, LoginServer]]:
    """Provide a page with a login server."""
    async with site_of(folder) as site:
        server = LoginServer(site, folder)
        try:
            yield site, server
        finally:
            await server.provider.close()


async def log_in(server: LoginServer, browser: Browser) -> Answer:
    begun = await browser.get("/ui/login/sign-on")
    assert begun.status == 303, begun.text
    back = await server.allow(begun.headers["location"])
    assert back.startswith(f"{ORIGIN}/ui/login/callback?")
    return await browser.get(back.removeprefix(ORIGIN))


def browser_of(site: Site) -> Browser:
    return Browser(site.service, host="mcp.example.com")


async def test_a_person_logs_in_with_their_account_and_stays_logged_in_by_the_refresh_token(tmp_path: Path) -> None:
    async with signing_on(tmp_path) as (site, server):
        browser = browser_of(site)
        assert "Log in with your account" in (await browser.get("/ui")).text

        assert (await log_in(server, browser)).headers["location"] == "/ui"
        first = await browser.get("/ui")
        site.now += 10 * LOGIN.access_ttl_s
        later = await browser.get("/ui")

        assert (first.status, later.status) == (200, 200)
        assert "ann" in later.text
        assert "operator" not in later.text


async def test_a_login_ends_where_the_login_server_ends_it(tmp_path: Path) -> None:
    async with signing_on(tmp_path) as (site, server):
        browser = browser_of(site)
        await log_in(server, browser)

        site.now += LOGIN.refresh_ttl_s + LOGIN.access_ttl_s + 1

        assert (await browser.get("/ui")).status == 401


async def test_a_login_that_is_renewed_is_kept_whatever_was_asked(tmp_path: Path) -> None:
    async with signing_on(tmp_path) as (site, server):
        browser = browser_of(site)
        await log_in(server, browser)
        for ask in (
            lambda: browser.stream("/ui/events"),
            lambda: browser.post("/ui/logout", {"csrf": "of another login"}, {"origin": ORIGIN}),
            lambda: browser.get("/ui/login"),
        ):
            site.now += LOGIN.access_ttl_s + 1  # so that whatever is asked now renews the login
            await ask()
            site.now += GRACE_S + 1  # from now on, what was renewed is worthless

        assert (await browser.get("/ui")).status == 200


async def test_an_answer_to_a_login_that_another_browser_has_begun_is_refused(tmp_path: Path) -> None:
    async with signing_on(tmp_path) as (site, server):
        mine, other = browser_of(site), browser_of(site)
        theirs = await server.allow((await other.get("/ui/login/sign-on")).headers["location"])
        await mine.get("/ui/login/sign-on")

        forged = await mine.get(theirs.removeprefix(ORIGIN))
        unbegun = await browser_of(site).get(theirs.removeprefix(ORIGIN))

        assert (forged.status, unbegun.status) == (403, 403)
        assert (await mine.get("/ui")).status == 401


async def test_a_login_that_is_refused_says_so_and_can_begin_again(tmp_path: Path) -> None:
    async with signing_on(tmp_path) as (site, server):
        browser = browser_of(site)
        begun = await browser.get("/ui/login/sign-on")
        state = dict(parse_qsl(urlsplit(begun.headers["location"]).query))["state"]

        refused = await browser.get(f"/ui/login/callback?error=access_denied&state={state}")

        assert refused.status == 403
        assert "access_denied" in refused.text
        assert (await log_in(server, browser)).status == 303
