"""The section of clients: an operator sees who is connected and what runs, and a person what is theirs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dynamic_mcp.config.access import Access, AccessRule
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.config.location import identify
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.observe.proxies import (
    GroupStatus,
    InstanceStatus,
    ProxyStatus,
    RunningProxy,
    SessionStatus,
)
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config
from tests.ui.site import Site, bearer_http, site_of

HOSTILE = "<script>alert(1)</script>\u202egnp.exe\x1b[31m"
LARGEST_PAGE = 50_000
CONFIG = config_of(
    group_config("files"),
    group_config("notes"),
    access=Access(
        roles={
            "admins": (AccessRule(),),
            "checkers": (AccessRule(),),
            "staff": (AccessRule(servers=("files",)),),
        }
    ),
    ui=Ui(operators=("admins",)),
)


async def connect(site: Site, info: Json, who: Authentication | None = None, directory: str = "") -> Client:
    """Connect a client, which has used one server."""
    workspace = Workspace(directory, {}) if directory else None
    client = Client(site.proxy, workspace) if who is None else Client(site.proxy, workspace, authentication=who)
    await client.initialize(client_info=info)
    return client


def person(name: str) -> Authentication:
    """Return a person as their token says it."""
    roles = {"ann": ("admins",), "bob": ("checkers",), "eve": ("staff",)}[name]
    return Authentication(Principal(TOKEN, name), TOKEN, roles=roles)


def write_other(folder: Path, status: ProxyStatus, pid: int) -> None:
    """Write what another process of this user says of itself; the pid is of one that runs."""
    running = RunningProxy(pid=pid, version="9.9", started_at=1.0, status=status)
    (folder / "running").mkdir(exist_ok=True)
    (folder / "running" / f"{pid}.json").write_bytes(msgspec.json.encode(running))


async def test_clients_have_readable_names(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await connect(site, {"name": "claude-code", "version": "1.0"})
        await connect(site, {"name": "my-tool", "title": "My Tool", "version": "2"})
        await connect(site, {"name": "plain", "version": "3"})

        page = await (await site.local_user()).get("/ui/clients")

        assert "Claude Code 1.0 claude-code" in page.text
        assert "My Tool 2 my-tool" in page.text
        assert "plain 3" in page.text


async def test_an_operator_sees_the_copies_of_servers_and_who_shares_them(tmp_path: Path) -> None:
    async with site_of(
        tmp_path, config_of(group_config("files")), Opener(files=[FakeUpstream({"tools/call": {"content": []}})])
    ) as site:
        await (await connect(site, {"name": "claude-code", "version": "2.1"})).call("files", "echo")

        page = await (await site.local_user()).get("/ui/clients?show=servers")

        assert "files ready" in page.text
        assert "1 session" in page.text


async def test_an_operator_sees_the_other_processes_of_this_config_and_of_no_other(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        file = identify(site.config.file)
        session = SessionStatus(client="cursor-vscode", version="1.2", since=5.0, directory="/home/ann/work")
        instance = InstanceStatus(
            shared_by="cursor-vscode 1.2", clients=["x"], state="connected", calls=7, p50_ms=3.0
        )
        group = GroupStatus(name="far", state="connected", instances=[instance])
        write_other(
            tmp_path, ProxyStatus(config=file, kind="daemon", sessions=[session], groups=[group]), os.getppid()
        )
        browser = await site.local_user()

        sessions, servers = await browser.get("/ui/clients"), await browser.get("/ui/clients?show=servers")

        assert f"daemon {os.getppid()}" in sessions.text
        assert "Cursor 1.2" in sessions.text
        assert "/home/ann/work" in sessions.text
        assert "far ready Cursor 1.2 1 session 703.0 ms" in servers.text

        write_other(tmp_path, ProxyStatus(config="/other.json", sessions=[session]), os.getppid())
        assert "Cursor" not in (await browser.get("/ui/clients")).text


async def test_workers_are_shown_as_one_service(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        file, supervisor = identify(site.config.file), os.getppid()
        sessions = [SessionStatus(client="one")]
        status = ProxyStatus(config=file, kind="http", supervisor=supervisor, worker="a", sessions=sessions)
        write_other(tmp_path, status, os.getpid())

        page = await (await site.local_user()).get("/ui/clients")

        assert f"HTTP server {supervisor} this page 1 worker" in page.text
        assert "one" in page.text


async def test_a_person_sees_only_their_own_sessions_and_no_processes(tmp_path: Path) -> None:
    opener = Opener(
        files=[FakeUpstream({"tools/call": {"content": []}})], notes=[FakeUpstream({"tools/call": {"content": []}})]
    )
    async with site_of(tmp_path, CONFIG, opener) as site:
        site.configure(http=bearer_http())
        file = identify(site.config.file)
        elsewhere = [
            SessionStatus(client="eves-other", subject="eve", issuer=TOKEN, directory="/home/eve"),
            SessionStatus(client="namesake", subject="eve", issuer="https://other.example"),
            SessionStatus(client="bobs-other", subject="bob", issuer=TOKEN, directory="/home/bob"),
        ]
        write_other(tmp_path, ProxyStatus(config=file, sessions=elsewhere), os.getppid())
        await (await connect(site, {"name": "eves-tool", "version": "1"}, person("eve"))).call("files", "echo")
        await (await connect(site, {"name": "bobs-tool", "version": "1"}, person("bob"))).call("notes", "echo")
        eve, ann = await site.person("eve"), await site.person("ann")

        for browser, sees in ((eve, False), (ann, True)):
            sessions, servers = await browser.get("/ui/clients"), await browser.get("/ui/clients?show=servers")

            assert f"Clients{2 if sees else 1} Calls" in (await browser.get("/ui")).text
            assert "eves-tool" in sessions.text
            assert "eves-other" in sessions.text
            assert "files" in servers.text
            for hidden in ("bobs-tool", "bobs-other", "namesake", "/home/bob"):
                assert (hidden in sessions.text) is sees, hidden
            assert ("notes" in servers.text) is sees
            assert ("Pid" in servers.text) is sees
            assert ("Memory" in servers.text) is sees
            assert (str(os.getppid()) in sessions.text) is sees


async def test_sessions_are_found_by_a_part_of_what_is_shown(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await connect(site, {"name": "claude-code", "version": "1"})
        await connect(site, {"name": "other-tool", "version": "1"})
        browser = await site.local_user()

        found, none = await browser.get("/ui/clients?q=CLAUDE"), await browser.get("/ui/clients?q=zebra")

        print(found.text)
        assert "Claude Code" in found.text
        assert "other-tool" not in found.text
        assert "No session fits" in none.text


@pytest.mark.parametrize("name", [HOSTILE, HOSTILE * 10_000, "", "\ud800"])
async def test_hostile_names_are_text(tmp_path: Path, name: str) -> None:
    async with site_of(tmp_path) as site:
        await connect(site, {"name": name, "title": name, "version": name})
        page = await (await site.local_user()).get("/ui/clients")

        assert page.status == 200
        assert len(page.response.body) < LARGEST_PAGE
        assert [each.get("type") for each in page.document.find("script")] == ["module"]
        assert not {"\u202e", "\x1b"} & set(page.document.html)


async def test_very_many_sessions_and_servers_are_shown_in_parts(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        sessions = [SessionStatus(client=f"tool-{number}", title="<&" * 99, since=number) for number in range(2000)]
        instances = [InstanceStatus(shared_by="<&" * 30, reason="\u202e" * 900, state="failed") for _ in range(500)]
        groups = [GroupStatus(name="far" * 20, instances=instances, copies="<" * 500)]
        status = ProxyStatus(config=identify(site.config.file), sessions=sessions, groups=groups)
        write_other(tmp_path, status, os.getppid())
        browser = await site.local_user()

        for path, noun in (("/ui/clients", "2,000 sessions"), ("/ui/clients?show=servers", "500 servers")):
            page = await browser.get(path)

            assert len(page.response.body) < LARGEST_PAGE
            assert noun in page.text
            assert (await browser.get(page.document.find("a", rel="next")[0]["href"])).status == 200


async def test_a_new_client_changes_the_stamp_of_an_operator(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        browser = await site.local_user()
        stream = await browser.stream("/ui/events?section=clients")
        pieces = aiter(stream.pieces)
        first = await anext(pieces)

        await connect(site, {"name": "new", "version": "1"})

        assert b'"changes":0' in first
        assert b'"changes":1' in await anext(pieces)


async def test_a_person_sees_their_sessions_at_all_workers(tmp_path: Path) -> None:
    async with site_of(tmp_path, CONFIG, Opener(files=[FakeUpstream()], notes=[FakeUpstream()])) as site:
        site.configure(http=bearer_http())
        sessions = [SessionStatus(client=f"tool-of-{name}", subject=name, issuer=TOKEN) for name in ("eve", "bob")]
        file = identify(site.config.file)
        status = ProxyStatus(config=file, supervisor=os.getppid(), worker="a", sessions=sessions)
        write_other(tmp_path, status, os.getpid())

        page = await (await site.person("eve")).get("/ui/clients")

        assert "tool-of-eve" in page.text
        assert "tool-of-bob" not in page.text
