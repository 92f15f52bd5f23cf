"""Clients of several kinds share one instance of a server that makes no difference between them, and of no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Program, Remote, Share
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import FakeCaller
from tests.fakes import FakeUpstream, Json, frame
from tests.groups.shared import SAMPLING, Scene, answer, clients, scene, serving, silent

TIME = Program(command="uvx", args=("mcp-server-time",), env={}, cwd=None)
ROOTS = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}


def windows(*names: str, subject: str = "user") -> list[FakeCaller]:
    """Return the windows of AI tools of these names, which a daemon serves."""
    found = clients(*names, subject=subject)
    for each in found:
        each.transport = "socket"
    return found


def window(name: str, capabilities: bytes) -> FakeCaller:
    """Return a window of an AI tool that can be asked something."""
    [found] = windows(name)
    found.hello = replace(found.hello, capabilities=Raw(capabilities))
    return found


def offering(*tools: str, **members: Json) -> FakeUpstream:
    """Return a server with these tools."""
    return FakeUpstream({"tools/call": {"content": []}, **members}, tools=tools)


def hellos(on: Scene) -> list[str]:
    """Return what each server that was started was told of its client."""
    return [each.heard("initialize")[0]["params"]["clientInfo"]["name"] for each in on.opener.upstreams]


async def compared(on: Scene, kinds: int) -> None:
    """Wait until it is known what so many kinds of clients are offered."""
    while len(on.group.sharing.offers.digests) < kinds:  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0)


async def compare(on: Scene, *compared_clients: FakeCaller) -> None:
    """Have each of these clients use a server of its own once, and leave."""
    for client in compared_clients:
        await on.call(client)
    await compared(on, len(compared_clients))
    for client in compared_clients:
        on.group.release(client)
    await on.clock.pass_(1801)  # what cannot be shared stays warm for clients of the same kind
    assert on.group.instances == {}


# --- servers that are known ---------------------------------------------------------------------------------


async def test_a_server_that_is_known_to_make_no_difference_runs_once_for_all_ai_tools() -> None:
    async with scene(serving(), upstream=TIME) as on:
        for client in (window("ide", b'{"roots":{}}'), *windows("cli", "cli")):
            await on.call(client)

        assert hellos(on) == ["dynamic-mcp"]
        assert on.group.calls == 3


async def test_a_client_that_has_the_proxy_for_itself_is_told_of_as_itself() -> None:
    async with scene(serving(), upstream=TIME) as on:
        [ide] = clients("ide")
        await on.call(ide)

        assert hellos(on) == ["ide"]


async def test_different_users_have_a_known_server_each() -> None:
    async with scene(serving(), serving(), upstream=TIME) as on:
        for client in (*windows("ide", "cli", subject="ann"), *windows("ide", "cli", subject="bob")):
            await on.call(client)

        assert len(on.opener.opened) == 2


@pytest.mark.parametrize(("share", "started"), [(Share.SESSION, 2), (Share.USER, 1)])
async def test_the_configs_word_wins_over_what_is_known_of_a_server(share: Share, started: int) -> None:
    async with scene(serving(), serving(), upstream=TIME, share=share) as on:
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli"][:started]


async def test_a_known_server_that_asks_nevertheless_is_each_clients_own_from_then_on() -> None:
    first = silent()
    async with scene(first, serving(), upstream=TIME) as on:
        ide, cli = window("ide", b'{"roots":{}}'), window("cli", b"{}")
        call = on.call(ide)
        await first.hears("tools/call")
        joined = on.group.instance_for(cli)
        ide.answer.set_result(frame(result=b'{"roots":[]}'))
        first.say(ROOTS)
        assert (await first.hears("an answer"))["result"] == {"roots": []}
        answer(first)
        await call
        await on.call(cli)

        assert on.group.instance_for(ide) is joined
        assert hellos(on) == ["dynamic-mcp", "cli"]
        assert (len(ide.asked), len(cli.asked)) == (1, 0)


# --- servers that are compared ------------------------------------------------------------------------------


async def test_a_server_that_offers_two_ai_tools_the_same_runs_once_for_both_from_its_next_start_on() -> None:
    async with scene(*(serving() for _ in range(3))) as on:
        await compare(on, *windows("ide", "cli"))
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli", "dynamic-mcp"]


async def test_what_was_compared_is_known_after_a_restart(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path)
    async with scene(serving(), serving(), store=store) as on:
        for client in windows("ide", "cli"):
            await on.call(client)
        while not ((kept := store.load(on.group.config)) and len(kept.offers.digests) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async with scene(serving(), store=store) as again:
        for client in windows("ide", "cli"):
            again.group.start(client)
            await again.call(client)

        assert hellos(again) == ["dynamic-mcp"]


async def test_clients_that_are_offered_the_same_share_once_their_own_servers_are_idle() -> None:
    async with scene(*(serving() for _ in range(3))) as on:
        both = windows("ide", "cli")
        for client in both:
            await on.call(client)
        await compared(on, 2)
        assert len(on.group.instances) == 2
        await on.clock.pass_(1801)
        for client in both:
            await on.call(client)

        assert hellos(on) == ["ide", "cli", "dynamic-mcp"]
        assert on.watcher.moved == both


async def test_a_server_that_no_client_would_join_any_more_ends_with_its_last_one() -> None:
    async with scene(serving(), serving()) as on:
        ide, cli = windows("ide", "cli")
        await on.call(ide)
        on.group.release(ide)
        assert len(on.group.instances) == 1  # warm for the next window of the same kind
        await on.call(cli)
        await compared(on, 2)
        assert list(on.group.instances.values()) == [on.group.instance_for(cli)]

        on.group.release(cli)

        assert on.group.instances == {}


async def test_a_server_that_offers_two_ai_tools_different_things_runs_for_each() -> None:
    async with scene(offering("a"), offering("a", "b"), offering("a"), offering("a", "b")) as on:
        await compare(on, *windows("ide", "cli"))
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli"] * 2


async def test_lists_that_are_read_later_count_too() -> None:
    def server(prompt: str) -> FakeUpstream:
        hello = FakeUpstream().answers["initialize"] | {"capabilities": {"tools": {}, "prompts": {}}}
        return offering("a", initialize=hello, **{"prompts/list": {"prompts": [{"name": prompt}]}})

    async with scene(server("x"), server("y"), server("x"), server("y")) as on:
        await compare(on, *windows("ide", "cli"))
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli"] * 2


async def test_a_server_that_offers_ourselves_something_else_runs_for_each_ai_tool_again() -> None:
    upstreams = [serving(), serving(), offering("echo", "only for us"), serving(), serving()]
    async with scene(*upstreams) as on:
        await compare(on, *windows("ide", "cli"))
        both = windows("ide", "cli")
        await on.call(both[0])
        await compared(on, 3)
        assert on.watcher.moved == both[:1]
        for client in both:
            await on.call(client)

        assert hellos(on) == ["ide", "cli", "dynamic-mcp", "ide", "cli"]


async def test_a_server_that_has_become_another_one_is_compared_anew() -> None:
    def new() -> FakeUpstream:
        return offering("echo", "more")

    upstreams = [serving(), serving(), serving(), new(), new(), new(), new()]
    async with scene(*upstreams) as on:
        await compare(on, *windows("ide", "cli"))
        [ide] = windows("ide")
        await on.call(ide)
        await compared(on, 3)
        upstreams[2].die()
        await on.call(ide)
        while len(on.group.sharing.offers.digests) > 1:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        await on.call(ide)
        await compared(on, 2)
        on.group.release(ide)
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli", "dynamic-mcp", "dynamic-mcp", "ide", "dynamic-mcp", "cli"]


async def test_a_server_that_has_asked_one_ai_tool_is_shared_with_no_other() -> None:
    first = silent()
    async with scene(first, *(serving() for _ in range(3))) as on:
        ide, cli = windows("ide", "cli")
        call = on.call(ide)
        await first.hears("tools/call")
        first.say(SAMPLING)
        answer(first)
        await call
        await on.call(cli)
        for client in (ide, cli):
            on.group.release(client)
        for client in windows("ide", "cli"):
            await on.call(client)

        assert hellos(on) == ["ide", "cli"] * 2


async def test_a_shared_server_that_asks_is_each_clients_own_from_then_on() -> None:
    shared = silent()
    async with scene(serving(), serving(), shared, serving()) as on:
        await compare(on, window("ide", b'{"sampling":{}}'), window("cli", b"{}"))
        ide, cli = window("ide", b'{"sampling":{}}'), window("cli", b"{}")
        calls = [on.call(ide)]
        await shared.hears("tools/call")
        on.group.instance_for(cli)
        ide.answer.set_result(frame(result=b'{"by":"ide"}'))

        shared.say(SAMPLING)

        assert shared.heard("initialize")[0]["params"]["capabilities"] == {"sampling": {}}
        assert (await shared.hears("an answer"))["result"] == {"by": "ide"}
        answer(shared)
        await asyncio.gather(*calls)
        await on.call(cli)
        assert hellos(on) == ["ide", "cli", "dynamic-mcp", "cli"]
        assert cli.asked == []


async def test_the_one_that_keeps_a_server_which_has_asked_is_told_of_as_itself_at_the_next_start() -> None:
    shared, own = silent(), serving()
    async with scene(shared, own, upstream=TIME) as on:
        [ide] = windows("ide")
        call = on.call(ide)
        await shared.hears("tools/call")
        shared.say(SAMPLING)
        answer(shared)
        await call
        shared.die()
        await on.call(ide)

        assert hellos(on) == ["dynamic-mcp", "ide"]


async def test_a_remote_server_is_told_of_each_ai_tool() -> None:
    remote = Remote(kind="http", url="https://mcp.example.test/mcp", headers={})
    async with scene(*(serving() for _ in range(4)), upstream=remote) as on:
        for _ in range(2):
            for client in windows("ide", "cli"):
                await on.call(client)
                on.group.release(client)
            await on.clock.pass_(1801)

        assert hellos(on) == ["ide", "cli"] * 2


async def test_a_new_version_of_an_ai_tool_is_not_compared_anew() -> None:
    async with scene(*(serving() for _ in range(3))) as on:
        await compare(on, *windows("ide", "cli"))
        [ide] = windows("ide")
        ide.hello = ClientInfo(client_info=Raw(b'{"name":"ide","version":"2"}'))
        await on.call(ide)

        assert hellos(on)[2:] == ["dynamic-mcp"]


async def test_a_command_uses_the_server_that_runs_for_several_ai_tools() -> None:
    async with scene(serving(), upstream=TIME) as on:
        [ide], [command] = windows("ide"), windows("dynamic-mcp")
        command.is_command = True
        await on.call(ide)
        await on.call(command)

        assert on.group.instance_for(command) is on.group.instance_for(ide)
        assert on.group.state is State.READY
