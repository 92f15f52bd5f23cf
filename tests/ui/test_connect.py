"""The section that connects AI tools: what it tells for which tool, and tokens and logins of a person's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.access import Access, AccessRule, Profile
from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.auth import Forwarded, LoginAuth, Oidc
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.face.auth.token_store import StoredToken, token_store
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.oauth.store import LoginStore
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event, Observer, Observers
from dynamic_mcp.proxy.search import SearchExplanation
from dynamic_mcp.system.shell import quote
from dynamic_mcp.ui.connect import ConnectSection
from dynamic_mcp.ui.now import NowSection
from dynamic_mcp.ui.own_tokens import OwnTokens
from dynamic_mcp.ui.section import PageSection, UiContext, Visit
from tests.fakes import Client, config_of, group_config, settled
from tests.oauth.parts import issue_login, remote, store_login
from tests.oauth.visits import browse
from tests.program import BOUND_S
from tests.ui.site import TOKENS, URL, Answer, Browser, Site, bearer_http, site_of
from tests.upstreams.auth_server import AuthServer

UI = Ui(operators=("admins",), approvers=("checkers",))
SECTIONS: tuple[type[PageSection], ...] = (NowSection, ConnectSection)
ROLES = Access(roles={name: (AccessRule(),) for name in ("admins", "checkers", "staff")})
CREATE, REVOKE = "/ui/connect/tokens/create", "/ui/connect/tokens/revoke"


class Nobody:
    """A person who sees no groups."""

    groups: Sequence[ViewedGroup] = ()

    def group(self, name: str) -> ViewedGroup:
        raise NotFound("group", name, ())

    async def begin(self) -> None:
        return

    async def explain_search(self, query: str, *, group: str = "") -> SearchExplanation:
        raise NotFound("query", query, ())

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        raise NotFound("method", method, ())


def visit_of(issuer: str, subject: str) -> Visit:
    who = Authentication(Principal(issuer, subject), issuer)
    return Visit(who, (), is_operator=False, is_approver=False, client=Nobody(), base="/ui", now=1_800_000_000.0)


class Notes(Observer):
    """Keeps the events of a proxy."""

    def __init__(self, site: Site) -> None:
        self.events: list[Event] = []
        site.proxy.observers = Observers([self])

    def note(self, event: Event) -> None:
        self.events.append(event)

    def of(self, name: str) -> list[Event]:
        return [each for each in self.events if each.name == name]


@contextlib.asynccontextmanager
async def connect_site(folder: Path, served: Http | None = None, **changes: object) -> AsyncIterator[Site]:
    config = replace(config_of(ui=UI, access=ROLES), **changes)
    async with site_of(folder, config, sections=SECTIONS) as site:
        site.configure(site.config, served)
        yield site


def tokens_of(site: Site) -> tuple[StoredToken, ...]:
    return token_store(site.config.file).load()


# --- AI tools --------------------------------------------------------------------------------------------


async def test_a_tool_is_told_the_url_of_this_server(tmp_path: Path) -> None:
    async with connect_site(tmp_path) as site:
        browser = await site.local_user()
        first = await browser.get("/ui/connect")
        assert "http://127.0.0.1:8808/mcp" in first.text
        assert first.document.find("a", href="/ui/connect/cursor?")
        page = await browser.get("/ui/connect/cursor")
        assert '"url": "http://127.0.0.1:8808/mcp"' in page.text
        assert "dynamic-mcp install cursor --url http://127.0.0.1:8808/mcp" in page.text
        assert "Authorization" not in page.text
        assert [each for each in page.document.find("a") if each["href"].startswith("cursor://")]


async def test_a_profile_is_a_part_of_the_url_and_of_the_command(tmp_path: Path) -> None:
    async with connect_site(tmp_path, profiles={"re view": Profile(name="re view")}) as site:
        browser = await site.local_user()
        page = await browser.get("/ui/connect/claude?profile=re+view")
        assert "http://127.0.0.1:8808/mcp/profile/re%20view" in page.text
        assert quote("--profile", "re view") in page.text
        assert "profile/nothing" not in (await browser.get("/ui/connect/claude?profile=nothing")).text


async def test_the_local_user_can_have_a_tool_start_it(tmp_path: Path) -> None:
    async with connect_site(tmp_path) as site:
        page = await (await site.local_user()).get("/ui/connect/codex?way=start")
        assert str(site.config.file) in page.text
        assert f"dynamic-mcp install codex -c {site.config.file}" in page.text


async def test_a_person_from_elsewhere_is_told_nothing_of_this_machine(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        page = await (await site.person("eve")).get("/ui/connect/codex?way=start")
        assert str(site.config.file) not in page.text
        assert "http://127.0.0.1:8808/mcp" in page.text


async def test_a_token_is_asked_for_in_the_way_of_the_tool_and_never_shown(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        browser = await site.person("eve")
        assert '"Bearer ${env:DYNAMIC_MCP_TOKEN}"' in (await browser.get("/ui/connect/cursor")).text
        assert "PUT-YOUR-TOKEN-HERE" in (await browser.get("/ui/connect/lm-studio")).text
        assert TOKENS["eve"] not in (await browser.get("/ui/connect/cursor")).document.html


async def test_where_tools_log_in_no_token_is_needed(tmp_path: Path) -> None:
    oidc = Oidc(issuer="https://id.example.com", client_id="us")
    http = Http(public_url="https://mcp.example.com/mcp", auth=(LoginAuth(oidc=oidc),))
    async with connect_site(tmp_path, http) as site:
        page = await (await site.local_user()).get("/ui/connect/cursor")
        assert '"url": "https://mcp.example.com/mcp"' in page.text
        assert "opens a browser to log you in" in page.text
        assert "Bearer" not in page.text


async def test_where_only_the_page_is_served_tools_start_the_program(tmp_path: Path) -> None:
    async with connect_site(tmp_path) as site:
        site.configure(site.config, Http(listen=TcpAddress("127.0.0.1", 8808)), base_url="http://127.0.0.1:40123")
        page = await (await site.local_user()).get("/ui/connect/cursor")
        assert "40123" not in page.text
        assert str(site.config.file) in page.text


async def test_an_unknown_tool_is_no_page_and_aliases_are(tmp_path: Path) -> None:
    async with connect_site(tmp_path) as site:
        browser = await site.local_user()
        assert (await browser.get("/ui/connect/no-such-tool")).status == 404
        assert (await browser.get("/ui/connect/claude-code")).status == 200
        assert "No tool is named like that" in (await browser.get("/ui/connect?q=%3Cscript%3E")).text


# --- tokens ----------------------------------------------------------------------------------------------


async def test_a_token_is_shown_once_in_the_answer_and_in_no_other_place(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        notes, browser = Notes(site), await site.local_user()
        answer = await browser.act(CREATE, {"subject": "bot", "role:staff": "on", "expires": "30d"}, on="/ui")
        (stored,) = tokens_of(site)
        token = next(word for word in answer.text.split() if word.startswith("dmcp_")).removesuffix("Copy")
        assert answer.status == 200
        assert (stored.subject, stored.roles) == ("bot", ("staff",))
        assert stored.expires_at == stored.created_at + 30 * 86_400
        assert all(token not in value for value in (*answer.headers.values(), *browser.cookies.values()))
        assert token not in (await browser.get("/ui/connect/tokens")).document.html
        (event,) = notes.of("token.created")
        assert (event.members["id"], event.members["for"], event.members["roles"]) == (stored.id, "bot", ["staff"])
        assert token not in repr(event)
        assert (await _enter(site, token)).status == 303


async def _enter(site: Site, token: str) -> Answer:
    return await site.browser().post("/ui/login", {"token": token})


async def test_a_person_gets_tokens_of_their_own_name_and_no_other_roles_than_they_came_with(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        browser = await site.person("eve")
        await browser.act(CREATE, {"subject": "ann", "role:staff": "on", "expires": "30d"})
        assert [(each.subject, each.roles) for each in tokens_of(site)] == [("eve", ("staff",))]
        refused = await browser.act(CREATE, {"role:admins": "on", "expires": "30d"})
        assert refused.status == 303
        assert "you cannot give the role `admins`" in (await browser.get("/ui/connect/tokens")).text
        assert len(tokens_of(site)) == 1


async def test_a_token_of_a_person_does_not_outlive_those_that_they_have(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        store = token_store(site.config.file)
        token, old = store.create("zoe", ("staff",), lifetime_s=3600.0, now=site.now)
        browser = site.browser()
        await browser.post("/ui/login", {"token": token})
        await browser.act(CREATE, {"expires": "90d"})
        ends = [each.expires_at for each in tokens_of(site)]
        assert ends == [old.expires_at, old.expires_at]


async def test_a_person_sees_and_revokes_their_own_tokens_alone(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        store, notes = token_store(site.config.file), Notes(site)
        _, of_eve = store.create("eve", (), lifetime_s=None, now=site.now)
        _, of_bob = store.create("bob", (), lifetime_s=None, now=site.now)
        browser = await site.person("eve")
        page = await browser.get("/ui/connect/tokens")
        assert of_eve.id in page.text
        assert of_bob.id not in page.text
        await browser.act(REVOKE, {"id": of_bob.id})
        assert len(tokens_of(site)) == 2
        await browser.act(REVOKE, {"id": of_eve.id})
        assert tokens_of(site) == (of_bob,)
        assert [each.members["id"] for each in notes.of("token.revoked")] == [of_eve.id]
        assert of_bob.id in (await (await site.person("ann")).get("/ui/connect/tokens")).text


async def test_who_is_not_named_by_a_token_gets_none(tmp_path: Path) -> None:
    """A token for the same name would be another principal, perhaps another person's."""
    http = Http(auth=(*bearer_http().auth, Forwarded(trusted_proxies=("127.0.0.1",))))
    async with connect_site(tmp_path, http) as site:
        page = await site.browser().get("/ui/connect/tokens", {"x-forwarded-user": "ann"})
        assert page.status == 200
        assert "An operator can make one for you" in page.text
        assert not page.document.find("form", action=CREATE)
        tokens = OwnTokens(UiContext(site.proxy, site.config, http, URL, site.folder))
        with pytest.raises(DynamicMcpError):
            await tokens.create(visit_of("forwarded", "ann"), "ann", (), "30d")
        assert tokens_of(site) == ()


