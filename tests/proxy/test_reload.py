"""Another config is applied by difference: what did not change goes on, what did begins anew, nobody loses a call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.resolved import CommandLine, Features, Program, ToolFilter
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.packs.model import Command
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    BOUND_S,
    Client,
    FakeUpstream,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    settled,
    text_of,
)

ANSWER = {"content": [{"type": "text", "text": "done"}]}
OTHER = Program(command="other", args=("--new",), env={"SECRET": "hunter2"}, cwd=None)


class Scene:
    """A proxy in front of groups, with one client."""

    def __init__(self, opener: Opener, *configs: PresentedGroup) -> None:
        self.proxy = Proxy(config_of(*configs), opener=opener)
        self.client = Client(self.proxy)

    def reload(self, *configs: PresentedGroup) -> None:
        self.proxy.apply(config_of(*configs))

    async def is_ready(self, *names: str) -> None:
        """Wait until these groups are connected."""
        async with asyncio.timeout(BOUND_S):
            for name in names:
                while self.proxy.groups[name].state is not State.READY:  # noqa: ASYNC110 - the observer is the proxy
                    await asyncio.sleep(0)
        await settled()


@contextlib.asynccontextmanager
async def scene(opener: Opener, *configs: PresentedGroup) -> AsyncIterator[Scene]:
    made = Scene(opener, *configs)
    try:
        await made.client.initialize()
        await made.is_ready(*(each.name for each in configs))
        yield made
    finally:
        await made.proxy.close()


async def test_an_unchanged_group_keeps_its_link_its_catalog_and_its_calls() -> None:
    up = FakeUpstream()
    opener = Opener(up=[up], new=[FakeUpstream()])
    async with scene(opener, group_config("up")) as it:
        group, catalog = it.proxy.groups["up"], it.proxy.groups["up"].catalog
        call = asyncio.create_task(it.client.call("up", "echo"))
        asked = await up.hears("tools/call")

        it.reload(group_config("new"), group_config("up"))
        await it.is_ready("new")

        up.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        assert text_of(await call) == "done"
        assert it.proxy.groups["up"] is group
        assert group.catalog is catalog
        assert [each.name for each in it.proxy.groups] == ["new", "up"]
        assert opener.opened == ["up", "new"]


async def test_a_changed_group_finishes_its_calls_while_new_ones_go_to_its_successor() -> None:
    old, new = FakeUpstream(), FakeUpstream({"tools/call": ANSWER})
    opener = Opener(up=[old, new])
    async with scene(opener, group_config("up")) as it:
        call = asyncio.create_task(it.client.call("up", "echo"))
        asked = await old.hears("tools/call")

        it.reload(group_config("up", upstream=OTHER))
        assert text_of(await it.client.call("up", "echo")) == "done"
        assert len(old.heard("tools/call")) == 1
        assert (old.closed, new.closed) == (False, False)

        old.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "late"}]}})
        assert text_of(await call) == "late"
        await settled()
        assert (old.closed, new.closed) == (True, False)


async def test_a_call_that_waits_for_a_changed_group_to_connect_goes_to_its_successor() -> None:
    hanging, new = FakeUpstream(), FakeUpstream({"tools/call": ANSWER})
    del hanging.answers["initialize"]
    opener = Opener(up=[hanging, new])
    it = Scene(opener, group_config("up"))
    await it.client.initialize()
    call = asyncio.create_task(it.client.call("up", "echo"))
    await hanging.hears("initialize")
    old = it.proxy.groups["up"]

    it.reload(group_config("up", upstream=OTHER))

    assert text_of(await call) == "done"
    assert old.state is State.CLOSED
    await it.proxy.close()


async def test_a_removed_group_is_gone_at_once_and_ends_after_its_calls() -> None:
    up = FakeUpstream()
    async with scene(Opener(up=[up], stays=[FakeUpstream()]), group_config("up"), group_config("stays")) as it:
        call = asyncio.create_task(it.client.call("up", "echo"))
        asked = await up.hears("tools/call")

        it.reload(group_config("stays"))

        assert "no group is named `up`" in text_of(await it.client.call("up", "echo"))
        await it.client.hears("notifications/tools/list_changed")
        assert up.closed is False
        up.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        assert text_of(await call) == "done"
        await settled()
        assert up.closed


async def test_another_description_is_heard_of_and_restarts_nothing() -> None:
    opener = Opener(up=[FakeUpstream()])
    async with scene(opener, group_config("up")) as it:
        it.reload(group_config("up", description="Weather and tides"))

        await it.client.hears("notifications/tools/list_changed")
        assert "Weather and tides" in json.dumps(await it.client.request("tools/list"))
        assert it.client.heard("notifications/prompts/list_changed") == []
        assert opener.opened == ["up"]


async def test_a_narrower_filter_counts_at_once_for_lists_and_calls() -> None:
    up = FakeUpstream({"tools/call": ANSWER}, tools=("read", "write"))
    opener = Opener(up=[up])
    async with scene(opener, group_config("up")) as it:
        it.reload(group_config("up", tools=ToolFilter(include=("*",), exclude=("write",))))

        listed = await it.client.request("tools/call", _get("up"))
        assert '"write"' not in text_of(listed["result"])
        assert "no tool" in text_of(await it.client.call("up", "write"))
        assert text_of(await it.client.call("up", "read")) == "done"
        assert opener.opened == ["up"]


async def test_a_wider_filter_shows_the_tools_that_it_lets_through() -> None:
    up = FakeUpstream({"tools/call": ANSWER}, tools=("read", "write"))
    opener = Opener(up=[up])
    narrow = ToolFilter(include=("read",), exclude=())
    async with scene(opener, group_config("up", tools=narrow)) as it:
        it.reload(group_config("up"))

        assert '"write"' in text_of((await it.client.request("tools/call", _get("up")))["result"])
        assert text_of(await it.client.call("up", "write")) == "done"
        assert opener.opened == ["up"]


async def test_a_feature_that_is_switched_off_and_on_is_heard_of_each_time() -> None:
    hello = FakeUpstream().answers["initialize"] | {"capabilities": {"tools": {}, "prompts": {}}}
    prompts = {"prompts": [{"name": "greet"}]}
    opener = Opener(up=[FakeUpstream({"initialize": hello, "prompts/list": prompts})])
    async with scene(opener, group_config("up")) as it:
        assert "greet" in json.dumps(await it.client.request("prompts/list"))
        await it.client.hears("notifications/prompts/list_changed")

        it.reload(group_config("up", features=Features(tools=True, resources=True, prompts=False)))
        await it.client.hears("notifications/prompts/list_changed", 2)
        assert "greet" not in json.dumps(await it.client.request("prompts/list"))

        it.reload(group_config("up"))
        await it.client.hears("notifications/prompts/list_changed", 3)
        assert "greet" in json.dumps(await it.client.request("prompts/list"))
        assert opener.opened == ["up"]


async def test_the_same_config_again_changes_nothing() -> None:
    opener = Opener(up=[FakeUpstream()])
    async with scene(opener, group_config("up")) as it:
        group = it.proxy.groups["up"]
        it.reload(group_config("up"))
        assert it.proxy.groups["up"] is group
        assert opener.opened == ["up"]


async def test_a_new_command_is_logged_as_it_will_run_without_its_environment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.reload(group_config("up", upstream=OTHER))
    assert '["other", "--new"]' in caplog.text
    assert "hunter2" not in caplog.text


async def test_secrets_among_the_arguments_of_a_new_command_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    command = Program(command="other", args=("--api-key", "s3cret-value"), env={}, cwd=None)
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.reload(group_config("up", upstream=command))
    assert '["other", "--api-key", "***"]' in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("token", ["ghp_" + "a1B2" * 9, "sk-abcdefghijklmnop1234"])
async def test_a_token_among_the_arguments_of_a_new_command_is_masked_without_any_name(
    caplog: pytest.LogCaptureFixture, token: str
) -> None:
    caplog.set_level(logging.INFO)
    command = Program(command="other", args=("serve", token, "/srv/data"), env={}, cwd=None)
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.reload(group_config("up", upstream=command))
    assert '["other", "serve", "***", "/srv/data"]' in caplog.text
    assert token not in caplog.text


async def test_a_reload_names_the_commands_that_calls_can_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    commands = tuple(Command(name=name, description="x") for name in ("log", "show"))
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.reload(group_config("up", upstream=CommandLine("git", "git", "Git.", commands, {})))
    assert 'calls start "git" for log, show' in caplog.text


async def test_a_token_in_place_of_a_new_command_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    command = Program(command="ghp_" + "a1B2" * 9, args=(), env={}, cwd=None)
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.reload(group_config("up", upstream=command))
    assert 'it starts ["***"]' in caplog.text
    assert "ghp_" not in caplog.text


async def test_a_call_that_does_not_end_delays_the_end_of_a_removed_group_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dynamic_mcp.groups.groups.DRAIN_S", 0.01)
    up = FakeUpstream()
    async with scene(Opener(up=[up], stays=[FakeUpstream()]), group_config("up"), group_config("stays")) as it:
        call = asyncio.create_task(it.client.call("up", "echo"))
        await up.hears("tools/call")
        it.reload(group_config("stays"))
        async with asyncio.timeout(BOUND_S / 2):
            assert "may have run" in text_of(await call)
        assert up.closed


async def test_closing_ends_what_is_still_draining() -> None:
    old, new = FakeUpstream(), FakeUpstream()
    async with scene(Opener(up=[old, new]), group_config("up")) as it:
        call = asyncio.create_task(it.client.call("up", "echo"))
        await old.hears("tools/call")
        it.reload(group_config("up", upstream=OTHER))
        await it.is_ready("up")
        async with asyncio.timeout(BOUND_S / 2):
            await it.proxy.close()
        assert old.closed
        assert new.closed
        assert (await call)["isError"]


async def test_a_complaint_of_the_proxy_reaches_the_client_as_a_log_message() -> None:
    async with scene(Opener(up=[FakeUpstream()]), group_config("up")) as it:
        it.proxy.complain("the config is wrong")
        told = await it.client.hears("notifications/message")
        assert told["params"] == {"level": "error", "logger": "dynamic-mcp", "data": "the config is wrong"}


def _get(group: str) -> dict[str, object]:
    return {"name": "get_dynamic_tools", "arguments": {"group": group}}
