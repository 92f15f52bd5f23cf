"""The page's section with the calls: who sees which lines, what is found, one call's story, and the log beside it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.config.ui import Ui
from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.page import CallsSection
from dynamic_mcp.observe import log_output
from dynamic_mcp.system import paths
from dynamic_mcp.ui.now import NowSection
from tests.fakes import BOUND_S, config_of
from tests.features.audit.written import NOON, line, write_log
from tests.policy.rules import access_of
from tests.ui.site import Answer, Site, bearer_http, site_of

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
MOST_BYTES = 50_000
AN_HOUR = timedelta(hours=1)


@asynccontextmanager
async def office(folder: Path, lines: Iterable[AuditLine] = (), **changes: Any) -> AsyncIterator[Site]:
    """The page an hour after noon, with these lines in the log; Ann is an operator, Bob an approver, Eve neither."""
    write_log(folder / "audit", lines)
    settings = {"audit": Audit(path=folder / "audit"), "ui": Ui(operators=("admins",), approvers=("checkers",))}
    async with site_of(folder, config_of(**{**settings, **changes}), sections=[NowSection, CallsSection]) as site:
        site.now = (NOON + AN_HOUR).timestamp()
        site.configure(http=bearer_http())
        yield site


def called(folder: Path, id: str, **changes: Any) -> AuditLine:
    """Return a call of Eve."""
    facts = {
        "id": id,
        "issuer": "token",
        "subject": "eve",
        "client": "claude-code",
        "config": str(folder / "config.json"),
        "group": "github",
        "kind": "tool",
        "name": "create_issue",
        "decision": "allow",
        "rule": "roles.dev[0]",
        "result_bytes": 1234,
        "ms": 320.0,
        **changes,
    }
    return line(facts.pop("event", "call"), **facts)


def rows_of(answer: Answer) -> list[str]:
    """Return the ids of the lines in a table."""
    prefix = "/ui/calls/"
    links = (
        each["href"].removeprefix(prefix) for each in answer.document.find("a") if prefix in each.get("href", "")
    )
    return [each for each in links if not each.startswith(("log", "export"))]


# --- the table --------------------------------------------------------------------------------------------


async def test_calls_are_shown_the_newest_first_with_who_what_and_the_result(tmp_path: Path) -> None:
    lines = [
        called(tmp_path, "one"),
        called(tmp_path, "two", at=NOON + timedelta(minutes=20), outcome="failure", error="tool_error", name="merge"),
    ]
    async with office(tmp_path, lines) as site:
        page = await (await site.person("ann")).get("/ui/calls")

    assert rows_of(page) == ["two", "one"]
    for part in ("40 min ago", "merge", "of github", "eve", "claude-code", "failed: tool_error", "320 ms", "1.2 kB"):
        assert part in page.text
    assert "2 calls in this time, 1 failed" in page.text
    assert "2 calls, 1 of them failed" in page.document.find("svg", class_="chart")[0]["aria-label"]


async def test_a_long_table_is_paged_from_the_newest_to_the_oldest(tmp_path: Path) -> None:
    lines = [called(tmp_path, f"n{number}", at=NOON + timedelta(milliseconds=number // 3)) for number in range(100)]
    found: list[str] = []
    async with office(tmp_path, lines) as site:
        browser = await site.person("ann")
        path = "/ui/calls"
        while path:
            page = await browser.get(path)
            found += rows_of(page)
            path = next((each["href"] for each in page.document.find("a", rel="next")), "")

    assert found == [f"n{number}" for number in range(99, -1, -1)]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", ["slow", "refused", "failed", "mail"]),
        ("who=bo*", ["slow"]),
        ("client=curs?r", ["slow"]),
        ("group=mail", ["mail"]),
        ("tool=create*", ["slow", "refused", "failed"]),
        ("outcome=errors", ["refused", "failed"]),
        ("outcome=denied", ["refused"]),
        ("decision=deny", ["refused"]),
        ("event=approval.*", ["asked"]),
        ("event=*", ["slow", "refused", "failed", "asked", "mail"]),
        ("slow=2s", ["slow"]),
        ("since=90min", ["slow", "refused", "failed", "mail"]),
        ("since=2026-11-23T12:00:02Z&until=2026-11-23T12:00:04Z", ["refused", "failed"]),
        ("span=all", ["slow", "refused", "failed", "mail", "old"]),
        ("span=hour&until=10s", ["slow", "refused", "failed", "mail"]),
        ("who=nobody", []),
    ],
)
async def test_lines_are_found_by_what_is_known_of_them(tmp_path: Path, query: str, ids: list[str]) -> None:
    lines = [
        called(tmp_path, "old", at=NOON - timedelta(days=40)),
        called(tmp_path, "mail", group="mail", name="send"),
        called(tmp_path, "asked", at=NOON + timedelta(seconds=1), event="approval.requested", outcome="pending"),
        called(tmp_path, "failed", at=NOON + timedelta(seconds=2), outcome="failure"),
        called(tmp_path, "refused", at=NOON + timedelta(seconds=3), outcome="denied", decision="deny"),
        called(tmp_path, "slow", at=NOON + timedelta(seconds=4), subject="bob", client="cursor", ms=2500.0),
    ]
    async with office(tmp_path, lines) as site:
        page = await (await site.person("ann")).get(f"/ui/calls?{query}")

    assert page.status == 200
    assert rows_of(page) == ids
    if not ids:
        assert "No call is like that" in page.text


@pytest.mark.parametrize("query", ["since=soon", "until=%00", "slow=very"])
async def test_a_time_that_is_none_is_said(tmp_path: Path, query: str) -> None:
    async with office(tmp_path, [called(tmp_path, "one")]) as site:
        page = await (await site.person("ann")).get(f"/ui/calls?{query}")

    assert page.status == 400
    assert page.document.find("p", role="alert")
    assert rows_of(page) == ["one"]


async def test_what_clients_and_servers_say_is_text_and_a_page_stays_small(tmp_path: Path) -> None:
    names = ("subject", "client", "client_version", "group", "name", "shown", "error", "upstream", "trace", "parent")
    hostile = dict.fromkeys(names, HOSTILE * 100)
    arguments = Raw(json.dumps({HOSTILE: HOSTILE * 3000}).encode())
    facts = {**hostile, "outcome": "failure", "arguments": arguments, "original_arguments": arguments}
    lines = [called(tmp_path, f"n{number}", detail=arguments, **facts) for number in range(60)]
    async with office(tmp_path, lines) as site:
        browser = await site.person("ann")
        pages = [(await browser.get(f"/ui{path}")).document for path in ("", "/calls", "/calls/n1")]

    for page in pages:
        assert len(page.html) < MOST_BYTES
        assert "alert(1)</script>" not in page.html
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html
    assert "Long values lack their middle here." in pages[2].text


async def test_a_damaged_line_is_shown_as_one(tmp_path: Path) -> None:
    async with office(tmp_path, [called(tmp_path, "one")]) as site:
        with days.file_of(tmp_path / "audit", "2026-11-23").open("ab") as file:
            file.write(b"\xff not a line\n")
        local = await site.local_user()
        page = await local.get("/ui/calls?event=*&configs=all")

    assert "damaged" in page.text
    assert rows_of(page) == ["one"]


async def test_without_a_log_the_operator_is_told_how_to_turn_it_on(tmp_path: Path) -> None:
    async with office(tmp_path, audit=None) as site:
        operator = await (await site.person("ann")).get("/ui/calls")
        other = await (await site.person("eve")).get("/ui/calls")

    assert '"settings": {"audit": true}' in operator.text
    assert other.status == 404


# --- who sees what ----------------------------------------------------------------------------------------


async def test_a_person_sees_the_lines_of_their_own_issuer_and_subject_alone(tmp_path: Path) -> None:
    lines = [
        called(tmp_path, "own"),
        called(tmp_path, "namesake", issuer="https://idp.example.com"),
        called(tmp_path, "other", subject="bob"),
        called(tmp_path, "elsewhere", config="/elsewhere.json"),
    ]
    async with office(tmp_path, lines) as site:
        for name in ("eve", "bob"):
            browser = await site.person(name)
            page = await browser.get("/ui/calls?who=*&configs=all&span=all&event=*")
            own = {"eve": "own", "bob": "other"}[name]
            statuses = {each.id: (await browser.get(f"/ui/calls/{each.id}")).status for each in lines}
            file = await browser.get("/ui/calls/export?format=jsonl&span=all")

            assert rows_of(page) == [own]
            assert {id for id, status in statuses.items() if status == 200} == {own}
            assert [json.loads(each)["id"] for each in file.response.body.splitlines()] == [own]
            assert b"roles.dev" not in file.response.body
            assert "roles.dev" not in (await browser.get(f"/ui/calls/{own}")).text


@pytest.mark.parametrize("has_rules", [True, False])
async def test_what_rules_hide_looks_to_its_caller_like_what_does_not_exist(
    tmp_path: Path, *, has_rules: bool
) -> None:
    lines = [
        called(tmp_path, "allowed"),
        called(tmp_path, "asked", decision="ask"),
        called(tmp_path, "hidden", outcome="denied", decision="deny", error="AccessDenied"),
        called(tmp_path, "unknown", outcome="failure", decision="", error="NotFound", rule=""),
        called(tmp_path, "list", event="list", decision=""),
        called(tmp_path, "connected", event="session.opened", decision=""),
    ]
    access = access_of(roles={"staff": [{}]}) if has_rules else None
    async with office(tmp_path, lines, access=access) as site:
        browser = await site.person("eve")
        page = await browser.get("/ui/calls?event=*")
        statuses = {each.id: (await browser.get(f"/ui/calls/{each.id}")).status for each in lines}
        usage = (await browser.get("/ui")).text

    shown = {"allowed", "asked", "connected"} if has_rules else {"allowed", "asked", "connected", "unknown"}
    assert {*rows_of(page)} == shown
    assert {id for id, status in statuses.items() if status == 200} == shown
    assert f"create_issue of github{len(shown) - 1}" in usage


async def test_lines_of_other_configs_are_for_the_local_user_alone(tmp_path: Path) -> None:
    lines = [called(tmp_path, "here"), called(tmp_path, "there", config="/elsewhere.json")]
    async with office(tmp_path, lines) as site:
        local, remote = await site.local_user(), await site.person("ann")
        pages = [rows_of(await each.get("/ui/calls?configs=all")) for each in (local, remote)]
        plain = rows_of(await local.get("/ui/calls"))
        statuses = [(await each.get("/ui/calls/there")).status for each in (local, remote)]

    assert pages == [["there", "here"], ["here"]]
    assert plain == ["here"]
    assert statuses == [200, 404]


# --- one call ---------------------------------------------------------------------------------------------


async def test_one_call_has_all_that_is_recorded(tmp_path: Path) -> None:
    facts = {
        "roles": ("dev", "staff"),
        "decision": "ask",
        "arguments": Raw(b'{"title":"new"}'),
        "original_arguments": Raw(b'{"title":"old"}'),
        "approval": "7F3K2M",
        "approved_by": "bob",
        "wait_ms": 4200.0,
        "upstream": "github-mcp",
        "upstream_version": "1.2",
        "definition": "d1g35t",
        "shown": "github__create_issue",
    }
    async with office(tmp_path, [called(tmp_path, "one", **facts)]) as site:
        page = await (await site.person("ann")).get("/ui/calls/one")

    texts = ("dev, staff", "a person is asked, by roles.dev[0]", '"title": "new"', '"title": "old"', "7F3K2M")
    for part in (*texts, "4.2 s", "Decided bybob", "github-mcp 1.2", "d1g35t", "github__create_issue"):
        assert part in page.text


async def test_the_story_of_a_call_has_what_belongs_to_it_in_the_order_of_time(tmp_path: Path) -> None:
    asked = {"approval": "7F3K2M", "parent": "script"}
    detail = Raw(b'{"verdict":"allowed"}')
    lines = [
        called(tmp_path, "requested", event="approval.requested", outcome="pending", approval="7F3K2M"),
        called(tmp_path, "decided", event="approval.decided", approval="7F3K2M", approved_by="bob", detail=detail),
        called(tmp_path, "call", **asked),
        called(tmp_path, "sibling", parent="script", outcome="failure", error="tool_error"),
        called(tmp_path, "script", name="run_dynamic_script", group=""),
        called(tmp_path, "stranger"),
        called(tmp_path, "private", subject="bob", parent="script"),
    ]
    async with office(tmp_path, lines) as site:
        browser = await site.person("eve")
        page = await browser.get("/ui/calls/call")
        of_script = await browser.get("/ui/calls/script")

    assert rows_of(page) == ["script", "requested", "decided", "sibling", "script"]
    assert rows_of(of_script) == ["call", "sibling"]
    for part in ("a person was asked", "allowed by bob", "failed: tool_error", "this one"):
        assert part in page.text


# --- downloads --------------------------------------------------------------------------------------------


async def test_what_is_filtered_can_be_downloaded_as_the_command_exports_it(tmp_path: Path) -> None:
    lines = [called(tmp_path, "one"), called(tmp_path, "two", name="=1+1"), called(tmp_path, "other", group="mail")]
    async with office(tmp_path, lines) as site:
        browser = await site.person("ann")
        table = await browser.get("/ui/calls/export?format=csv&group=github")
        whole = await browser.get("/ui/calls/export?format=jsonl&group=github")

    rows = [*csv.DictReader(io.StringIO(table.response.body.decode()))]
    assert [(each["id"], each["name"]) for each in rows] == [("one", "create_issue"), ("two", "'=1+1")]
    written = days.file_of(tmp_path / "audit", "2026-11-23").read_bytes().splitlines()
    assert whole.response.body.splitlines() == written[:2]
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    assert table.headers["content-disposition"] == 'attachment; filename="calls.csv"'


# --- the first page ---------------------------------------------------------------------------------------


async def test_the_first_page_has_the_most_used_tools_and_clients(tmp_path: Path) -> None:
    many = [called(tmp_path, f"n{number}", at=NOON + timedelta(minutes=number)) for number in range(3)]
    lines = [*many, called(tmp_path, "other", at=NOON + timedelta(minutes=5), name="merge", client="cursor")]
    lines.append(called(tmp_path, "failed", at=NOON + timedelta(minutes=6), name="merge", outcome="failure"))
    async with office(tmp_path, lines) as site:
        browser = await site.person("ann")
        await browser.get("/ui/calls")  # whose visit waits until the log is indexed
        page = (await browser.get("/ui")).document

    assert "create_issue of github30" in page.text
    assert "merge of github21" in page.text
    assert "claude-code41" in page.text
    assert "cursor10" in page.text
    assert "5 calls, 1 of them failed" in page.find("svg", class_="chart")[0]["aria-label"]


async def test_an_open_page_hears_of_a_new_line_of_its_person(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with office(tmp_path, [called(tmp_path, "one", at=now)]) as site:
        site.now = now.timestamp()
        browser = await site.person("eve")
        assert rows_of(await browser.get("/ui/calls")) == ["one"]
        stream = await browser.stream("/ui/events?section=calls")
        async with asyncio.timeout(BOUND_S):
            async for piece in stream.pieces:
                if b'"changes":0' in piece:
                    new = [called(tmp_path, f"new-{owner}", at=now, subject=owner) for owner in ("bob", "eve")]
                    write_log(tmp_path / "audit", new, n=1)
                elif b'"changes":1' in piece:
                    break
        page = await browser.get("/ui/calls")

    assert rows_of(page) == ["new-eve", "one"]


# --- the log of the program -------------------------------------------------------------------------------


def write_records(*records: dict[str, Any]) -> None:
    folder = paths.log_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / log_output.FILE_NAME).open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def record(folder: Path, message: str, **changes: Any) -> dict[str, Any]:
    time = NOON.isoformat(timespec="milliseconds")
    return {"time": time, "level": "info", "config": str(folder / "config.json"), "message": message, **changes}


async def test_the_log_is_shown_to_operators_the_newest_first_by_level_group_and_text(tmp_path: Path) -> None:
    write_records(
        record(tmp_path, "began"),
        record(tmp_path, "a word of a server", level="debug", group="github"),
        record(tmp_path, f"failed {HOSTILE}", level="error", traceback=f"Traceback {HOSTILE}"),
        record(Path("/elsewhere"), "of another config"),
    )
    async with office(tmp_path) as site:
        operator = await site.person("ann")
        texts = {
            query: (await operator.get(f"/ui/calls/log?{query}")).text
            for query in ("", "level=debug", "level=error", "q=WORD&level=debug", "group=github&level=debug")
        }
        other = await (await site.person("eve")).get("/ui/calls/log")
        local = (await (await site.local_user()).get("/ui/calls/log")).text

    assert other.status == 404
    assert "of another config" in local
    assert all("of another config" not in text for text in texts.values())
    assert texts[""].index("failed") < texts[""].index("began")
    assert "a word" not in texts[""]
    assert "a word" in texts["level=debug"]
    assert "began" not in texts["level=error"]
    for query in ("q=WORD&level=debug", "group=github&level=debug"):
        assert "a word" in texts[query]
        assert "began" not in texts[query]
    assert "Traceback <script>" in texts[""]


async def test_a_call_has_the_log_of_its_time_beside_it(tmp_path: Path) -> None:
    before = (NOON - timedelta(minutes=5)).isoformat(timespec="milliseconds")
    write_records(
        record(tmp_path, "long before", time=before),
        record(tmp_path, "of its server", group="github"),
        record(tmp_path, "of another server", group="mail"),
    )
    async with office(tmp_path, [called(tmp_path, "one")]) as site:
        page = (await (await site.person("ann")).get("/ui/calls/one")).text
        own = (await (await site.person("eve")).get("/ui/calls/one")).text

    assert "of its server" in page
    assert "long before" not in page
    assert "of another server" not in page
    assert "of its server" not in own


async def test_a_large_log_gives_a_small_page(tmp_path: Path) -> None:
    write_records(*(record(tmp_path, f"{number} {HOSTILE * 300}", traceback="x" * 9000) for number in range(300)))
    async with office(tmp_path) as site:
        page = (await (await site.person("ann")).get("/ui/calls/log")).document

    assert len(page.html) < MOST_BYTES
    assert "299 <script>" in page.text