async def test_there_are_no_tokens_where_the_config_takes_none(tmp_path: Path) -> None:
    async with connect_site(tmp_path) as site:
        browser = await site.local_user()
        assert (await browser.get("/ui/connect/tokens")).status == 404
        assert (await browser.act(CREATE, {"subject": "bot", "expires": "30d"})).status == 404
        assert tokens_of(site) == ()


async def test_tokens_are_made_too_where_only_the_page_is_served(tmp_path: Path) -> None:
    async with connect_site(tmp_path, http=bearer_http()) as site:
        browser = await site.local_user()
        await browser.act(CREATE, {"subject": "bot", "expires": "30d"})
        assert [each.subject for each in tokens_of(site)] == ["bot"]


async def test_hostile_names_of_tokens_stay_text(tmp_path: Path) -> None:
    async with connect_site(tmp_path, bearer_http()) as site:
        store = token_store(site.config.file)
        for number in range(300):
            store.create(f"<script>alert({number})</script>" + "x" * 150, (), lifetime_s=None, now=site.now)
        page = await (await site.local_user()).get("/ui/connect/tokens")
        assert page.document.find("script") == page.document.find("script", type="module")
        assert "<script>alert(" in page.text
        assert "Page 1 of 8" in page.text
        assert len(page.response.body) < 50_000


