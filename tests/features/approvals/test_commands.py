"""`approve`: what it shows of calls that wait, and how a person decides about them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dynamic_mcp.features.approvals.commands.view import facts_of
from dynamic_mcp.features.approvals.store import QueuedApproval
from dynamic_mcp.observe.proxies import ProxyRegistry, ProxyStatus
from tests.cli.commands import CliRunner, CommandResult
from tests.features.approvals.queue_server import Proxy, running, waiting
from tests.terminal import INTERRUPT, Terminal, open_terminal, strip_escapes

SECRET = "ghp_" + "a1B2" * 9
HOSTILE = "x\n  counts as: read \x1b[2J\u202e\u3164"
NOW = 1_800_000_000.0
UNTIL = time.strftime("%H:%M", time.localtime(NOW + 500))

# Notes what it finds, and whether what it was given before is still there; writes `/etc` at first, then `/b`.
EDITOR = """
import pathlib, sys
file, noted, left = pathlib.Path(sys.argv[1]), pathlib.Path("noted"), pathlib.Path("left")
before = noted.read_text().split()[-1] if noted.exists() else ""
left.write_text(before if before and pathlib.Path(before).exists() else "")
text = file.read_text()
noted.write_text(f"{file.stat().st_mode & 0o777:#o} {file.parent.stat().st_mode & 0o777:#o} {text} {file}")
file.write_text(text.replace("/etc", "/b") if before else text.replace("/a", "/etc"))
"""


def call() -> QueuedApproval:
    """Return a call that waits from now on."""
    return waiting(
        subject="ann@example.org",
        issuer="https://login.example.org",
        client="Claude Code",
        description="Deletes a file.\nFor ever.",
        access="write",
        rule="mcpServers.files.approve",
        roles=("dev", "ops"),
        allowed_by="roles.ops[0]",
        notes=("`path` was given as `file`",),
        arguments=json.dumps({"path": "/a", "token": SECRET, "note": "\u202egpj", "n": 1.5}).encode(),
    )


@pytest.fixture
async def proxy(state: Path) -> AsyncIterator[Proxy]:
    """A proxy in which one call waits."""
    async with running(state / "approvals", call()) as proxy:
        yield proxy


async def run(cli: CliRunner, *args: str, stdin: str = "") -> CommandResult:
    return await asyncio.to_thread(lambda: cli.run("approve", *args, stdin=stdin))


async def on_terminal(cli: CliRunner, *args: str, typed: bytes = b"", **env: str) -> CommandResult:
    done = await asyncio.to_thread(lambda: cli.run_on_terminal("approve", *args, typed=typed, width=120, **env))
    return CommandResult(done.code, strip_escapes(done.out))


async def test_what_waits_is_listed_without_its_secrets(cli: CliRunner, proxy: Proxy) -> None:
    (listed,) = (await run(cli)).json
    assert (listed["id"], listed["subject"], listed["group"], listed["name"]) == (
        "7F3K2M",
        "ann@example.org",
        "files",
        "delete_file",
    )
    assert listed["arguments"] == {"path": "/a", "token": "*** (40 characters hidden)", "note": "\u202egpj", "n": 1.5}
    assert listed["expires_in_s"] > 0
    table = (await on_terminal(cli)).out
    assert "ann@example.org with Claude Code" in table
    assert SECRET not in table


async def test_only_what_waits_for_a_config_is_listed_if_one_is_given(cli: CliRunner, proxy: Proxy) -> None:
    await proxy.server.put(waiting("AAAAAA", config=str(cli.config)))
    assert [each["id"] for each in (await run(cli, "list", "-c", str(cli.config))).json] == ["AAAAAA"]


async def test_all_of_a_call_is_shown(cli: CliRunner, proxy: Proxy) -> None:
    shown = (await on_terminal(cli, "show", "7f3")).out
    for text in (
        "7F3K2M  delete_file of group files",
        "who: ann@example.org with Claude Code",
        "identified by: https://login.example.org",
        "roles: dev, ops",
        "allowed by: roles.ops[0]",
        "the tool says: Deletes a file. For ever.",
        "counts as: write",
        "asked because of: mcpServers.files.approve",
        "`path` was given as `file`",
        "once, hour",
        '"path": "/a"',
        '"note": "\\u202egpj"',
    ):
        assert text in shown
    assert SECRET not in shown
    assert "*** (40 characters hidden)" in shown
    assert "`dynamic-mcp approve show 7F3K2M --reveal` shows what is hidden" in shown
    assert "\u202e" not in shown
    assert SECRET in (await on_terminal(cli, "show", "7f3", "--reveal")).out
    assert (await run(cli, "show", "7f3", "--reveal")).json["arguments"]["token"] == SECRET


async def test_nothing_that_others_have_written_acts_on_the_terminal_or_makes_a_line(
    cli: CliRunner, proxy: Proxy
) -> None:
    await proxy.server.put(
        waiting(
            "AAAAAA",
            **dict.fromkeys(("subject", "client", "group", "name", "description", "rule", "access"), HOSTILE),
            notes=(HOSTILE,),
            arguments=json.dumps({HOSTILE: HOSTILE}).encode(),
        )
    )
    for args in (("show", "AAAAAA"), ("list",)):
        done = await on_terminal(cli, *args)
        assert not {"\x1b", "\u202e", "\u3164"} & set(done.out)
        assert not [
            line for line in strip_escapes(done.out).splitlines() if line.strip().startswith("counts as: read")
        ]


async def test_a_person_sees_a_call_before_it_is_allowed(cli: CliRunner, proxy: Proxy) -> None:
    done = await on_terminal(cli, "allow", "7F3K2M", "--for", "hour", typed=b"n\n")
    assert (done.code, proxy.received) == (0, [])
    assert '"path": "/a"' in done.out
    done = await on_terminal(cli, "allow", "7F3K2M", "--for", "hour", typed=b"y\n")
    assert "7F3K2M is allowed for an hour" in done.out
    (decision,) = proxy.received
    assert (decision.verdict, decision.scope, bytes(decision.arguments)) == ("allow", "hour", b"")
    assert decision.by


@pytest.mark.parametrize(
    "arguments",
    [
        {"body": "b" * 30_000, "z": "/etc/shadow"},
        {**{f"name{number}": "x" * 100 for number in range(400)}, "z": "/etc/shadow"},
    ],
    ids=["a long value", "many names"],
)
async def test_long_arguments_are_said_to_be_cut_and_can_be_seen_in_full_before_a_call_is_allowed(
    cli: CliRunner, proxy: Proxy, arguments: dict[str, str]
) -> None:
    await proxy.server.put(waiting("AAAAAA", arguments=json.dumps(arguments).encode()))
    whole = "".join(arguments.values())

    def shown_of(done: CommandResult) -> str:
        return "".join(done.out.split())

    cut = await on_terminal(cli, "allow", "AAAAAA", typed=b"n\nn\n")
    assert "THESE ARE NOT ALL OF THE ARGUMENTS" in cut.out
    assert "though not all of the arguments were shown?" in cut.out
    assert len(cut.out) < len(whole)
    seen = await on_terminal(cli, "allow", "AAAAAA", typed=b"y\ny\n")
    for value in arguments.values():
        assert value in shown_of(seen)
    assert "though not all" not in seen.out
    assert [each.id for each in proxy.received] == ["AAAAAA"]


@pytest.mark.parametrize(
    ("changes", "name", "shown"),
    [
        ({"held_until": NOW + 47}, "waiting", f"for 3 s; the client gives up in 47 s; you can decide until {UNTIL}"),
        ({"held_until": NOW}, "waiting", f"for 3 s; the client was told to call again; you can decide until {UNTIL}"),
        ({"roles": ("dev",), "allowed_by": "roles.dev[0]"}, "roles", "dev"),
        ({"allowed_by": "default"}, "allowed by", "default, as no rule matches"),
        ({"allowed_by": "default"}, "roles", "none"),
        ({}, "roles", ""),
    ],
)
def test_it_is_shown_how_long_a_call_waits_and_why_it_may_be_made(
    changes: dict[str, Any], name: str, shown: str
) -> None:
    pending = structs.replace(waiting(), since=NOW - 3, expires=NOW + 500, **changes)
    assert dict(facts_of(pending, NOW))[name] == shown


async def test_names_after_a_long_value_are_shown(cli: CliRunner, proxy: Proxy) -> None:
    arguments = {"body": "b" * 30_000, "z": "/etc/shadow"}
    await proxy.server.put(waiting("AAAAAA", arguments=json.dumps(arguments).encode()))
    cut = await on_terminal(cli, "allow", "AAAAAA", typed=b"n\nn\n")
    assert '"z": "/etc/shadow"' in cut.out
    assert "(28000 characters left out)" in cut.out
    whole = await on_terminal(cli, "show", "AAAAAA")
    assert "b" * 30_000 in "".join(whole.out.split())
    assert "THESE ARE NOT ALL" not in whole.out


async def test_whoever_is_logged_in_approves_whatever_the_environment_says(cli: CliRunner, proxy: Proxy) -> None:
    forged = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "the-boss")
    done = await asyncio.to_thread(lambda: cli.run("approve", "allow", "7F3K2M", "--yes", **forged))
    assert done.code == 0, done.err
    (decision,) = proxy.received
    assert decision.by not in ("", "the-boss")


async def test_allowing_without_a_terminal_needs_somebody_who_is_sure(cli: CliRunner, proxy: Proxy) -> None:
    for args in (("allow", "7F3K2M"), ("edit", "7F3K2M", "--args", "{}"), ("edit", "7F3K2M", "--yes"), ("watch",)):
        refused = await run(cli, *args)
        assert refused.code == 2
        assert "needs a terminal" in refused.err
    assert proxy.received == []
    done = await run(cli, "allow", "7F3K2M", "--yes", "--json")
    assert (done.code, done.json["verdict"], done.json["scope"]) == (0, "allow", "once")
    assert [each.verdict for each in proxy.received] == ["allow"]


async def test_a_denial_says_why(cli: CliRunner, proxy: Proxy) -> None:
    done = await run(cli, "deny", "7F3K", "--reason", "not this one")
    assert (done.code, done.out) == (0, "")
    assert "7F3K2M is denied" in done.err
    assert [(each.verdict, each.reason) for each in proxy.received] == [("deny", "not this one")]


async def test_an_unknown_id_names_what_waits(cli: CliRunner, proxy: Proxy) -> None:
    await proxy.server.put(waiting("7F3K2N"))
    unknown = await run(cli, "deny", "ZZ")
    assert unknown.code == 2
    assert "waiting: 7F3K2M, 7F3K2N" in unknown.err
    several = await run(cli, "deny", "7F")
    assert several.code == 2
    assert "7F3K2M, 7F3K2N" in several.err
    not_offered = await run(cli, "allow", "7F3K2M", "--yes", "--for", "session")
    assert not_offered.code == 2
    assert "`once` or `hour`" in not_offered.err
    assert proxy.received == []


async def test_new_arguments_are_sent_or_refused(cli: CliRunner, proxy: Proxy) -> None:
    refused = await run(cli, "edit", "7F3K2M", "--yes", "--args", '{"path": "/etc"}')
    assert refused.code == 2
    assert "7F3K2M still waits: `/etc` may not be deleted" in refused.err
    for wrong in ("[]", "{", '{"a": 1, "a": 2}'):
        assert (await run(cli, "edit", "7F3K2M", "--yes", "--args", wrong)).code == 2
    done = await run(cli, "edit", "7F3K2M", "--yes", "--args", "-", stdin='{"path": "/b"}')
    assert done.code == 0, done.err
    assert [json.loads(bytes(each.arguments)) for each in proxy.received] == [{"path": "/b"}]


async def test_arguments_are_edited_in_the_editor_of_the_person(cli: CliRunner, proxy: Proxy, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(EDITOR)
    typed = b"y\ny\ny\n"  # allow, edit again, allow
    done = await on_terminal(cli, "edit", "7F3K2M", typed=typed, VISUAL=f"{sys.executable} {editor}", EDITOR="false")
    assert done.code == 0, done.out
    assert '-   "path": "/a"' in done.out
    assert '+   "path": "/b"' in done.out
    assert "`/etc` may not be deleted" in done.out
    assert SECRET not in done.out
    assert [json.loads(bytes(each.arguments))["path"] for each in proxy.received] == ["/b"]
    noted = (cli.folder / "noted").read_text()
    assert noted.startswith("0o600 0o700 ")
    assert '"note": "\\u202egpj"' in noted
    assert (cli.folder / "left").read_text() == ""


async def press(person: Terminal, key: bytes, proxy: Proxy) -> None:
    """Press a key until it counts, which one that comes too soon does not."""
    proxy.has_received.clear()
    while not proxy.has_received.is_set():
        person.presses(key)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await proxy.has_received.wait()


async def press_until(person: Terminal, key: bytes, words: str) -> None:
    """Press a key until this is shown."""
    showing = asyncio.create_task(asyncio.to_thread(person.shows, words))
    while not showing.done():
        person.presses(key)
        await asyncio.wait([showing], timeout=0.1)
    await showing


async def test_one_key_decides_about_each_call_while_watching(cli: CliRunner, proxy: Proxy) -> None:
    await proxy.server.put(waiting("AAAAAA", since=1.0, arguments=json.dumps({"body": "b" * 3000}).encode()))
    environment = cli.environment(TERM="xterm-256color")
    with open_terminal("approve", "watch", env=environment, cwd=cli.folder) as person:
        await asyncio.to_thread(person.shows, "AAAAAA? [a SHOW ALL ARGUMENTS, ")
        await press_until(person, b"a", "AAAAAA? [y allow once")
        await press(person, b"h", proxy)
        await asyncio.to_thread(person.shows, "7F3K2M? [")
        await press(person, b"n", proxy)
        person.types(INTERRUPT)
        await asyncio.to_thread(person.ends)
    assert [(each.id, each.verdict, each.scope) for each in proxy.received] == [
        ("AAAAAA", "allow", "hour"),
        ("7F3K2M", "deny", "once"),
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("mcpServers.files.approve", ["move_*"]),
        (
            "roles.dev[0]",
            {"tools": ["*"], "effect": "ask", "when": '!(server == "files" && name == "delete_file")'},
        ),
    ],
)
async def test_always_prints_the_change_and_writes_nothing(
    cli: CliRunner, state: Path, rule: str, expected: object
) -> None:
    roles = {"dev": [{"tools": ["*"], "effect": "ask"}]}
    server = {"command": "true", "approve": ["delete_*", "move_*"]}
    cli.configure({"files": server}, settings={"access": {"roles": roles}})
    before = cli.config.read_bytes()
    async with running(state / "approvals", waiting(rule=rule, config=str(cli.config))) as proxy:
        done = await run(cli, "allow", "7F3K2M", "--yes", "--always")
        assert done.code == 0
        assert json.loads(done.out) == expected
        assert "nothing was written" in done.err
        assert [each.scope for each in proxy.received] == ["once"]
    assert cli.config.read_bytes() == before


async def test_always_names_the_rules_about_what_a_script_runs(cli: CliRunner, state: Path) -> None:
    cli.configure({"files": {"command": "true"}})
    pending = waiting(kind="script", name="run_dynamic_script", rule="roles.dev[0]", config=str(cli.config))
    async with running(state / "approvals", pending):
        done = await run(cli, "allow", "7F3K2M", "--yes", "--always")
    assert done.out == ""
    assert "change `roles.dev[0]`" in done.err


async def test_always_drops_the_globs_that_ask_for_the_tool_and_no_others(cli: CliRunner, state: Path) -> None:
    cli.configure({"files": {"command": "true", "approve": ["\uff44elete_*", "[d]elete_*", "move_*"]}})
    pending = waiting(rule="mcpServers.files.approve", config=str(cli.config))
    async with running(state / "approvals", pending):
        done = await run(cli, "allow", "7F3K2M", "--yes", "--always")
    assert json.loads(done.out) == ["[d]elete_*", "move_*"]


@pytest.mark.parametrize("settings", [{"defaults": {"approve": ["delete_*"]}}, {"approve": ["delete_*"]}])
async def test_always_finds_the_globs_for_all_servers_also_under_their_old_name(
    cli: CliRunner, state: Path, settings: dict[str, object]
) -> None:
    cli.configure({"files": {"command": "true"}}, settings=settings)
    pending = waiting(rule="mcpServers.files.approve", config=str(cli.config))
    async with running(state / "approvals", pending):
        done = await run(cli, "allow", "7F3K2M", "--yes", "--always")
    assert json.loads(done.out) == []


@pytest.mark.parametrize("status", [ProxyStatus(), ProxyStatus(supervisor=os.getppid(), worker="w0")])
async def test_the_status_says_how_many_calls_wait(
    cli: CliRunner, proxy: Proxy, state: Path, status: ProxyStatus
) -> None:
    publishing = asyncio.create_task(ProxyRegistry(state / "running").publish(lambda: status))
    while not await asyncio.to_thread(lambda: list((state / "running").glob("*.json"))):
        pass
    (read,) = (await asyncio.to_thread(cli.run, "status")).json
    assert read["approvals"] == 1
    shown = (await asyncio.to_thread(cli.run_on_terminal, "status")).out
    assert "1 call waits for your approval; `dynamic-mcp approve` lists them" in shown
    publishing.cancel()
    await asyncio.wait([publishing])


async def test_ids_are_completed(cli: CliRunner, proxy: Proxy) -> None:
    words = "dynamic-mcp approve allow 7f"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = await asyncio.to_thread(lambda: cli.run(**asked))
    assert done.out.split() == ["plain,7F3K2M"]
