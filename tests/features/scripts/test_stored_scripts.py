"""Stored scripts: files that are tools of the group `scripts`, by the rules of any tool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.access import LOCAL_NAME
from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import FeatureServer, GroupConfig, Pinning, Share
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.features.scripts.check import check
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.stored import BadScript, read_folder, read_script
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers
from dynamic_mcp.upstream.handshake import Era, Opened
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import open_link
from tests.fakes import FakeClock, FakeUpstream, Json, Opener, config_of, group_config, text_of
from tests.features.approvals.scene import READ_S, accept, asking_with
from tests.features.audit.audited import KEEPING, uses_in
from tests.features.scripts.scene import SLOW_S, ScriptClient, echo, patiently
from tests.features.scripts.test_script_calls import ask_and_answer
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import access_of

TRIPLE = """# ---
# description: Echo a number three times
# input:
#   properties: {n: {type: integer}}
#   required: [n]
# ---
return [await call("up", "echo", {"n": input["n"] + each}) for each in range(3)]
"""


def front(text: str, code: str = "return 1") -> str:
    return f"# ---\n{text}\n# ---\n{code}\n"


def proxy_of(folder: Path, upstream: FakeUpstream, *, store: Path | None = None, **changes: Any) -> Proxy:
    """Return a proxy with the scripts of a folder, and the server `up`; changes are fields of the config."""
    opener = Opener(up=[upstream])

    async def open_either(
        config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> Opened:
        open_it = open_link if isinstance(config.upstream, FeatureServer) else opener
        return await open_it(config, listener, hello, lacks=lacks)

    pinning = changes.pop("pinning", Pinning())
    steps, state_folder = changes.pop("steps", None), changes.pop("state_folder", None)
    scripts = group_config("scripts", upstream=FeatureServer("scripts", str(folder)), pinning=pinning)
    config = config_of(group_config("up", share=Share.ALL), scripts, scripts=Scripts(folder=str(folder)), **changes)
    catalogs = None if store is None else CatalogStore(store)
    return Proxy(config, opener=open_either, steps=steps, catalog_store=catalogs, state_folder=state_folder)


@contextlib.asynccontextmanager
async def stored(folder: Path, **changes: Any) -> AsyncIterator[tuple[Proxy, FakeUpstream, ScriptClient]]:
    """Run such a proxy, and a client of it."""
    upstream = FakeUpstream({"tools/call": echo})
    proxy = proxy_of(folder, upstream, **changes)
    client = ScriptClient(proxy, bound_s=SLOW_S)
    await client.initialize(capabilities={"elicitation": {"form": {}}})
    try:
        yield proxy, upstream, client
    finally:
        async with asyncio.timeout(SLOW_S):
            await proxy.close()


async def test_a_stored_script_is_a_tool_whose_arguments_are_its_input(tmp_path: Path) -> None:
    (tmp_path / "triple.py").write_text(TRIPLE)
    async with stored(tmp_path) as (_, upstream, client):
        result = await client.call("scripts", "triple", {"n": 4})
        assert json.loads(text_of(result)) == [{"n": 4}, {"n": 5}, {"n": 6}]
        assert len(upstream.heard("tools/call")) == 3


async def test_its_definition_is_listed_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "triple.py").write_text(TRIPLE)
    async with stored(tmp_path) as (_, _upstream, client):
        found = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "scripts"}})
        assert "Echo a number three times" in text_of(found["result"])


async def test_arguments_that_do_not_fit_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "triple.py").write_text(TRIPLE)
    async with stored(tmp_path) as (_, upstream, client):
        result = await client.call("scripts", "triple", {"n": "many"})
        assert result["isError"]
        assert upstream.heard("tools/call") == []


async def test_a_changed_script_is_not_run_before_it_was_listed_again(tmp_path: Path) -> None:
    file = tmp_path / "triple.py"
    file.write_text(TRIPLE)
    async with stored(tmp_path) as (_, _upstream, client):
        await client.call("scripts", "triple", {"n": 1})
        file.write_text(TRIPLE.replace("range(3)", "range(1)"))
        words = text_of(await client.call("scripts", "triple", {"n": 1}))
        assert "has changed since it was listed, and nothing was run" in words
        assert json.loads(text_of(await client.call("scripts", "triple", {"n": 1}))) == [{"n": 1}]


async def test_a_script_that_is_added_is_found(tmp_path: Path) -> None:
    async with stored(tmp_path) as (_, _upstream, client):
        assert (await client.call("scripts", "later", {}))["isError"]
        (tmp_path / "later.py").write_text(front("# description: late", "return 'late'"))
        assert text_of(await client.call("scripts", "later", {})) == '"late"'


async def test_a_broken_file_is_left_out_and_the_others_work(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("print('no front matter')")
    (tmp_path / "good.py").write_text(front("# description: good"))
    async with stored(tmp_path) as (_, _upstream, client):
        assert text_of(await client.call("scripts", "good", {})) == "1"
        assert (await client.call("scripts", "bad", {}))["isError"]


async def test_a_script_cannot_run_stored_scripts(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(front("# description: good"))
    async with stored(tmp_path) as (_, _upstream, client):
        assert "a script cannot run scripts" in await client.failure('await call("scripts", "good", {})')


async def test_types_are_checked_before_a_stored_script_calls_anything(tmp_path: Path) -> None:
    code = 'await call("up", "echo", {})\nawait call("up", "ecko", {})'
    (tmp_path / "typo.py").write_text(front("# description: wrong", code))
    async with stored(tmp_path) as (_, upstream, client):
        result = await client.call("scripts", "typo", {})
        assert result["isError"]
        assert "did you mean `echo`?" in text_of(result)
        assert upstream.heard("tools/call") == []


# --- the rules of any tool -----------------------------------------------------------------------------


async def test_access_rules_hide_a_stored_script_and_what_it_calls(tmp_path: Path) -> None:
    (tmp_path / "triple.py").write_text(TRIPLE)
    (tmp_path / "secret.py").write_text(front("# description: secret"))
    access = access_of(
        roles={"dev": [{}, {"tools": ["secret"], "effect": "deny"}, {"tools": ["echo"], "effect": "deny"}]},
        people={LOCAL_NAME: ["dev"]},
    )
    async with stored(tmp_path, access=access) as (_, upstream, client):
        hidden = text_of(await client.call("scripts", "secret", {}))
        unknown = text_of(await client.call("scripts", "secres", {}))
        assert hidden == unknown.replace("secres", "secret")
        assert "no tool of group `up` is named `echo`" in text_of(await client.call("scripts", "triple", {"n": 1}))
        assert upstream.heard("tools/call") == []


async def test_a_person_approves_a_stored_script_and_is_asked_for_its_calls_too(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(front("# description: one", 'return await call("up", "echo", {"n": 1})'))
    access = access_of(roles={"dev": [{}, {"tools": ["one", "echo"], "effect": "ask"}]}, people={LOCAL_NAME: ["dev"]})
    clock = FakeClock()
    async with stored(tmp_path, access=access, steps=asking_with(clock)) as (_, _upstream, client):
        running = asyncio.create_task(client.call("scripts", "one", {}))
        for times, words in enumerate(("`one`", "up.echo once"), 1):
            question = await patiently(client.hears, "elicitation/create", times)
            assert words in question["params"]["message"]
            await clock.pass_(READ_S)
            client.reply(question, accept("once"))
        assert text_of(await running) == '{"n": 1}'


async def test_the_audit_log_has_its_calls_as_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "triple.py").write_text(TRIPLE)
    trail = Trail(tmp_path, KEEPING, stops_writes=False)
    async with stored(folder) as (proxy, _, client):
        proxy.observers = Observers([AuditObserver(trail)])
        await client.call("scripts", "triple", {"n": 1})
    trail.close()
    *calls, script = [line for line in uses_in(tmp_path) if line["event"] == "call"]
    assert (script["group"], script["name"]) == ("scripts", "triple")
    assert [(line["name"], line["parent"]) for line in calls] == [("echo", script["id"])] * 3


async def test_a_text_that_has_changed_is_held_back_until_it_is_approved(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    pinning, lock = Pinning("hold", "here"), tmp_path / "lock.json"
    for code in ("return 1", "return 2"):
        (folder / "one.py").write_text(front("# description: one", code))
        async with stored(folder, pinning=pinning, lock_file=lock) as (_, _upstream, client):
            words = text_of(await client.call("scripts", "one", {}))
        assert words == "1" if code == "return 1" else "pins diff" in words


async def test_a_question_in_a_stored_script_reaches_a_modern_client_as_input_required(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(front("# description: one", 'return await call("up", "echo", {"n": 1})'))
    upstream = FakeUpstream()
    proxy = proxy_of(tmp_path, upstream)
    client = ModernClient(proxy)
    try:
        params = {"name": "call_dynamic_tool", "arguments": {"group": "scripts", "name": "one", "args": {}}}
        first = client.begin("tools/call", params)
        server = asyncio.create_task(ask_and_answer(upstream))
        answer = await patiently(client.answer_to, first)
        assert answer["result"]["resultType"] == "input_required"
        again = client.begin("tools/call", {**params, **retry_of(answer)})
        answer = await patiently(client.answer_to, again)
        await server
        assert answer["result"]["content"][0]["text"] == "1"
    finally:
        await proxy.close()


async def test_a_stored_script_that_waits_does_not_go_on_after_a_restart_and_leaves_nothing(tmp_path: Path) -> None:
    folder, state = tmp_path / "scripts", tmp_path / "state"
    folder.mkdir()
    (folder / "one.py").write_text(front("# description: one", 'return await call("up", "echo", {"n": 1})'))
    params: Json = {"name": "call_dynamic_tool", "arguments": {"group": "scripts", "name": "one", "args": {}}}
    retry: Json = {}
    for _ in range(2):
        upstream = FakeUpstream()
        proxy = proxy_of(folder, upstream, state_folder=state)
        client = ModernClient(proxy)
        try:
            call = client.begin("tools/call", {**params, **retry})
            if retry:
                answer = await patiently(client.answer_to, call)
                assert answer["error"]["data"]["reason"] == "restarted"
                assert upstream.heard("tools/call") == []
            else:
                server = asyncio.create_task(ask_and_answer(upstream))
                retry = retry_of(await patiently(client.answer_to, call))
                server.cancel()
            assert not state.exists() or not [*state.rglob("*.script")]
        finally:
            client.session.close()
            await proxy.close()


async def test_a_stored_script_that_is_cancelled_cancels_its_calls(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(front("# description: one", 'return await call("up", "echo", {})'))
    async with stored(tmp_path) as (_, upstream, client):
        del upstream.answers["tools/call"]
        params = {"name": "call_dynamic_tool", "arguments": {"group": "scripts", "name": "one"}}
        client.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": params})
        await patiently(upstream.hears, "tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
        await patiently(upstream.hears, "notifications/cancelled")


# --- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with front matter"),
        ("return 1", "does not begin with front matter"),
        ('"""doc"""\n# ---\n# description: x\n# ---\n', "does not begin with front matter"),
        ("# ---\n# description: x\nreturn 1\n# ---\n", "does not begin with front matter"),
        (front("# description: [x"), "is not YAML"),
        (front("# - description"), "is not a mapping"),
        (front("# input: {}"), "no `description`"),
        (front("# description: ' '"), "no `description`"),
        (front("# description: 3"), "no `description`"),
        (front("# description: x\n# inputs: {}"), "unknown key `inputs`"),
        (front("# description: x\n# input: 3"), "no JSON schema"),
        (front("# description: x\n# input: {type: array}"), "not the schema of an object"),
        (front("# description: x\n# input: {properties: {a: {type: strng}}}"), "is no JSON schema"),
        (front("# description: &a x\n# input: {default: *a}"), "alias"),
        (front("# description: x\n# input: {default: " + "[" * 100 + "]" * 100 + "}"), "nested too deeply"),
        (front("# description: x\n# input: {default: !!python/object/apply:os.system [ls]}"), "not YAML"),
        ("\udcff", "not UTF-8"),
        ("#" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_a_file_that_is_no_script_says_why(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadScript, match=why.replace("(", "\\(")):
        read_script(file)
    assert why in read_folder(tmp_path).complaints[0]


@pytest.mark.parametrize(
    "text", [TRIPLE, f"#!/usr/bin/env python3\n{TRIPLE}", TRIPLE.replace("\n", "\r\n"), f"\ufeff{TRIPLE}"]
)
def test_front_matter_of_any_editor_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(text.encode())
    tool = json.loads(bytes(read_script(file).definition))
    assert tool["description"] == "Echo a number three times"
    assert tool["inputSchema"]["required"] == ["n"]


def test_a_script_without_input_takes_none(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(front("# description: x"))
    schema = wire.value(wire.member(read_script(file).definition, "inputSchema"))
    assert isinstance(schema, dict)
    assert schema["additionalProperties"] is False


def test_the_text_of_a_script_is_part_of_its_definition(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    definitions = set()
    for code in ("return 1", "return 2"):
        file.write_text(front("# description: x", code))
        definitions.add(bytes(read_script(file).definition))
    assert len(definitions) == 2


def test_files_of_other_names_are_no_scripts(tmp_path: Path) -> None:
    for name in ("_x.py", ".x.py", "x.txt", "x.pyc", "a b.py", "ä.py"):
        (tmp_path / name).write_text(front("# description: x"))
    (tmp_path / "dir.py").mkdir()
    stored_scripts = read_folder(tmp_path)
    assert not stored_scripts.scripts
    assert len(stored_scripts.complaints) == 3  # for those that look like scripts


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_out_of_the_folder_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (tmp_path / "secret").write_text(front("# description: x"))
    (folder / "x.py").symlink_to(tmp_path / "secret")
    assert "link out of the folder" in read_folder(folder).complaints[0]


@pytest.mark.skipif(os.name == "nt", reason="there are no named pipes of this kind")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.py")
    assert "no regular file" in read_folder(tmp_path).complaints[0]


# --- the config ----------------------------------------------------------------------------------------


def config_file(tmp_path: Path, **servers: Json) -> Path:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, "settings": {"scripts": {"folder": "scripts"}}}))
    return file


def test_the_folder_is_relative_to_the_config_and_is_a_group(tmp_path: Path) -> None:
    config = read(config_file(tmp_path), {})
    (group,) = config.groups
    assert group.name == "scripts"
    assert group.upstream == FeatureServer("scripts", str(tmp_path / "scripts"))
    assert config.presentations["scripts"].pinning.policy == "warn"
    assert config.presentations["scripts"].answers.validate == "strict"


def test_a_server_cannot_have_the_name_of_the_group(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mcpServers\.scripts"):
        read(config_file(tmp_path, scripts={"command": "x"}), {})


def test_check_names_what_is_broken(tmp_path: Path) -> None:
    config = read(config_file(tmp_path), {})
    (missing,) = check(config, dict)
    assert "cannot be read" in str(missing)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "bad.py").write_text("x")
    assert ["bad.py" in str(each) for each in check(config, dict)] == [False, True]
