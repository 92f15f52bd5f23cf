"""A command uses what runs for other clients, unless it belongs to one session, and starts nothing by its hello."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import FakeCaller
from tests.fakes import settled
from tests.groups.shared import LOG, SAMPLING, answer, clients, scene, serving, silent


def command(subject: str = "user") -> FakeCaller:
    """Return a command, which calls itself something else than every other client."""
    [client] = clients("dynamic-mcp", subject=subject)
    client.is_command = True
    return client


@pytest.mark.parametrize("share", [Share.AUTO, Share.USER, Share.ALL])
async def test_a_command_uses_the_instance_that_runs_for_another_client(share: Share) -> None:
    async with scene(serving(), share=share) as on:
        [ide], cli = clients("ide"), command()
        await on.call(ide)
        await on.call(cli)

        assert on.opener.opened == ["up"]
        assert on.group.instance_for(cli) is on.group.instance_for(ide)


async def test_a_command_uses_a_running_instance_whose_client_has_gone() -> None:
    async with scene(serving()) as on:
        [ide], cli = clients("ide"), command()
        await on.call(ide)
        on.group.release(ide)
        await on.call(cli)

        assert on.opener.opened == ["up"]


async def test_a_command_waits_for_the_instance_that_is_connecting_for_another_client() -> None:
    async with scene(serving()) as on:
        [ide], cli = clients("ide"), command()
        connecting = on.group.instance_for(ide)
        connecting.start(wanted=True)
        await on.watcher.until(lambda: connecting.state is State.CONNECTING)
        await on.call(cli)

        assert on.opener.opened == ["up"]


async def test_a_command_has_its_own_instance_where_each_session_has() -> None:
    async with scene(serving(), serving(), share=Share.SESSION) as on:
        [ide], cli = clients("ide"), command()
        await on.call(ide)
        await on.call(cli)

        assert on.opener.opened == ["up", "up"]
        on.group.release(cli)
        assert list(on.group.instances) == [ide]


async def test_a_command_has_its_own_instance_of_a_server_that_asks_its_client() -> None:
    upstream = serving()
    async with scene(upstream, serving()) as on:
        [ide], cli = clients("ide"), command()
        await on.call(ide)
        upstream.say(SAMPLING)
        await settled()
        await on.call(cli)

        assert on.opener.opened == ["up", "up"]


async def test_a_command_of_another_principal_has_its_own_instance() -> None:
    async with scene(serving(), serving()) as on:
        [ide], cli = clients("ide"), command("other")
        await on.call(ide)
        await on.call(cli)

        assert on.opener.opened == ["up", "up"]


async def test_a_client_does_not_join_the_instance_of_a_command() -> None:
    upstream = serving()
    async with scene(serving(), upstream) as on:
        [ide], cli = clients("ide"), command()
        await on.call(cli)
        await on.call(ide)

        assert upstream.heard("initialize")[0]["params"]["clientInfo"]["name"] == "ide"


async def test_one_command_after_the_other_uses_the_same_instance() -> None:
    async with scene(serving()) as on:
        for cli in (command(), command()):
            await on.call(cli)
            on.group.release(cli)

        assert on.opener.opened == ["up"]


@pytest.mark.parametrize("eager", [False, True])
async def test_a_command_that_says_hello_starts_nothing(eager: bool) -> None:
    async with scene(serving(), eager=eager) as on:
        on.group.start(command())
        await settled()

        assert on.opener.opened == []
        assert on.group.state is State.COLD


async def test_a_server_that_asks_in_a_commands_call_stays_with_the_client_that_it_ran_for() -> None:
    upstream = silent()
    async with scene(upstream, serving()) as on:
        [ide], cli = clients("ide"), command()
        ide_calls = on.call(ide)
        await upstream.hears("tools/call")
        answer(upstream)
        await ide_calls
        first = on.group.instance_for(ide)
        call = on.call(cli)
        await upstream.hears("tools/call", times=2)

        upstream.say(SAMPLING)
        await settled()

        assert on.group.instance_for(ide) is first
        assert on.group.instance_for(cli) is not first
        answer(upstream)
        await call


async def test_a_log_message_in_a_commands_call_is_for_the_command_alone() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        [ide], cli = clients("ide"), command()
        first = on.call(ide)
        await upstream.hears("tools/call")
        answer(upstream)
        await first
        call = on.call(cli)
        await upstream.hears("tools/call", times=2)

        upstream.say(LOG)
        await settled()

        concerned: Sequence[object] = on.watcher.concerned[-1]
        assert concerned == [cli]
        answer(upstream)
        await call
