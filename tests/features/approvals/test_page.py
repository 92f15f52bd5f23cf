"""The page's section with what waits: who sees it, who decides, and what is shown of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dynamic_mcp.config.ui import Ui
from dynamic_mcp.features.approvals.page import ApprovalsSection
from dynamic_mcp.features.approvals.store import FOLDER, QueuedApproval
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.proxy.request import Observers
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.ui.now import NowSection
from tests.fakes import BOUND_S, Client, FakeUpstream, Opener, config_of, group_config
from tests.features.approvals.queue_server import Proxy, running, waiting
from tests.features.approvals.scene import ANSWERS, RULES
from tests.features.audit.audited import read_lines
from tests.policy.rules import access_of, person
from tests.ui.site import Answer, Browser, Site, bearer_http, site_of

NOW = 1_800_000_000.0
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
MOST_BYTES = 50_000


def call(folder: Path, id: str = "7F3K2M", **changes: Any) -> QueuedApproval:
    """Return a call of Eve, which waits in a proxy of the config of the page."""
    facts = {
        "since": NOW - 12,
        "held_until": NOW + 38,
        "expires": NOW + 588,
        "config": str(folder / "config.json"),
        "issuer": "token",
        "subject": "eve",
        "client": "claude-code",
        "access": "write",
        "description": "Deletes a file.",
        "rule": "mcpServers.files.approve",
    }
    return waiting(id, **{**facts, **changes})


@asynccontextmanager
async def desk(folder: Path, *pending: QueuedApproval) -> AsyncIterator[tuple[Site, Proxy]]:
    """The page with what waits; Ann is an operator, Bob an approver, and Eve neither."""
    async with (
        running(folder / FOLDER, *pending) as proxy,
        site_of(folder, sections=[NowSection, ApprovalsSection]) as site,
    ):
        config = structs_of(site, ui=Ui(operators=("admins",), approvers=("checkers",)))
        site.configure(config, bearer_http())
        yield site, proxy


def structs_of(site: Site, **changes: Any) -> Any:
    return structs.replace(site.config, **changes)


async def decide(browser: Browser, path: str, on: str = "/ui/approvals", **fields: str) -> tuple[Answer, str]:
    """Send a form of the list; return the answer, and the notice on the page that follows."""
    answer = await browser.act(f"/ui/approvals/{path}", fields, on=on)
    if answer.status != 303:
        return answer, ""
    document = (await browser.get(answer.headers["location"])).document
    return answer, document.text


# --- what is shown ----------------------------------------------------------------------------------------


async def test_a_call_is_shown_with_all_that_a_decision_needs(tmp_path: Path) -> None:
    arguments = json.dumps({"path": "/a", "token": SECRET}).encode()
    pending = call(
        tmp_path, arguments=arguments, notes=("`n` was text",), roles=("staff",), allowed_by="roles.staff[0]"
    )
    async with desk(tmp_path, pending) as (site, _):
        browser = await site.person("ann")
        listed = (await browser.get("/ui/approvals")).text
        alone = (await browser.get("/ui/approvals/7F3K2M")).text
        revealed = (await browser.get("/ui/approvals/7F3K2M?reveal=1")).text

    for text in (listed, alone):
        for part in ("delete_file", "of files", "eve", "claude-code", "Deletes a file.", "`n` was text", '"/a"'):
            assert part in text
        assert "mcpServers.files.approve" in text
        assert "may change something" in text
        assert "its client gives up in 38 s; the question ends in 9 min" in text
        assert SECRET not in text
        assert "*** (40 characters hidden)" in text
    assert "staff" in alone
    assert "roles.staff[0]" in alone
    assert SECRET in revealed


async def test_only_what_was_offered_can_be_allowed(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path, offered=("once",))) as (site, proxy):
        browser = await site.person("ann")
        text = (await browser.get("/ui/approvals")).text
        _, notice = await decide(browser, "7F3K2M/allow", scope="hour")

    assert "Allow once" in text
    assert "for an hour" not in text
    assert "it cannot be allowed for `hour`" in notice
    assert proxy.received == []


async def test_arguments_are_never_left_out_silently(tmp_path: Path) -> None:
    arguments = json.dumps({"text": "x" * 40_000, "path": "/a"}).encode()
    async with desk(tmp_path, call(tmp_path, arguments=arguments)) as (site, _):
        browser = await site.person("ann")
        first = (await browser.get("/ui")).document
        listed = (await browser.get("/ui/approvals")).document
        alone = (await browser.get("/ui/approvals/7F3K2M")).document
        whole = await browser.get("/ui/approvals/7F3K2M/arguments.json")

    for page in (first, listed):
        assert page.find("form", action="/ui/approvals/7F3K2M/allow") == []
    for page in (listed, alone):
        assert "These are not all of the arguments" in page.text
        assert '"/a"' in page.text
        assert len(page.html) < MOST_BYTES
    assert "has more arguments than this page shows" in alone.text
    assert json.loads(whole.response.body) == json.loads(arguments)
    assert whole.headers["content-disposition"] == 'attachment; filename="7F3K2M.json"'


async def test_what_clients_and_servers_say_is_text_and_a_page_stays_small(tmp_path: Path) -> None:
    arguments = json.dumps({HOSTILE * 20: [HOSTILE] * 40}).encode()
    hostile = dict.fromkeys(
        ("name", "group", "client", "subject", "description", "rule", "allowed_by"), HOSTILE * 100
    )
    many = [
        call(tmp_path, f"{number:06}", arguments=arguments, notes=(HOSTILE * 100,) * 30, **hostile)
        for number in range(10, 40)
    ]
    async with desk(tmp_path, *many) as (site, _):
        browser = await site.local_user()
        pages = [(await browser.get(f"/ui{path}")).document for path in ("", "/approvals", "/approvals/000010")]
        second = (await browser.get("/ui/approvals?page=2")).text

    for page in pages:
        assert len(page.html) < MOST_BYTES
        assert "alert(1)</script>" not in page.html
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html
        assert all(each["src"].startswith("/ui/static/") for each in page.find("script"))
    assert "Page 2 of 4" in second


async def test_a_call_that_waits_no_longer_says_so(tmp_path: Path) -> None:
    async with desk(tmp_path) as (site, _):
        browser = await site.person("ann")
        page = await browser.get("/ui/approvals/7F3K2M")
        _, notice = await decide(browser, "7F3K2M/allow", on="/ui")

    assert page.status == 404
    assert "7F3K2M no longer waits" in page.text
    assert "7F3K2M no longer waits" in notice


# --- decisions --------------------------------------------------------------------------------------------


async def test_a_call_is_allowed_for_an_hour_by_the_name_of_who_decides(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        browser = await site.person("bob")
        answer, text = await decide(browser, "7F3K2M/allow", scope="hour")

        (decision,) = proxy.received
        assert (decision.verdict, decision.scope, decision.by) == ("allow", "hour", "bob")
        assert answer.headers["location"] == "/ui/approvals"
        assert "7F3K2M is allowed for an hour: delete_file of files" in text
        assert "Nothing waits" in text


async def test_a_call_is_denied_with_a_reason_for_the_model(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        _, text = await decide(await site.local_user(), "7F3K2M/deny", reason=" not this one ")

        (decision,) = proxy.received
        assert (decision.verdict, decision.reason, decision.by) == ("deny", "not this one", os_user())
        assert "7F3K2M is denied" in text


async def test_a_decision_on_the_first_page_leads_back_to_it(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, _):
        browser = await site.person("ann")
        page = (await browser.get("/ui")).document
        answer, _ = await decide(browser, "7F3K2M/allow", on="/ui", back="", scope="once")

        assert len(page.find("form", action="/ui/approvals/7F3K2M/allow")) == 1
        assert len(page.find("form", action="/ui/approvals/7F3K2M/deny")) == 1
        assert answer.headers["location"] == "/ui"


async def test_the_first_page_has_the_oldest_five_and_a_link_to_the_rest(tmp_path: Path) -> None:
    many = [call(tmp_path, f"{number:06}", since=NOW - number) for number in range(10, 17)]
    async with desk(tmp_path, *many) as (site, _):
        page = (await (await site.person("ann")).get("/ui")).document

    assert "7 calls wait for you" in page.text
    assert "Show all 7" in page.text
    assert [f"{number:06}" in page.text for number in range(16, 9, -1)] == [True] * 5 + [False] * 2


# --- changed arguments ------------------------------------------------------------------------------------


async def test_an_edit_is_shown_as_its_difference_before_it_is_sent(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        browser = await site.person("ann")
        path = "/ui/approvals/7F3K2M/edit"
        typed = (await browser.get(path)).document
        answer, _ = await decide(browser, "7F3K2M/edit", on=path, arguments='{"path": "/b"}')
        shown = answer.document
        assert proxy.received == []
        sent = shown.find("input", name="arguments")[0]["value"]
        _, text = await decide(browser, "7F3K2M/edit", on=path, arguments=sent, sends="1")

        assert '{ "path": "/a" }' in typed.text
        assert '- "path": "/a"' in shown.text
        assert '+ "path": "/b"' in shown.text
        (decision,) = proxy.received
        assert json.loads(decision.arguments) == {"path": "/b"}
        assert (decision.verdict, decision.scope, decision.by) == ("allow", "once", "ann")
        assert "7F3K2M is allowed once with the new arguments" in text


@pytest.mark.parametrize(
    ("typed", "flaw"),
    [
        ('{"path": "/b",}', "the arguments are not JSON"),
        ('["/b"]', "the arguments must be a JSON object"),
        ('{"a": 1, "a": 2}', "`a` is given twice"),
        ('{"path": "\u00a0' + "x" * 21_000 + '"}', "too long for this page"),
    ],
)
async def test_arguments_that_cannot_be_sent_are_refused_and_no_typed_text_is_lost(
    tmp_path: Path, typed: str, flaw: str
) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        browser = await site.person("ann")
        answer, _ = await decide(browser, "7F3K2M/edit", on="/ui/approvals/7F3K2M/edit", arguments=typed, sends="1")

        assert answer.status == 400
        assert flaw in answer.text
        assert typed.replace("\u00a0", "\\u00a0") in answer.text
        assert proxy.received == []


async def test_arguments_that_the_proxy_refuses_can_be_typed_again(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        browser = await site.person("ann")
        path = "/ui/approvals/7F3K2M/edit"
        answer, _ = await decide(browser, "7F3K2M/edit", on=path, arguments='{"path": "/etc"}', sends="1")

        assert "7F3K2M still waits: `/etc` may not be deleted" in answer.text
        assert '{"path": "/etc"}' in answer.text
        assert proxy.received == []


async def test_equal_arguments_are_no_change(tmp_path: Path) -> None:
    async with desk(tmp_path, call(tmp_path)) as (site, proxy):
        browser = await site.person("ann")
        path = "/ui/approvals/7F3K2M/edit"
        answer, _ = await decide(browser, "7F3K2M/edit", on=path, arguments='{"path":"/a"}', sends="1")

        assert "The arguments are the same." in answer.text
        assert proxy.received == []


@pytest.mark.parametrize("changes", [{"kind": "resource"}, {"kind": "script"}, {"arguments": b"x" * 100_000}])
async def test_what_cannot_be_changed_here_has_no_form(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with desk(tmp_path, call(tmp_path, **changes)) as (site, _):
        browser = await site.person("ann")
        listed = (await browser.get("/ui/approvals")).text
        page = await browser.get("/ui/approvals/7F3K2M/edit")

    assert "Change the arguments" not in listed
    assert "these arguments cannot be changed here" in page.text


# --- who --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "owner", "sees", "decides"),
    [
        ("ann", "ann", True, True),
        ("ann", "eve", True, True),
        ("bob", "eve", True, True),
        ("bob", "bob", True, False),
        ("eve", "eve", True, False),
        ("eve", "bob", False, False),
    ],
)
async def test_an_operator_decides_about_all_an_approver_about_others_and_anyone_else_about_none(
    tmp_path: Path, who: str, owner: str, *, sees: bool, decides: bool
) -> None:
    access = access_of(roles={"staff": [{"effect": "ask"}]})
    async with desk(tmp_path, call(tmp_path, subject=owner)) as (site, proxy):
        site.configure(structs_of(site, access=access), bearer_http())
        browser = await site.person(who)
        page = (await browser.get("/ui/approvals")).document
        alone = await browser.get("/ui/approvals/7F3K2M")
        file = await browser.get("/ui/approvals/7F3K2M/arguments.json")
        edit = await browser.get("/ui/approvals/7F3K2M/edit")
        first = (await browser.get("/ui")).document
        answers = [await decide(browser, f"7F3K2M/{verb}", on="/ui") for verb in ("allow", "deny", "edit")]

        assert ("7F3K2M" in page.text) is sees
        assert (alone.status, file.status) == ((200, 200) if sees else (404, 404))
        assert bool(page.find("form", action="/ui/approvals/7F3K2M/allow")) is decides
        assert (edit.status == 200) is decides
        assert ("1 call waits for you" in first.text) is decides
        assert ("mcpServers.files.approve" in alone.text) is decides
        assert [each.verdict for each in proxy.received] == (["allow"] if decides else [])
        if not decides:
            assert all(("you cannot decide" in text) is sees for _, text in answers)


async def test_a_subject_of_another_issuer_is_another_person(tmp_path: Path) -> None:
    access = access_of(roles={"staff": [{"effect": "ask"}]})
    async with desk(tmp_path, call(tmp_path, issuer="https://idp.example.com")) as (site, _):
        site.configure(structs_of(site, access=access), bearer_http())
        page = await (await site.person("eve")).get("/ui/approvals")

    assert page.status == 200
    assert "7F3K2M" not in page.text


async def test_calls_of_other_configs_are_for_the_local_user_alone(tmp_path: Path) -> None:
    other = call(tmp_path, config="/elsewhere/other.json", issuer=LOCAL.issuer, subject=LOCAL.subject)
    async with desk(tmp_path, other) as (site, _):
        local = (await (await site.local_user()).get("/ui/approvals")).text
        remote = (await (await site.person("ann")).get("/ui/approvals")).text

    assert "/elsewhere/other.json" in local
    assert "7F3K2M" not in remote


async def test_a_config_that_asks_nobody_has_the_section_for_those_who_decide(tmp_path: Path) -> None:
    async with desk(tmp_path) as (site, _):
        operator = (await (await site.person("ann")).get("/ui/approvals")).text
        other = await (await site.person("eve")).get("/ui/approvals")

    assert '"approve": ["delete_*", "merge_*"]' in operator
    assert other.status == 404


async def test_who_decided_is_in_the_audit_log(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "audit", Keeping(86_400.0), stops_writes=True)
    access = access_of(roles={"dev": list(RULES)})
    config = config_of(group_config("up"), access=access, ui=Ui(operators=("admins",)))
    async with site_of(tmp_path, config, Opener(up=[FakeUpstream(ANSWERS)]), [ApprovalsSection]) as site:
        site.now = time.time()
        site.configure(http=bearer_http())
        site.proxy.observers = Observers([AuditObserver(trail)])
        client = Client(site.proxy, authentication=person("eve", "dev"))
        await client.initialize()
        calling = asyncio.create_task(client.call("up", "delete_file", {"path": "/one"}))
        browser = await site.person("ann")
        id = await wait_for_id(browser)
        _, text = await decide(browser, f"{id}/allow", scope="once")
        async with asyncio.timeout(BOUND_S):
            await calling
    trail.close()

    lines = {each["event"]: each for each in read_lines(tmp_path / "audit")}
    assert f"{id} is allowed once" in text
    assert lines["approval.decided"]["approved_by"] == "ann"
    assert lines["approval.decided"]["subject"] == "eve"
    assert lines["call"]["approved_by"] == "ann"


async def wait_for_id(browser: Browser) -> str:
    """Wait until a call waits, and return its id."""
    stream = await browser.stream("/ui/events?section=approvals")
    async with asyncio.timeout(BOUND_S):
        async for piece in stream.pieces:
            if b'"waiting":1' in piece:
                break
    page = (await browser.get("/ui/approvals")).document
    return page.find("article", class_="need")[0]["aria-labelledby"].removeprefix("call-")


async def test_an_open_page_hears_of_a_new_call_that_concerns_its_person(tmp_path: Path) -> None:
    async with desk(tmp_path) as (site, proxy):
        browser = await site.person("bob")
        stream = await browser.stream("/ui/events?section=approvals")
        states: list[dict[str, Any]] = []
        async with asyncio.timeout(BOUND_S):
            async for piece in stream.pieces:
                if piece.startswith(b"event: state"):
                    states.append(json.loads(piece.partition(b"data: ")[2]))
                    if states[-1]["waiting"]:
                        break
                    await proxy.server.put(call(tmp_path))

    assert states[-1] == {"counts": {"approvals": 1}, "waiting": 1, "changes": 1}