# --- logins ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def login_site(folder: Path, far: Remote, http: Http | None = None) -> AsyncIterator[Site]:
    """Run the page of a proxy with a server that wants a login."""
    config = replace(config_of(group_config("far", upstream=far), ui=UI), file=folder / "config.json")
    logins = Logins(folder / "logins", lambda group: f"dynamic-mcp auth login {group}", None)
    logins.base_url = None if http is None else "http://127.0.0.1:8808"
    proxy = Proxy(config, open_logins=lambda: logins, state_folder=folder)
    site = Site(proxy, config, folder, SECTIONS)
    site.configure(config, http)
    try:
        yield site
    finally:
        await site.service.close()
        await proxy.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():
            await settled()


async def _connect(site: Site, browser: Browser) -> None:
    """Have the server of a person ask for a login, and its group know."""
    await browser.act("/ui/now/retry/far")


async def test_the_local_user_logs_in_in_the_browser_and_forgets_the_login(tmp_path: Path) -> None:
    async with AuthServer() as server, login_site(tmp_path, remote(server.mcp_url)) as site:
        notes, browser = Notes(site), await site.local_user()
        await _connect(site, browser)
        await until(lambda: site.proxy.groups["far"].state is State.NEEDS_LOGIN)
        assert "1 server needs you to log in" in (await browser.get("/ui")).text
        page = await browser.act("/ui/connect/logins/begin", {"group": "far"})
        (link,) = page.document.find("a", rel="noopener noreferrer")
        assert link["href"].startswith(f"{server.url}/authorize?")
        assert (await browse(link["href"])).status_code == 200
        await until(lambda: site.proxy.groups["far"].state is State.READY)
        assert "logged in" in (await browser.get("/ui/connect/logins")).text
        assert notes.of("login.done")
        await browser.act("/ui/connect/logins/end", {"group": "far"})
        assert "The login at far is forgotten." in (await browser.get("/ui/connect/logins")).text
        assert server.requests_to("/revoke")
        assert [dict(each.members)["group"] for each in notes.of("login.ended")] == ["far"]


