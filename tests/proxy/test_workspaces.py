"""Windows that share a proxy: who shares a server, and that nothing of one window reaches another."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path, PurePath

import pytest

from dynamic_mcp.config.read import read_all
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from tests.fakes import BOUND_S, Client, Json, settled, until_read
from tests.proxy.windows import TOKEN, echo, shown, windows

# --- who shares what ---------------------------------------------------------------------------------------


async def test_windows_with_other_tokens_have_servers_catalogs_and_views_of_their_own(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN, store=CatalogStore(tmp_path / "cache")) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")

        assert [await echo(ann), await echo(bob)] == ["token a", "token b"]
        assert ["tool_of_a" in await shown(each) for each in (ann, bob)] == [True, False]
        assert ["tool_of_b" in await shown(each) for each in (ann, bob)] == [False, True]
        assert on.starter.tokens == ["a", "b"]
        assert on.group(ann) is not on.group(bob)
        assert len(list(on.proxy.groups)) == 2


async def test_a_catalog_on_disk_is_not_that_of_a_window_with_another_inherited_token(tmp_path: Path) -> None:
    inheriting = {"command": "x", "cwd": "/set", "inherit_env": ["TOKEN"]}
    store = CatalogStore(tmp_path / "cache")
    async with windows(tmp_path, inheriting, store=store) as on:
        ann = await on.join(TOKEN="a")
        assert "tool_of_a" in await shown(ann)
        await on.leave(ann)

    async with windows(tmp_path, inheriting, store=store) as on:
        on.starter.mute = {"a", "b"}
        groups = [on.group(await on.join(TOKEN=token, TERM=token)) for token in "ab"]

        assert [group.catalog is not None for group in groups] == [True, False]


async def test_windows_that_would_start_the_same_share_it_whatever_else_differs(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann = await on.join(TOKEN="a", TERM="xterm", WINDOWID="1", EDITOR="vi")
        bob = await on.join(TOKEN="a", TERM="screen", WINDOWID="2")

        assert [await echo(ann), await echo(bob)] == ["token a", "token a"]
        assert on.starter.tokens == ["a"]
        assert list(on.proxy.groups) == [on.group(ann)] == [on.group(bob)]


@pytest.mark.parametrize(
    ("members", "started"),
    [
        ({}, ["/one", "/two"]),
        ({"cwd": "/set"}, ["/set"]),
        ({"share": "user"}, ["/one"]),
        ({"share": "all"}, ["/one"]),
    ],
)
async def test_windows_of_other_directories_share_what_starts_in_a_configured_one_or_is_everybodys(
    tmp_path: Path, members: Json, started: list[str]
) -> None:
    async with windows(tmp_path, {"command": "x", **members}) as on:
        for directory in ("/one", "/two"):
            await echo(await on.join(directory))

        directories = [PurePath(server.program.cwd or "") for server in on.starter.servers]
        assert [each.as_posix().removeprefix("C:") for each in directories] == started


@pytest.mark.parametrize("share", ["user", "all"])
async def test_a_server_for_everybody_is_started_as_the_first_window_starts_it(tmp_path: Path, share: str) -> None:
    async with windows(tmp_path, {**TOKEN, "share": share}) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")

        assert [await echo(ann), await echo(bob)] == ["token a", "token a"]
        assert on.starter.tokens == ["a"]


async def test_a_window_that_cannot_start_a_server_for_everybody_spoils_it_for_nobody(tmp_path: Path) -> None:
    async with windows(tmp_path, {"command": "${TOOL}", "share": "all"}) as on:
        first = await on.join()
        assert "`${TOOL}` is not set" in await echo(first)

        able, later = await on.join(TOOL="x"), await on.join("/later")

        assert [await echo(able), await echo(later)] == ["token none"] * 2
        for word in ("new", "newer"):
            await on.reload({"command": "${TOOL}", "share": "all", "args": [word]})
            assert [await echo(each) for each in (first, able, later)] == ["token none"] * 3
        assert [server.program.args for server in on.starter.servers] == [(), ("new",), ("newer",)]


async def test_a_missing_variable_is_the_trouble_of_its_own_window(tmp_path: Path) -> None:
    async with windows(tmp_path, {"command": "${TOOL}"}) as on:
        able, unable = await on.join(TOOL="x"), await on.join()

        assert await echo(able) == "token none"
        assert "`${TOOL}` is not set" in await echo(unable)
        assert "not set" not in await shown(able)
        assert [on.group(each).state for each in (able, unable)] == [State.READY, State.FAILED]


async def test_a_list_that_changes_for_one_window_is_announced_to_no_other(tmp_path: Path) -> None:
    direct = {**TOKEN, "direct": True}
    async with windows(tmp_path, direct) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        for client in (ann, bob):
            await client.request("tools/list")
            await client.hears("notifications/tools/list_changed")
        counts = [len(each.heard("notifications/tools/list_changed")) for each in (ann, bob)]

        server = on.starter.servers[0]
        server.answers["tools/list"] = {"tools": [{"name": "new", "inputSchema": {"type": "object"}}]}
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await ann.hears("notifications/tools/list_changed", counts[0] + 1)

        assert len(bob.heard("notifications/tools/list_changed")) == counts[1]


async def test_a_failure_for_one_window_is_told_to_no_other(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        await echo(ann)
        await echo(bob)

        on.starter.servers[0].die("the server said: token a is wrong")
        await settled()

        assert "is wrong" in on.group(ann).reason
        assert "is wrong" in await shown(ann)
        assert "wrong" not in await shown(bob)


async def test_an_update_of_a_resource_reaches_only_the_window_whose_server_sent_it(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        for client in (ann, bob):
            assert "result" in await client.request("resources/subscribe", {"uri": "file:///x"})

        params = {"uri": "file:///x"}
        on.starter.servers[0].say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
        await ann.hears("notifications/resources/updated")
        await on.leave(ann)

        assert bob.heard("notifications/resources/updated") == []
        assert [len(each.heard("resources/unsubscribe")) for each in on.starter.servers] == [1, 0]
        assert on.starter.tokens == ["a", "b"]


async def test_an_update_of_a_part_reaches_a_window_although_another_one_subscribed_to_the_part(
    tmp_path: Path,
) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        await ann.request("resources/subscribe", {"uri": "file:///x"})
        await bob.request("resources/subscribe", {"uri": "file:///y"})

        params = {"uri": "file:///y"}
        on.starter.servers[0].say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})

        assert (await ann.hears("notifications/resources/updated"))["params"] == params
        assert bob.heard("notifications/resources/updated") == []


async def test_what_is_logged_names_variables_and_directories_but_no_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = {"command": "x", "args": ["${ABSENT}"], "env": {"TOKEN": "${TOKEN}"}}
    async with windows(tmp_path, server) as on:
        for directory in ("/one", "/two", "/one"):
            await echo(await on.join(directory, TOKEN="hunter2"))
        await on.reload({**server, "description": "Other words"})

    for directory in ("/one", "/two"):
        assert caplog.text.count(f", for {directory}: mcpServers.s0.args[0]: `${{ABSENT}}` is not set") == 1
    assert "hunter2" not in caplog.text


# --- windows that come and go ------------------------------------------------------------------------------


async def test_windows_of_the_same_content_have_one_workspace_that_is_resolved_once(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        entering = [on.workspaces.enter("/work", {"TOKEN": "a"}) for _ in range(3)]
        found = await asyncio.gather(*entering, on.workspaces.enter("/work", {"TOKEN": "b"}))

        assert found[0] is found[1] is found[2]
        assert sorted(map(id, on.known)) == sorted(map(id, (found[0], found[3])))  # in the order of their threads


async def test_the_window_that_was_closed_last_finds_its_servers_again(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann = await on.join(TOKEN="a")
        await echo(ann)
        await on.leave(ann)

        assert await echo(await on.join(TOKEN="a")) == "token a"
        assert on.starter.tokens == ["a"]


async def test_of_the_closed_windows_only_the_last_ones_servers_stay(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN, {"command": "x", "cwd": "/set"}) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        for client in (ann, bob):
            await echo(client)
            await echo(client, "s1")
        own, shared = on.group(ann), on.group(ann, "s1")

        await on.leave(ann)
        assert own.state is State.READY
        await on.leave(bob)

        assert (own.state, shared.state) == (State.CLOSED, State.READY)
        assert [each.directory for each in on.known] == ["/work"]
        assert await echo(await on.join(TOKEN="a")) == "token a"
        assert on.starter.tokens.count("a") == 2


async def test_commands_take_the_servers_of_a_closed_window_from_nobody_but_each_other(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann = await on.join(TOKEN="a")
        await echo(ann)
        await on.leave(ann)
        for token in ("c", "d", "d"):
            command = await on.join(TOKEN=token)
            await echo(command)
            await on.leave(command, is_command=True)

        assert await echo(await on.join(TOKEN="a")) == "token a"
        assert on.starter.tokens == ["a", "c", "d"]


async def test_a_window_that_is_closed_while_another_of_its_kind_is_open_takes_nothing_away(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob, cid = await on.join(TOKEN="a"), await on.join(TOKEN="a"), await on.join(TOKEN="c")
        await echo(ann)

        await on.leave(ann)
        await on.leave(cid)

        assert await echo(bob) == "token a"
        assert on.starter.tokens.count("a") == 1


async def test_a_window_that_was_opened_again_is_not_forgotten_when_another_one_closes(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        await on.leave(ann)
        again = await on.join(TOKEN="a")

        await on.leave(bob)

        assert await echo(again) == "token a"


async def test_a_window_that_gives_up_while_it_enters_leaves_nothing_behind(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        entering = asyncio.create_task(on.workspaces.enter("/work", {"TOKEN": "a"}))
        await asyncio.sleep(0)
        entering.cancel()
        await settled()

        assert on.known == []
        assert await echo(await on.join(TOKEN="a")) == "token a"


@pytest.mark.posix_only("a file that is read only once it is written to is a descriptor's name")
async def test_a_window_that_enters_while_the_config_changes_gets_the_new_one(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    document = {"mcpServers": {"s0": TOKEN}, "settings": {"variables_file": "${GATE:-/dev/null}"}}
    async with windows(tmp_path, TOKEN) as on:
        on.file.write_text(json.dumps(document))
        on.served.apply(read_all(on.file, {}))
        entering = asyncio.create_task(on.workspaces.enter("/work", {"TOKEN": "a", "GATE": f"/dev/fd/{reader}"}))
        await until_read(reader, writer)

        document["mcpServers"]["s0"] = {**TOKEN, "args": ["new"]}
        on.file.write_text(json.dumps(document))
        on.served.apply(read_all(on.file, {}))
        os.close(writer)
        async with asyncio.timeout(BOUND_S):
            client = Client(on.proxy, await entering)
        await echo(client)

        assert [server.program.args for server in on.starter.servers] == [("new",)]
    os.close(reader)
