"""The page on which a person decides, and what somebody tries who wants them to decide otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynamic_mcp.identity import Authentication
from tests.features.login_server.parties import (
    ORIGIN,
    VERIFIER,
    Browser,
    Site,
    authorize_url,
    header,
    json_of,
    open_site,
    query_of,
)

pytestmark = pytest.mark.usefixtures("kept")

EVIL = "https://evil.example"


async def test_every_login_asks_also_a_person_who_has_allowed_the_client_before(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser, id, other = Browser(site), await site.client(), await site.client()
        for client in (id, id, other):
            assert (await browser.open(authorize_url(client))).status == 200
            await browser.submit("allow")


async def test_the_consent_for_one_client_cannot_be_used_for_another(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser, mine, evil = Browser(site), await site.client(), await site.client(f"{EVIL}/cb")
        await browser.open(authorize_url(mine))
        fields = browser.form.fields
        await browser.open(authorize_url(evil, redirect_uri=f"{EVIL}/cb"))
        assert (await browser.submit("allow", csrf=fields["csrf"])).status == 400
        assert (await browser.submit("allow", request=fields["request"])).status == 400
        assert EVIL not in header(await browser.submit("allow", **fields), "location")


async def test_a_decision_counts_once(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client()))
        assert (await browser.submit("allow")).status == 303
        assert (await browser.submit("allow")).status == 400


async def test_a_page_that_was_left_open_expires(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client()))
        site.clock.advance(601)
        assert (await browser.submit("allow")).status == 400


@pytest.mark.parametrize(
    "changes", [{"csrf": "wrong"}, {"csrf": ""}, {"request": "wrong"}, {"decision": ""}, {"decision": "yes"}]
)
async def test_a_form_that_is_not_ours_decides_nothing(tmp_path: Path, changes: dict[str, str]) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client()))
        assert (await browser.submit("allow", **changes)).status == 400
        assert (await browser.submit("allow")).status == 303


async def test_a_page_of_somebody_else_cannot_send_the_form(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        eve, ann = Browser(site, "eve"), Browser(site)
        await eve.open(authorize_url(await site.client()))
        await ann.open(authorize_url(await site.client()))
        ours = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
        cookie = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
        fields = {**ann.form.fields, "decision": "allow"}
        for headers in (
            {"origin": EVIL},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"origin": EVIL, "cookie": cookie},
            {"origin": ORIGIN, "sec-fetch-site": "same-site", "cookie": cookie},
            {},
            {**ours, "cookie": next(f"{name}={value}" for name, value in eve.cookies.items())},
        ):
            assert (await ann.post(fields, **{"x-forwarded-user": "ann", **headers})).status == 400
        assert (await ann.post(fields, cookie=cookie, **{"x-forwarded-user": "ann", **ours})).status == 303


async def test_a_form_that_was_made_for_one_person_is_nothing_in_the_browser_of_another(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        eve, ann = Browser(site, "eve", loses_cookies=True), Browser(site, "ann", loses_cookies=True)
        ann.page = await eve.open(authorize_url(await site.client()))
        assert (await ann.submit("allow")).status == 400


async def test_a_browser_inside_of_a_program_that_loses_cookies_can_decide(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site, loses_cookies=True)
        await browser.open(authorize_url(await site.client()))
        assert (await browser.submit("allow")).status == 303


async def test_nobody_without_a_name_sees_the_page(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        response = await Browser(site, "").open(authorize_url(await site.client()))
        assert (response.status, "csrf" in response.body.decode()) == (403, False)


async def test_no_page_can_be_put_into_a_frame_run_a_script_or_be_stored(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        id = await site.client()
        for response in (
            await browser.open(authorize_url(id)),
            await browser.open("/authorize"),
            await browser.post({}),
        ):
            policy = header(response, "content-security-policy")
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert header(response, "x-frame-options") == "DENY"
            assert header(response, "cache-control") == "no-store"
            assert b"<script" not in response.body


async def test_the_cookie_is_for_this_host_alone_and_no_script_reads_it(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        cookie = header(await Browser(site).open(authorize_url(await site.client())), "set-cookie")
        assert re.fullmatch(r"__Host-[\w-]+=[\w-]{43}; Path=/; HttpOnly; SameSite=Lax; Secure", cookie)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</dd><form action=https://evil.example>",
        "&lt;b&gt;",
    ],
)
async def test_the_name_of_a_client_is_text(tmp_path: Path, name: str) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client(client_name=name)))
        assert name in browser.form.text
        assert {"script", "img"}.isdisjoint(browser.form.tags)
        assert browser.form.tags.count("form") == 1
        assert browser.form.action == f"{ORIGIN}/consent"


async def test_the_name_of_a_client_can_neither_hide_nor_turn_what_follows(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(
            authorize_url(await site.client(client_name="Cla\u202eude\u200b\n\n\x00  by\tBank" + "x" * 500))
        )
        assert "Claude by Bank" in browser.form.text
        assert "x" * 81 not in browser.form.text


async def test_what_is_wrong_with_a_request_is_text_too(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        response = await Browser(site).open("/authorize?a%3Cscript%3E=1&a%3Cscript%3E=2")
        assert response.status == 400
        assert b"<script" not in response.body


async def test_a_person_about_whom_too_much_is_said_is_told_so(tmp_path: Path) -> None:
    def with_many_groups(head: object) -> Authentication:
        from dynamic_mcp.identity import Principal

        groups = tuple(f"group-{number:030}" for number in range(199))
        return Authentication(Principal("forwarded", "ann"), "forwarded", claims=(("groups", groups),))

    async with open_site(tmp_path, who=with_many_groups) as site:
        response = await Browser(site).open(authorize_url(await site.client()))
        assert (response.status, b"token" in response.body) == (403, True)


async def test_a_code_comes_back_to_the_state_of_its_own_request_whoever_else_logs_in(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        ann, eve = Browser(site), Browser(site, "eve")
        await ann.open(authorize_url(id, state="of-ann"))
        await eve.open(authorize_url(id, state="of-eve"))
        answers = [query_of(await browser.submit("allow")) for browser in (eve, ann)]
        assert [each["state"] for each in answers] == ["of-eve", "of-ann"]
        assert [await _subject(site, id, each["code"]) for each in answers] == ["eve", "ann"]


async def _subject(site: Site, client_id: str, code: str) -> str:
    tokens = json_of(await site.redeem(client_id, code, code_verifier=VERIFIER))
    somebody = await site.authenticate(tokens["access_token"])
    assert isinstance(somebody, Authentication)
    return somebody.principal.subject
