"""A reload for windows that share a proxy: what each would start decides whether it keeps, shares or changes it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from dynamic_mcp.groups.lifecycle import State
from tests.fakes import BOUND_S, Json, settled, text_of
from tests.proxy.windows import TOKEN, echo, windows

BARE: Json = {"command": "x"}
# What a window whose token is `same` starts for this is what it starts for TOKEN.
SAME: Json = {"command": "x", "env": {"TOKEN": "same"}}
UPDATED = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///x"}}


async def test_each_window_keeps_the_server_that_it_would_start_again(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        before = [on.group(each) for each in (ann, bob)]
        for client in (ann, bob):
            await echo(client)

        await on.reload({**TOKEN, "description": "Other words"}, BARE)

        assert [on.group(each) for each in (ann, bob)] == before
        assert [await echo(each) for each in (ann, bob)] == ["token a", "token b"]
        assert on.starter.tokens.count("a") == on.starter.tokens.count("b") == 1
        assert "Other words" in json.dumps(await bob.request("tools/list"))
        assert on.group(ann, "s1") is not before[0]


async def test_a_server_that_is_removed_ends_for_all_windows(tmp_path: Path) -> None:
    async with windows(tmp_path, BARE, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        gone = [on.group(each, "s1") for each in (ann, bob)]
        for client in (ann, bob):
            await echo(client, "s1")

        await on.reload(BARE)

        assert [each.state for each in gone] == [State.CLOSED] * 2
        assert "no group is named `s1`" in await echo(ann, "s1")


async def test_windows_that_shared_a_server_may_get_one_each(tmp_path: Path) -> None:
    async with windows(tmp_path, BARE) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        assert on.group(ann) is on.group(bob)
        shared = on.group(ann)
        for client in (ann, bob):
            await echo(client)

        await on.reload(TOKEN)

        assert [await echo(each) for each in (ann, bob)] == ["token a", "token b"]
        assert shared.state is State.CLOSED


async def test_a_window_may_leave_a_shared_server_and_the_others_keep_it(tmp_path: Path) -> None:
    async with windows(tmp_path, SAME) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        for client in (ann, bob):
            await echo(client)
        [server] = on.starter.servers
        shared = on.group(ann)
        del server.answers["tools/call"]
        calls = [asyncio.create_task(each.call("s0", "echo")) for each in (ann, bob)]
        await server.hears("tools/call", times=4)

        await on.reload(TOKEN)

        assert (on.group(ann), shared.state) == (shared, State.READY)
        assert await echo(bob) == "token b"
        for asked in server.heard("tools/call")[2:]:
            late = {"content": [{"type": "text", "text": "late"}]}
            server.say({"jsonrpc": "2.0", "id": asked["id"], "result": late})
        assert [text_of(await call) for call in calls] == ["late", "late"]
        assert on.starter.tokens == ["same", "b"]
        assert not server.closed


async def test_a_window_that_left_a_shared_server_may_come_back_to_it(tmp_path: Path) -> None:
    async with windows(tmp_path, SAME) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        said = [await echo(bob)]
        for servers in (TOKEN, SAME, TOKEN):
            await on.reload(servers)
            said.append(await echo(bob))

        assert said == ["token same", "token b", "token same", "token b"]
        assert on.group(ann).state is State.READY
        assert on.starter.tokens == ["same", "b", "b"]


async def test_a_server_that_only_one_window_used_ends_when_that_window_leaves_its_group(tmp_path: Path) -> None:
    alone = {**SAME, "share": "session"}
    async with windows(tmp_path, alone) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        for client in (ann, bob):
            await echo(client)

        await on.reload({**TOKEN, "share": "session"})

        assert on.group(ann) is not on.group(bob)
        assert sorted(server.closed for server in on.starter.servers[:2]) == [False, True]
        assert [await echo(each) for each in (ann, bob)] == ["token same", "token b"]


@pytest.mark.parametrize("share", ["auto", "session"])
async def test_a_call_that_was_not_sent_goes_to_its_own_windows_server(tmp_path: Path, share: str) -> None:
    async with windows(tmp_path, {**SAME, "share": share}) as on:
        on.starter.mute = {"same"}
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        calls = [asyncio.create_task(each.call("s0", "echo")) for each in (ann, bob)]
        await settled()

        await on.reload({**TOKEN, "share": share})
        for server in on.starter.servers:
            for asked in server.heard("initialize") if server.token == "same" else ():
                hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                server.say({"jsonrpc": "2.0", "id": asked["id"], "result": hello})

        async with asyncio.timeout(BOUND_S):
            assert [text_of(await call) for call in calls] == ["token same", "token b"]


async def test_a_call_that_waited_for_a_place_goes_to_its_own_windows_server(tmp_path: Path) -> None:
    async with windows(tmp_path, {**SAME, "concurrency": 1}) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        await echo(ann)
        [server] = on.starter.servers
        answer = server.answers.pop("tools/call")
        calls = [asyncio.create_task(each.call("s0", "echo")) for each in (ann, bob)]
        asked = await server.hears("tools/call", times=2)
        await settled()

        await on.reload({**TOKEN, "concurrency": 1})
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": answer})

        assert [text_of(await call) for call in calls] == ["token same", "token b"]
        assert len(server.heard("tools/call")) == 2


async def test_a_subscription_follows_its_window_to_the_server_that_it_has_now(tmp_path: Path) -> None:
    async with windows(tmp_path, SAME) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        for client, uris in ((ann, "x"), (bob, "xy")):
            for name in uris:
                assert "result" in await client.request("resources/subscribe", {"uri": f"file:///{name}"})

        await on.reload(TOKEN)
        [shared, own] = on.starter.servers
        assert _uris(own.heard("resources/subscribe")) == ["file:///x", "file:///y"]
        assert _uris(shared.heard("resources/unsubscribe")) == ["file:///y"]
        shared.say(UPDATED)
        own.say(UPDATED)
        await settled()

        assert [len(each.heard("notifications/resources/updated")) for each in (ann, bob)] == [1, 1]
        await on.reload(SAME)
        assert _uris(shared.heard("resources/subscribe")[2:]) == ["file:///x", "file:///y"]
        shared.say(UPDATED)
        await settled()
        assert [len(each.heard("notifications/resources/updated")) for each in (ann, bob)] == [2, 2]


async def test_windows_join_a_server_that_another_one_keeps(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="same"), await on.join(TOKEN="b")
        kept, left = on.group(ann), on.group(bob)
        for client in (ann, bob):
            await echo(client)

        await on.reload(SAME)

        assert on.group(ann) is on.group(bob) is kept
        assert left.state is State.CLOSED
        assert [await echo(each) for each in (ann, bob)] == ["token same"] * 2
        assert on.starter.tokens == ["same", "b"]


@pytest.mark.parametrize(("args", "started"), [([], 1), (["new"], 2)])
async def test_a_server_for_everybody_is_started_anew_once_if_the_config_changes_it(
    tmp_path: Path, args: list[str], started: int
) -> None:
    everybody = {**TOKEN, "share": "all"}
    async with windows(tmp_path, everybody) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        for client in (ann, bob):
            await echo(client)

        await on.reload({**everybody, "args": args, "description": "Other words"})

        assert [await echo(each) for each in (ann, bob)] == ["token a"] * 2
        assert on.starter.tokens == ["a"] * started


async def test_a_server_for_everybody_outlives_the_window_that_started_it(tmp_path: Path) -> None:
    everybody = {**TOKEN, "share": "all"}
    async with windows(tmp_path, everybody) as on:
        ann, bob, cid = [await on.join(TOKEN=each) for each in "abc"]
        await echo(ann)
        await on.leave(ann)
        await on.leave(cid)

        await on.reload({**everybody, "description": "Other words"})

        assert await echo(bob) == "token a"
        assert on.starter.tokens == ["a"]


async def test_a_changed_server_is_logged_once_however_many_windows_have_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with windows(tmp_path, BARE) as on:
        for token in "abc":
            await on.join(TOKEN=token)

        await on.reload({"command": "x", "args": ["new"]})

    assert caplog.text.count('group s0 changed in the config; it starts ["x", "new"]') == 1


async def test_windows_that_had_a_server_each_may_share_one(tmp_path: Path) -> None:
    async with windows(tmp_path, TOKEN) as on:
        ann, bob = await on.join(TOKEN="a"), await on.join(TOKEN="b")
        old = [on.group(each) for each in (ann, bob)]
        for client in (ann, bob):
            await echo(client)

        await on.reload(BARE)

        assert on.group(ann) is on.group(bob)
        assert [await echo(each) for each in (ann, bob)] == ["token none"] * 2
        assert [each.state for each in old] == [State.CLOSED] * 2
        assert on.starter.tokens == ["a", "b", "none"]


def _uris(messages: list[dict[str, Json]]) -> list[str]:
    return [message["params"]["uri"] for message in messages]
