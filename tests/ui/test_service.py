"""Who gets in to the page, what a form of another site can do, and that everything that is shown is text."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

import pytest

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.face.http.authenticator import AuthRejection
from dynamic_mcp.ui.cookies import IDLE_S, LONGEST_S
from dynamic_mcp.ui.links import VALID_S
from dynamic_mcp.ui.section import PageRedirect, PageSection, PageView, Reply, Visit
from tests.fake_parties import OtherReplicas
from tests.fakes import FakeUpstream, Opener, config_of, group_config
from tests.program import BOUND_S
from tests.ui.site import TOKENS, Browser, Site, bearer_http, site_of
from tests.windows import is_private

ROLES = Ui(operators=("admins",), approvers=("checkers",))
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


class Notes(PageSection):
    """A section that shows what it was told, and notes who did what."""

    name = "notes"
    title = "Notes"
    icon = "calls"
    rank = 5
    done: ClassVar[list[tuple[str, str]]] = []
    waiting: ClassVar[int] = 0

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        if rest == ("broken",):
            raise InvalidArguments("that is wrong", hint="do it right")
        if rest:
            return None
        return PageView("error.html", "Notes", {"error": visit.query.get("q", ""), "hint": ""})

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        if rest == ("fail",):
            raise InvalidArguments("that did not work", hint="try again")
        self.done.append((visit.name, visit.form.get("what", "")))
        return PageRedirect("notes", f"done: {visit.form.get('what', '')}")

    def count(self, visit: Visit) -> int:
        return self.waiting

    def stamp(self, visit: Visit) -> int:
        return len(self.done)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    Notes.done.clear()
    Notes.waiting = 0


def secured(site: Site) -> None:
    """Serve people with tokens, some of whom have a role."""
    site.configure(config_of(file=site.config.file, ui=ROLES), bearer_http())


# --- who gets in ------------------------------------------------------------------------------------------


async def test_nobody_sees_anything_without_a_login_although_mcp_is_open_to_all_who_reach_it(tmp_path: Path) -> None:
    config = config_of(group_config("secret-server"))
    async with site_of(tmp_path, config) as site:
        for path in ("/ui", "/ui/tools", "/ui/events", "/ui/no/such"):
            answer = await site.browser().get(path)

            assert answer.status == 401
            assert "dynamic-mcp ui" in answer.text
            assert "secret-server" not in answer.text


async def test_a_link_from_the_terminal_logs_its_first_user_in_as_the_local_user(tmp_path: Path) -> None:
    async with site_of(tmp_path, config_of(group_config("files"))) as site:
        link, first, second = site.make_link(), site.browser(), site.browser()

        assert (await first.get(link, site="none")).headers["location"] == "/ui"
        page = await first.get("/ui")
        again = await second.get(link, site="none")

        assert page.status == 200
        assert "files" in page.text
        assert "operator" in page.text
        assert again.status == 403
        assert (await second.get("/ui")).status == 401


async def test_a_link_is_valid_for_minutes_and_for_the_page_of_its_config_alone(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        late = site.make_link()
        site.now += VALID_S + 1
        assert (await site.browser().get(late)).status == 403

        other = site.make_link()
        site.configure(config_of(file=tmp_path / "other.json"))
        assert (await site.browser().get(other)).status == 403


async def test_the_files_of_links_and_the_key_are_private(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.make_link()

        files = [*(tmp_path / "ui").rglob("*")]

        assert files
        assert all(is_private(each) for each in files)
        assert not [each for each in (tmp_path / "ui").rglob("*.json") if TOKENS["ann"] in each.read_text()]


async def test_a_token_logs_its_person_in_until_it_is_revoked(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        secured(site)
        eve = await site.person("eve")
        assert (await eve.get("/ui")).status == 200

        site.configure(config_of(file=site.config.file), Http(auth=(BearerAuth(),)))

        assert (await eve.get("/ui")).status == 401


async def test_a_wrong_token_is_refused_and_says_nothing_of_it(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        secured(site)
        for token in ("wrong-token-0123456789abc", "", "ümlaut", "a\r\nx: y"):
            browser = site.browser()

            answer = await browser.post("/ui/login", {"token": token})

            assert answer.status == 403
            assert not token or token not in answer.document.html
            assert not browser.cookies


async def test_a_wrong_token_is_recorded_as_any_other(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        secured(site)

        answer = await site.browser().post("/ui/login", {"token": "wrong-token-0123456789abc"})

        assert isinstance(answer.response, AuthRejection)


async def test_a_login_ends_after_a_time_without_use_and_after_a_week_at_most(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        idle, busy = await site.local_user(), await site.local_user()
        for _ in range(int(LONGEST_S / IDLE_S) * 2 - 1):
            site.now += IDLE_S / 2
            assert (await busy.get("/ui")).status == 200
        assert (await idle.get("/ui")).status == 401

        site.now += IDLE_S / 2 + 1

        assert (await busy.get("/ui")).status == 401


async def test_a_cookie_of_another_page_or_one_that_was_changed_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with site_of(tmp_path / "one") as one, site_of(tmp_path / "two") as two:
        browser = await one.local_user()
        ((name, value),) = browser.cookies.items()

        stranger = two.browser()
        ((other, _),) = (await two.local_user()).cookies.items()
        stranger.cookies = {other: value}
        assert (await stranger.get("/ui")).status == 401

        for changed in (value[:-4] + "AAAA", value[:40], "", "é", value + "=="):
            forged = one.browser()
            forged.cookies = {name: changed}
            assert (await forged.get("/ui")).status in (401, 200 if changed.rstrip("=") == value else 401)


async def test_logging_out_ends_the_login_of_this_browser(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        browser = await site.local_user()

        answer = await browser.act("/ui/logout")

        assert "logged out" in answer.text
        assert (await browser.get("/ui")).status == 401


async def test_cookies_cannot_be_read_by_scripts_nor_sent_by_other_sites(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        answer = await site.browser().get(site.make_link(), site="none")
        assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= {*answer.headers["set-cookie"].split("; ")}

        site.configure(base_url="https://mcp.example.com")
        answer = await site.browser().get(site.make_link(), site="none")
        assert answer.headers["set-cookie"].startswith("__Host-")
        assert {"Secure", "Path=/"} <= {*answer.headers["set-cookie"].split("; ")}


async def test_a_link_of_another_site_goes_on_by_itself_so_that_the_cookie_comes_along(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        answer = await site.browser().get("/ui/calls", site="cross-site")

        assert answer.status == 200
        assert answer.document.find("meta", http_equiv_="refresh") or "http-equiv" in answer.document.html
        assert (await site.browser().get("/ui/calls", site="same-origin")).status == 401


# --- roles ------------------------------------------------------------------------------------------------


async def test_roles_of_the_config_make_operators_and_approvers(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        secured(site)
        found = {name: (await (await site.person(name)).get("/ui")).document for name in TOKENS}

        roles = {name: [each["class"] for each in page.find("span", class_="role")] for name, page in found.items()}
        texts = {name: page.text for name, page in found.items()}
        assert {name: len(each) for name, each in roles.items()} == {"ann": 1, "bob": 1, "eve": 0}
        assert "ann operator" in texts["ann"]
        assert "bob approver" in texts["bob"]


# --- other sites ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "sec-fetch-site": ""},
        {"origin": "null", "sec-fetch-site": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8808"},
        {"origin": "", "sec-fetch-site": "none"},
    ],
)
async def test_a_form_of_another_site_or_port_does_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser = await site.local_user()
        token = (await browser.get("/ui/notes")).document.form_token

        answer = await browser.post("/ui/notes/do", {"csrf": token, "what": "harm"}, headers)

        assert answer.status == 403
        assert not Notes.done


async def test_a_form_without_the_token_of_its_login_does_nothing(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser, other = await site.local_user(), await site.local_user()
        foreign = (await other.get("/ui/notes")).document.form_token

        for token in ("", "x", foreign):
            assert (await browser.post("/ui/notes/do", {"csrf": token, "what": "harm"})).status == 403

        assert not Notes.done
        assert (await browser.act("/ui/notes/do", {"what": "good"}, on="/ui/notes")).status == 303
        assert Notes.done == [("you", "good")]


async def test_a_form_of_the_public_address_is_ours_behind_a_proxy_that_changes_the_host(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        site.configure(base_url="http://mcp.example.com/dmcp")
        browser = await site.local_user()
        token = (await browser.get("/dmcp/ui/notes")).document.form_token

        answer = await browser.post(
            "/ui/notes/do", {"csrf": token, "what": "good"}, {"origin": "http://mcp.example.com"}
        )

        assert answer.headers["location"] == "/dmcp/ui/notes"


async def test_every_answer_forbids_scripts_of_others_frames_and_storing(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser = await site.local_user()
        answers = [await browser.get(path) for path in ("/ui/notes", "/ui/none", "/ui/notes/broken")]
        answers += [await site.browser().get("/ui"), await browser.act("/ui/notes/do", on="/ui/notes")]
        answers += [await browser.post("/ui/notes/do", {})]

        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            html = answer.document
            assert not [
                tag for tag, each in html.tags if any(name.startswith("on") or name == "style" for name in each)
            ]
            assert not html.find("style")
            assert all(each.get("src", "").startswith("/ui/static/") for each in html.find("script"))


async def test_a_request_with_more_fields_than_any_form_has_is_refused(tmp_path: Path) -> None:
    many = {f"f{number}": "" for number in range(2000)}
    async with site_of(tmp_path) as site:
        browser = site.browser()

        asked, sent = await browser.get(f"/ui?{urlencode(many)}"), await browser.post("/ui/login", many)

        assert (asked.status, sent.status) == (400, 400)


# --- what is shown ----------------------------------------------------------------------------------------


async def test_what_others_say_is_text_and_shows_what_cannot_be_seen(tmp_path: Path) -> None:
    config = config_of(group_config(f"up{HOSTILE}"))
    async with site_of(tmp_path, config, sections=None) as site:
        browser = await site.local_user()
        page = (await browser.get("/ui")).document

        assert "<script>alert" not in page.html
        assert "<script>alert(1)</script>" in page.text
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html


async def test_an_error_is_shown_with_what_to_do(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser = await site.local_user()

        shown = await browser.get("/ui/notes/broken")
        acted = await browser.act("/ui/notes/fail", on="/ui/notes")
        after, later = await browser.get(acted.headers["location"]), await browser.get("/ui/notes")

        assert shown.status == 400
        assert "that is wrong" in shown.text
        assert "do it right" in shown.text
        assert "that did not work; try again" in after.text
        assert "that did not work" not in later.text


async def test_a_notice_comes_from_an_action_and_not_from_a_link(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser = await site.local_user()
        acted = await browser.act("/ui/notes/do", {"what": "<b>it</b>"}, on="/ui/notes")

        page = await browser.get(acted.headers["location"])

        assert "done: <b>it</b>" in page.text
        assert acted.headers["location"] == "/ui/notes"


async def test_a_part_of_a_page_is_sent_alone_with_its_notice(tmp_path: Path) -> None:
    config = config_of(group_config("files"))
    async with site_of(tmp_path, config) as site:
        browser = await site.local_user()

        part = await browser.get("/ui", {"x-fragment": "rows"})
        none = await browser.get("/ui", {"x-fragment": "nothing"})

        assert part.document.html.startswith('<div id="rows"')
        assert "files" in part.text
        assert "Usage" not in part.text
        assert none.status == 204


async def test_static_files_are_cached_for_good_and_nothing_beside_them_is_sent(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        browser = site.browser()

        style = await browser.get("/ui/static/page.css")
        outside = [await browser.get(f"/ui/static/{name}") for name in ("..%2fservice.py", "../service.py", "")]

        assert "immutable" in style.headers["cache-control"]
        assert style.headers["content-type"] == "text/css; charset=utf-8"
        assert {each.status for each in outside} == {404}


# --- events -----------------------------------------------------------------------------------------------


async def read_state(pieces: object) -> dict[str, object]:
    async for piece in pieces:  # type: ignore[attr-defined]
        if piece.startswith(b"event: state"):
            found: dict[str, object] = json.loads(piece.partition(b"data: ")[2])
            return found
    raise AssertionError("the stream has ended")


async def test_a_page_hears_what_waits_and_that_something_has_changed(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        browser = await site.local_user()
        stream = await browser.stream("/ui/events?section=notes")
        async with asyncio.timeout(BOUND_S):
            first = await read_state(stream.pieces)
            Notes.done.append(("", ""))
            Notes.waiting = 2
            second = await read_state(stream.pieces)

        assert first == {"counts": {}, "waiting": 0, "changes": 0}
        assert second == {"counts": {"notes": 2}, "waiting": 2, "changes": 1}


async def test_an_open_page_hears_nothing_more_once_the_page_is_turned_off(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        stream = await (await site.local_user()).stream("/ui/events?section=notes")
        async with asyncio.timeout(BOUND_S):
            await read_state(stream.pieces)
            site.service.withdraw()
            Notes.waiting = 2

            assert [piece async for piece in stream.pieces] == []


async def test_the_count_of_what_waits_is_in_the_title(tmp_path: Path) -> None:
    async with site_of(tmp_path, sections=[Notes]) as site:
        Notes.waiting = 3
        page = (await (await site.local_user()).get("/ui/notes")).document

        assert "<title>(3) Notes" in page.html


# --- the first page ---------------------------------------------------------------------------------------


async def test_a_server_that_is_down_comes_first_with_its_last_words_and_a_button_that_connects_it(
    tmp_path: Path,
) -> None:
    config = config_of(group_config("files", attempts=1))
    opener = Opener(files=[InvalidArguments("its port is taken"), FakeUpstream(tools=["read", "write"])])
    async with site_of(tmp_path, config, opener) as site:
        browser = await site.local_user()
        await fail(browser)

        down = await browser.get("/ui")
        acted = await browser.act("/ui/now/retry/files")
        after = await browser.get("/ui")

        assert "1 server is down" in down.text
        assert "its port is taken" in down.text
        assert acted.status == 303
        assert "Nothing waits for you" in after.text
        assert "files is connected" in after.text


async def fail(browser: Browser) -> None:
    """Have the server be asked, and fail."""
    assert (await browser.act("/ui/now/retry/files")).status == 303


async def test_five_hundred_groups_are_paged_and_found_by_their_names(tmp_path: Path) -> None:
    config = config_of(*(group_config(f"group-{number:03}") for number in range(500)))
    async with site_of(tmp_path, config) as site:
        browser = await site.local_user()

        page, last = await browser.get("/ui"), await browser.get("/ui?page=10")
        found = await browser.get("/ui?q=GROUP-49")

        assert len(page.document.html) < 50_000
        assert "group-049" in page.text
        assert "group-050" not in page.text
        assert "group-499" in last.text
        assert len(found.document.find("tr", **{"data-row": ""})) == 10


async def test_a_login_at_one_replica_counts_at_the_others(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    config = config_of(file=tmp_path / "config.json", ui=ROLES)
    async with site_of(tmp_path / "one") as one, site_of(tmp_path / "two") as two:
        for site in (one, two):
            site.proxy.join_replicas(OtherReplicas())
            site.configure(config, bearer_http())
        eve, there = await one.person("eve"), two.browser()

        there.cookies = dict(eve.cookies)

        assert (await there.get("/ui")).status == 200
