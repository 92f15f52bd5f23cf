from __future__ import annotations

import pytest

from dynamic_mcp.config.resolved import Broken, Features, Program, ToolFilter
from dynamic_mcp.errors import Disabled, NotFound
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.proxy.view import View, make_view
from tests.fake_parties import FakeCaller, Watcher
from tests.fakes import FakeUpstream, Json, Opener, PresentedGroup, config_of, group_config, tool


def _view(*configs: PresentedGroup) -> View:
    config = config_of(*configs)
    return make_view(Groups(config, Watcher(), opener=Opener()), config)


def test_a_wrong_name_is_answered_with_the_closest_and_all_names() -> None:
    with pytest.raises(NotFound) as raised:
        _view(group_config("github"), group_config("zoo"))["gihtub"]

    assert raised.value.near == ("github",)
    assert "the groups are `github`, `zoo`" in str(raised.value)


def test_without_groups_a_name_is_answered_with_that() -> None:
    with pytest.raises(NotFound, match="no group is configured"):
        _view()["github"]


def test_a_group_that_offers_no_tools_is_refused_by_name() -> None:
    features = Features(tools=False, resources=True, prompts=True)
    with pytest.raises(Disabled):
        _view(group_config("up", features=features)).group("up", "tools")


def test_before_anything_is_known_the_description_says_where_the_tools_come_from() -> None:
    view = _view(group_config("up"), group_config("broken", upstream=Broken("why")))
    assert [group.description for group in view] == ["Tools from `fake`", "Tools from `broken`"]


@pytest.mark.parametrize(
    ("described", "server", "description"),
    [
        ("Ours", {"instructions": "Its own."}, "Ours"),
        ("two\n lines", {}, "two lines"),
        (None, {"instructions": "Finds things. And more."}, "Finds things"),
        (None, {"instructions": "Finds things.", "serverInfo": {"name": "n", "title": "The Title"}}, "The Title"),
        (None, {}, "Tools from `server.py`"),
    ],
)
async def test_a_description_comes_from_the_config_else_from_the_upstream_else_from_its_start(
    described: str | None, server: Json, description: str
) -> None:
    program = Program(command="/opt/x/server.py", args=(), env={}, cwd=None)
    config = config_of(group_config("up", description=described, upstream=program))
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, **server}
    watcher = Watcher()
    groups = Groups(config, watcher, opener=Opener(up=[FakeUpstream({"initialize": hello})]))
    groups.start(FakeCaller())
    await watcher.until(lambda: groups["up"].state is State.READY)

    assert make_view(groups, config)["up"].description == description
    await groups.close()


async def test_two_views_show_different_tools_of_one_group_and_nothing_is_read_for_it() -> None:
    upstream = FakeUpstream(tools=["read", "delete", "list"])
    everything = config_of(group_config("up"))
    reading = config_of(group_config("up", tools=ToolFilter(include=("*",), exclude=("delete",))))
    watcher = Watcher()
    groups = Groups(everything, watcher, opener=Opener(up=[upstream]))
    groups.start(FakeCaller())
    await watcher.until(lambda: groups["up"].state is State.READY)

    shown = [make_view(groups, config)["up"].catalog for config in (everything, reading)]

    assert [list(known.tools) for known in shown if known] == [["read", "delete", "list"], ["read", "list"]]
    assert len(upstream.heard("tools/list")) == 1
    await groups.close()


async def test_the_filtered_tools_stay_the_same_object_until_they_change() -> None:
    upstream = FakeUpstream(tools=["read", "delete"])
    config = config_of(group_config("up", tools=ToolFilter(include=("read*",), exclude=())))
    watcher, client = Watcher(), FakeCaller()
    groups = Groups(config, watcher, opener=Opener(up=[upstream]))
    groups.start(client)
    view = make_view(groups, config)
    before = (await view["up"].learn_catalog(client)).tools

    upstream.answers["tools/list"] = {"tools": [tool("read"), tool("delete")]}
    assert (await view["up"].reread(client)).tools is before

    upstream.answers["tools/list"] = {"tools": [tool("read"), tool("read_all")]}
    assert list((await view["up"].reread(client)).tools) == ["read", "read_all"]
    await groups.close()