async def test_a_person_gets_a_link_of_their_own_and_forgets_only_their_own_login(tmp_path: Path) -> None:
    async with AuthServer() as server, login_site(tmp_path, remote(server.mcp_url), bearer_http()) as site:
        far, folder = remote(server.mcp_url), tmp_path / "logins"
        stores = {
            name: store_login(folder, far_of(far, name), issue_login(server, person=Principal("token", name)))
            for name in ("bob", "eve")
        }
        browser = await site.person("eve")
        assert "logged in" in (await browser.get("/ui/connect/logins")).text
        page = await browser.act("/ui/connect/logins/begin", {"group": "far"})
        (link,) = page.document.find("a", rel="noopener noreferrer")
        assert link["href"].startswith("http://127.0.0.1:8808/upstream-login/")
        await browser.act("/ui/connect/logins/end", {"group": "far"})
        assert [name for name, store in stores.items() if _has_token(store)] == ["bob"]


async def test_a_person_does_not_see_the_server_of_their_namesake_of_another_issuer(tmp_path: Path) -> None:
    async with login_site(tmp_path, remote("http://127.0.0.1:9/mcp"), bearer_http()) as site:
        namesake = Client(site.proxy, authentication=Authentication(Principal("https://other.example", "eve"), "jwt"))
        await namesake.initialize()
        await namesake.call("far", "echo")
        await until(lambda: any(each.state is State.WAITING for each in site.proxy.groups))

        page = await (await site.person("eve")).get("/ui")

        assert "refuses connections" not in page.text


def far_of(far: Remote, name: str) -> Remote:
    return replace(far, login_of=Principal("token", name))


def _has_token(store: LoginStore) -> bool:
    login = store.load()
    return login is not None and login.token is not None


async def test_a_login_for_all_is_not_begun_from_elsewhere(tmp_path: Path) -> None:
    far = remote("http://127.0.0.1:9/mcp", is_shared=True)
    async with login_site(tmp_path, far, bearer_http()) as site:
        for name in ("ann", "eve"):
            browser = await site.person(name)
            answer = await browser.act("/ui/connect/logins/begin", {"group": "far"})
            assert answer.status == 303
            assert "one login for all" in (await browser.get("/ui/connect/logins")).text


async def test_a_login_that_cannot_begin_says_why(tmp_path: Path) -> None:
    async with login_site(tmp_path, remote("http://127.0.0.1:9/mcp")) as site:
        browser = await site.local_user()
        await browser.act("/ui/connect/logins/begin", {"group": "far"})
        page = await browser.get("/ui/connect/logins")
        assert page.document.find("p", role="alert")
        await browser.act("/ui/connect/logins/begin", {"group": "nothing"})
        assert "nothing" in unquote((await browser.get("/ui/connect/logins")).text)
