"""The groups of a config: found by name, in the order of the file, started and ended together."""

from __future__ import annotations

import asyncio

from msgspec import Raw

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import FakeCaller, Watcher
from tests.fakes import BOUND_S, FakeUpstream, Opener, config_of, group_config


def _groups(*names: str, opener: Opener | None = None, watcher: Watcher | None = None) -> Groups:
    config = config_of(*(group_config(name) for name in names))
    return Groups(config, watcher or Watcher(), opener=opener or Opener())


def test_groups_come_in_the_order_of_the_config() -> None:
    groups = _groups("zoo", "api", "git")

    assert [group.name for group in groups] == ["zoo", "api", "git"]


def test_a_group_is_found_by_its_name() -> None:
    assert _groups("zoo", "api")["api"].name == "api"


async def test_all_groups_start_at_once_and_none_is_waited_for() -> None:
    watcher = Watcher()
    groups = _groups("slow", "quick", opener=Opener(slow=[_silent()], quick=[FakeUpstream()]), watcher=watcher)

    groups.start(FakeCaller())
    await watcher.until(lambda: groups["quick"].state is State.READY)

    assert groups["slow"].state is State.CONNECTING
    await groups.close()


async def test_closing_ends_every_group_whatever_it_does() -> None:
    watcher = Watcher()
    ready = FakeUpstream()
    groups = _groups("slow", "ready", opener=Opener(slow=[_silent()], ready=[ready]), watcher=watcher)
    groups.start(FakeCaller())
    await watcher.until(lambda: groups["ready"].state is State.READY)

    async with asyncio.timeout(BOUND_S):
        await groups.close()

    assert [group.state for group in groups] == [State.CLOSED, State.CLOSED]
    assert ready.closed


def _silent() -> FakeUpstream:
    """Return an upstream that does not even answer `initialize`."""
    upstream = FakeUpstream()
    del upstream.answers["initialize"]
    return upstream


async def test_a_client_of_another_workspace_is_served_from_its_own_group_whichever_it_asks() -> None:
    ann, bob = FakeCaller(), FakeCaller()
    ann.workspace, bob.workspace = Workspace("/ann", {}), Workspace("/bob", {})
    both = config_of(group_config("up"))
    upstreams = [FakeUpstream({"tools/call": {"by": name}}) for name in ("ann", "bob")]
    groups = Groups(both, Watcher(), opener=Opener(up=upstreams))
    for client in (ann, bob):
        groups.add(client.workspace, both)
    old = groups.of(bob.workspace)["up"]
    other = config_of(group_config("up", upstream=Program(command="other", args=(), env={}, cwd=None)))

    groups.apply({None: both, ann.workspace: both, bob.workspace: other})
    assert groups.of(ann.workspace)["up"] is old
    params = {"name": Raw(b'"echo"')}
    answers = [await old.request("tools/call", params, timeout_s=5, caller=client) for client in (ann, bob)]

    assert [bytes(answer.result) for answer in answers] == [b'{"by": "ann"}', b'{"by": "bob"}']
    assert len(old.instances) == 1
    await groups.close()
