"""Persons log in to a server behind the proxy by links, each for itself, with a real authorization server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from msgspec.structs import replace

from dynamic_mcp.face.auth.bearer import BearerProvider, TokenFile
from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.auth.forwarded import ForwardedProvider
from dynamic_mcp.face.auth.token_store import TokenStore
from dynamic_mcp.face.auth.upstream_login import UpstreamLoginPages
from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.links import LoginLinks
from tests.face.auth.office import (
    ASKS,
    BEARER,
    FORWARDED,
    TOKENS,
    browser,
    echo,
    link_in,
    office,
    person,
)
from tests.face.http.modern_parties import META, headers_for, modern
from tests.fakes import Json
from tests.http_client import HttpClient
from tests.mcp_client import BOTH, McpClient
from tests.oauth.parts import bearer, remote
from tests.program import BOUND_S
from tests.upstreams.auth_server import Answer, AuthServer


async def post_modern(http: HttpClient, name: str, params: dict[str, Json]) -> dict[str, Json]:
    """Post a call of a modern client that takes links, and return its result, or its error."""
    message = modern("tools/call", params)
    message["params"]["_meta"] = {**META, "io.modelcontextprotocol/clientCapabilities": ASKS}
    headers = {
        **headers_for(message),
        "Content-Type": "application/json",
        "Accept": BOTH,
        "Authorization": f"Bearer {TOKENS[name]}",
    }
    response = await http.request("POST", "/mcp", headers, json.dumps(message).encode())
    data = await response.read()
    answer = json.loads(data.partition(b"data:")[2] if response.is_stream else data)
    result: dict[str, Json] = answer.get("result") or answer["error"]
    return result


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        server.manners.is_personal = True
        yield server


# --- each person for itself ---------------------------------------------------------------------------------


async def test_two_persons_log_in_and_are_served_with_their_own_tokens_and_catalogs(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, person(place.url, "bob") as bob:
        said: list[str] = []
        tools: list[str] = []
        for client in (ann, bob):
            async with browser() as own:
                page = await own.log_in(link_in(await echo(client)))
            assert page.status_code == 200
            said.append(await echo(client))
        for client in (ann, bob):
            params = {"name": "get_dynamic_tools", "arguments": {"group": "far"}}
            tools.append(str(await client.request("tools/call", params)))

        assert said == ["grant 0", "grant 1"]
        assert [["tool_of_0" in text, "tool_of_1" in text] for text in tools] == [[True, False], [False, True]]
    sent = str([(each.headers, each.body, each.query) for each in server.requests])
    assert not any(token in sent for token in TOKENS.values())


async def test_a_restart_finds_the_logins_of_all_persons_again(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, person(place.url, "bob") as bob:
        for client in (ann, bob):
            async with browser() as own:
                await own.log_in(link_in(await echo(client)))

    async with office(tmp_path, server) as place, person(place.url, "bob") as bob, person(place.url, "ann") as ann:
        assert [await echo(each) for each in (ann, bob)] == ["grant 0", "grant 1"]


async def test_a_login_that_ends_costs_its_person_alone(server: AuthServer, tmp_path: Path) -> None:
    server.manners.rotates = False
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, person(place.url, "bob") as bob:
        for client in (ann, bob):
            async with browser() as own:
                await own.log_in(link_in(await echo(client)))

        server.revoke(0)

        assert link_in(await echo(ann))
        assert await echo(bob) == "grant 1"
        assert await echo(bob) == "grant 1"


async def test_the_group_comes_up_by_itself_after_the_login_and_its_tools_are_announced(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        link = link_in(await echo(ann))
        stream = await ann.listen()

        await own.log_in(link)

        async with asyncio.timeout(BOUND_S):
            await stream.hear("notifications/tools/list_changed")
        stream.cut()


async def test_one_login_is_for_all_where_the_config_says_so_and_is_not_offered_to_persons(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server, is_shared=True) as place, person(place.url, "ann", capabilities=ASKS) as ann:
        refused = await echo(ann)
    assert "the administrator of dynamic-mcp must log in there" in refused
    assert "http://" not in refused
    assert "auth login" not in refused


async def test_without_a_public_url_the_error_says_what_is_missing(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server, BEARER, is_public=False) as place, person(place.url, "ann") as ann:
        assert "`settings.http.public_url` is not set" in await echo(ann)


async def test_a_client_of_one_group_is_told_the_link_when_it_says_hello(server: AuthServer, tmp_path: Path) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    shown = {"Authorization": f"Bearer {TOKENS['ann']}"}
    async with office(tmp_path, server) as place, HttpClient(place.url) as http, browser() as own:
        client = McpClient(http, "/mcp/far", headers=shown)
        refused = await (await client.post(client.message("initialize", hello))).read()

        await own.log_in(link_in(refused.decode()))

        async with person(place.url, "ann", path="/mcp/far") as direct:
            answer = await direct.request("tools/call", {"name": "echo", "arguments": {}})
        assert answer["result"]["content"][0]["text"] == "grant 0"


# --- URL elicitation ----------------------------------------------------------------------------------------


async def test_a_call_waits_for_the_login_where_the_client_takes_the_link(server: AuthServer, tmp_path: Path) -> None:
    async with (
        office(tmp_path, server) as place,
        person(place.url, "ann", capabilities=ASKS) as ann,
        browser() as own,
    ):
        arguments = {"group": "far", "name": "echo", "args": {}}
        id, stream = await ann.begin("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
        async with asyncio.timeout(BOUND_S):
            question = await stream.hear("elicitation/create")
            await ann.reply(question, {"action": "accept"})
            assert (await own.log_in(question["params"]["url"])).status_code == 200
            answer = await stream.until(id)

        assert question["params"]["mode"] == "url"
        assert answer["result"]["content"][0]["text"] == "grant 0"
        assert [each["method"] for each in stream.messages if "method" in each][-1].endswith("elicitation/complete")


async def test_a_client_that_declines_is_told_the_link_and_asked_no_more(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann", capabilities=ASKS) as ann:
        arguments = {"group": "far", "name": "echo", "args": {}}
        id, stream = await ann.begin("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
        async with asyncio.timeout(BOUND_S):
            question = await stream.hear("elicitation/create")
            await ann.reply(question, {"action": "decline"})
            answer = await stream.until(id)

        assert link_in(str(answer)) == question["params"]["url"]
        assert link_in(await echo(ann)) == question["params"]["url"]


async def test_a_modern_client_is_asked_to_open_the_link_and_its_retry_goes_on(
    server: AuthServer, tmp_path: Path
) -> None:
    arguments = {"group": "far", "name": "echo", "args": {}}
    params = {"name": "call_dynamic_tool", "arguments": arguments}
    async with office(tmp_path, server) as place, HttpClient(place.url) as http, browser() as own:
        asked = await post_modern(http, "ann", params)
        ((key, question),) = asked["inputRequests"].items()
        state = {"requestState": asked["requestState"], "inputResponses": {key: {"action": "accept"}}}
        assert asked["resultType"] == "input_required"
        assert question["params"]["mode"] == "url"
        refused = await post_modern(http, "bob", {**params, **state})
        assert "grant" not in str(refused)

        assert (await own.log_in(question["params"]["url"])).status_code == 200
        answer = await post_modern(http, "ann", {**params, **state})

        assert answer["content"][0]["text"] == "grant 0"


# --- whose link it is ---------------------------------------------------------------------------------------


async def test_a_page_says_for_whom_it_is_and_nothing_begins_without_its_button(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        link = link_in(await echo(ann))
        before = len(server.requests)

        page = await own.open(link)

        assert page.status_code == 200
        assert "Continue as ann" in page.text
        assert "far at 127.0.0.1" in page.text
        assert "<script" not in page.text
        assert page.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert len(server.requests) == before
        assert (await own.http.post(link, data={"token": "0" * 64})).status_code == 403
        assert (await own.http.post(link)).status_code == 403
        assert len(server.requests) == before


async def test_a_page_of_somebody_else_cannot_press_the_button(server: AuthServer, tmp_path: Path) -> None:
    async with (
        office(tmp_path, server) as place,
        person(place.url, "ann") as ann,
        browser() as own,
        browser() as victim,
    ):
        page = await own.open(link_in(await echo(ann)))
        token = page.text.partition('value="')[2].partition('"')[0]

        without_cookie = await victim.http.post(page.url, data={"token": token})
        across_sites = await own.http.post(page.url, data={"token": token}, headers={"Origin": "https://evil.test"})

        assert [without_cookie.status_code, across_sites.status_code] == [403, 403]
        assert not server.requests_to("/register")


@pytest.mark.parametrize("is_forwarded", [False, True])
async def test_the_address_of_the_authorization_server_is_of_no_use_in_another_browser(
    server: AuthServer, tmp_path: Path, *, is_forwarded: bool
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann", is_forwarded=is_forwarded) as ann:
        link = link_in(await echo(ann))
        name = "ann" if is_forwarded else ""
        async with browser(name) as own, browser(name) as victim:
            page = await own.open(link, hops=0)
            begun = page if page.is_redirect else await own.confirm(page, hops=0)

            stolen = await victim.open(begun.headers["location"])

            assert stolen.status_code == 403
            assert not server.requests_to("/token")
            assert (await victim.open(link)).status_code == 403
            assert (await own.follow(begun)).status_code == 200


async def test_who_a_reverse_proxy_names_needs_no_button_and_nobody_else_may_use_the_link(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann", is_forwarded=True) as ann:
        link = link_in(await echo(ann))
        async with browser("bob") as of_bob, browser() as of_nobody, browser("ann") as own:
            for other in (of_bob, of_nobody):
                assert (await other.open(link)).status_code == 403
                assert (await other.http.post(link, data={"token": "0" * 64})).status_code == 403
            assert not server.requests_to("/authorize")

            assert (await own.open(link)).status_code == 200

        assert await echo(ann) == "grant 0"


async def test_a_login_begun_by_its_person_is_not_ended_as_somebody_else(server: AuthServer, tmp_path: Path) -> None:
    async with (
        office(tmp_path, server) as place,
        person(place.url, "ann", is_forwarded=True) as ann,
        browser("ann") as own,
        browser("bob") as of_bob,
    ):
        begun = await own.open(link_in(await echo(ann)), hops=1)
        of_bob.http.cookies = own.http.cookies

        assert (await of_bob.open(begun.headers["location"])).status_code == 403
        assert not server.requests_to("/token")


async def test_who_has_logged_in_behind_a_reverse_proxy_must_be_the_one_that_it_names(
    server: AuthServer, tmp_path: Path
) -> None:
    origin = "https://front.test"
    config = replace(remote(server.mcp_url), login_of=Principal(origin, "ann"))
    links = LoginLinks(lambda: origin)
    chain = AuthChain(
        [ForwardedProvider(FORWARDED), BearerProvider(BEARER, TokenFile(TokenStore(tmp_path, tmp_path / "c")))]
    )
    aliases = {origin: "forwarded"}
    pages = UpstreamLoginPages(links, chain.authenticate, base_url=origin, aliases=aliases)
    link = links.send(bearer(config, tmp_path), Principal(origin, "ann"))
    assert link is not None
    page = pages.find_page("GET", urlsplit(link.url).path.encode())
    assert page is not None

    def shown(**headers: str) -> PageRequest:
        fields = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return PageRequest(RequestHead("GET", b"/", fields, peer="127.0.0.1"), b"")

    others = [shown(), shown(x_forwarded_user="bob"), shown(authorization=f"Bearer {TOKENS['ann']}")]
    assert [(await page(each)).status for each in others] == [403, 403, 403]
    found = await page(shown(x_forwarded_user="ann"))
    assert found.status == 303
    cookie = dict(found.headers)[b"set-cookie"].decode()
    assert cookie.startswith("__Host-")
    assert cookie.endswith("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure")
    links.close()


# --- what comes back ----------------------------------------------------------------------------------------


async def test_a_callback_counts_once(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        link = link_in(await echo(ann))
        begun = await own.confirm(await own.open(link), hops=1)
        callback = begun.headers["location"]

        pages = [await own.open(callback) for _ in range(3)]

        assert [page.status_code for page in pages] == [200, 400, 400]
        assert len(server.requests_to("/token")) == 1
        assert (await own.open(link)).status_code == 404


async def test_a_browser_that_goes_back_begins_anew_and_only_that_counts(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        link = link_in(await echo(ann))
        first = await own.confirm(await own.open(link), hops=1)

        assert (await own.log_in(link)).status_code == 200
        assert (await own.open(first.headers["location"])).status_code == 400
        assert len(server.requests_to("/token")) == 1


async def test_callbacks_that_come_at_once_count_once(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        begun = await own.confirm(await own.open(link_in(await echo(ann))), hops=1)

        pages = await asyncio.gather(*(own.open(begun.headers["location"]) for _ in range(5)))

        assert sorted(page.status_code for page in pages) == [200, 400, 400, 400, 400]
        assert len(server.requests_to("/token")) == 1


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"code": "c"},
        {"code": "c", "state": "x" * 43},
        {"error": "<script>alert(1)</script>", "state": "x"},
    ],
)
async def test_a_callback_that_belongs_to_no_login_changes_nothing_and_shows_nothing_of_itself(
    server: AuthServer, tmp_path: Path, query: dict[str, str]
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        begun = await own.confirm(await own.open(link_in(await echo(ann))), hops=0)

        page = await own.open(f"{place.url}/upstream-login/callback?{urlencode(query)}")

        assert page.status_code == 400
        assert "<script" not in page.text
        assert not server.requests_to("/token")
        assert (await own.follow(begun)).status_code == 200


async def test_a_code_of_another_issuer_is_not_exchanged_and_a_refusal_is_shown_escaped(
    server: AuthServer, tmp_path: Path
) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        link = link_in(await echo(ann))
        server.manners.iss = "https://evil.test"
        page = await own.log_in(link)
        assert page.status_code == 400
        assert "from another authorization server" in page.text
        assert not server.requests_to("/token")

        def refuse(request: object) -> Answer:
            asked = server.requests_to("/authorize")[-1].query
            back = {"error": "<b>no</b>", "state": asked["state"], "iss": server.url}
            return Answer(302, headers={"Location": f"{asked['redirect_uri']}?{urlencode(back)}"})

        server.manners.overrides["/authorize"] = refuse
        page = await own.log_in(link)
        assert page.status_code == 400
        assert "&lt;b&gt;no" in page.text
        assert "<b>" not in page.text

        server.manners.iss = ""
        del server.manners.overrides["/authorize"]
        assert (await own.log_in(link)).status_code == 200


async def test_the_client_is_registered_for_the_public_address(server: AuthServer, tmp_path: Path) -> None:
    async with office(tmp_path, server) as place, person(place.url, "ann") as ann, browser() as own:
        await own.log_in(link_in(await echo(ann)))

        (client,) = server.clients.values()
        assert client["redirect_uris"] == [f"{place.url}/upstream-login/callback"]
        (asked,) = server.requests_to("/authorize")
        assert asked.query["code_challenge_method"] == "S256"
        assert asked.query["resource"] == server.mcp_url


@pytest.mark.parametrize("path", ["x" * 43, "", "callback/x", "../mcp"])
async def test_links_that_were_not_sent_lead_nowhere(server: AuthServer, tmp_path: Path, path: str) -> None:
    async with office(tmp_path, server) as place, browser() as own:
        assert (await own.open(f"{place.url}/upstream-login/{path}")).status_code in (401, 404)
