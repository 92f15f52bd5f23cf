"""Observers hear of lists from which access rules or a profile have hidden something, and of no others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from dynamic_mcp.config.access import Profile
from dynamic_mcp.identity import LOCAL_USER
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Opener, config_of, group_config
from tests.policy.rules import access_of, person
from tests.recorder import Recorder, observe

Json = Any  # whatever JSON a test writes down


@contextlib.asynccontextmanager
async def clients_of(role: list[Json] | None, *profiles: Profile) -> AsyncIterator[tuple[Proxy, Recorder]]:
    """Run a proxy with two servers, whose clients have a role with these rules."""
    access = None if role is None else access_of(roles={"dev": role})
    config = config_of(
        *(group_config(name) for name in ("a", "b")), access=access, profiles={each.name: each for each in profiles}
    )
    proxy = Proxy(config, opener=Opener(a=[FullUpstream()] * 3, b=[FullUpstream()] * 3))
    try:
        yield proxy, observe(proxy)
    finally:
        await proxy.close()


async def _list_all(client: Client) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        await client.request(method)


async def test_what_rules_hide_is_counted_for_each_list() -> None:
    async with clients_of([{"servers": ["a"]}]) as (proxy, seen):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        await _list_all(client)

        told = {each.pop("method"): each for each in seen.named("list")}
        assert set(told) == {"tools/list", "resources/list", "resources/templates/list", "prompts/list"}
        assert all((each["hidden"], each["hidden_groups"]) == (0, 1) for each in told.values())


async def test_entries_of_a_group_that_others_use_are_counted() -> None:
    async with clients_of([{"servers": ["a"]}]) as (proxy, seen):
        for authentication in (LOCAL_USER, person("ann", "dev")):
            client = Client(proxy, authentication=authentication)
            await client.initialize()
            await _list_all(client)

        assert [each["shown"] == each["hidden"] > 0 for each in seen.named("list")] == [True] * 4


async def test_what_is_shown_whole_is_not_told() -> None:
    async with clients_of([{"tools": ["*"]}, {"prompts": ["*"]}, {"resources": ["**"]}]) as (proxy, seen):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        await _list_all(client)

        assert seen.named("list") == []


async def test_tools_that_are_asked_for_by_group_are_counted_for_that_group() -> None:
    async with clients_of([{"tools": ["echo"]}]) as (proxy, seen):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        for arguments in ({"group": "a"}, {"query": "echo"}):
            await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})

        first, second = seen.searches
        assert (first["shown"], second["shown"]) == (1, 2)
        assert second["hidden"] == 2 * first["hidden"]
        assert seen.named("list") == [], "a search is a request, which is observed itself"


async def test_what_a_profile_leaves_out_is_counted() -> None:
    async with clients_of(None, Profile("small", servers=("b",))) as (proxy, seen):
        for profile in (None, "small"):
            client = Client(proxy, profile=profile)
            await client.initialize()
            await client.request("tools/list")

        (told,) = seen.named("list")
        assert told["shown"] == told["hidden"] > 0
        assert [event.client for event in seen.events if event.name == "list"] == [client.session]


async def test_a_client_of_one_group_is_told_of_that_group_alone() -> None:
    async with clients_of([{"servers": ["b"]}, {"servers": ["a"], "tools": ["echo"]}]) as (proxy, seen):
        client = Client(proxy, only="a", authentication=person("ann", "dev"))
        await client.initialize()
        await client.request("tools/list")

        (told,) = seen.named("list")
        assert told["shown"] == 1


async def test_a_session_is_told_when_it_begins_and_when_it_ends() -> None:
    async with clients_of(None) as (proxy, seen):
        client = Client(proxy, profile=None)
        await client.initialize()
        await client.initialize()  # which changes nothing
        await client.request("tools/list")
        client.session.close()
        silent = Client(proxy)
        silent.session.close()

        assert seen.names == ["session.opened", "session.closed"]
        assert seen.named("session.opened") == [{"transport": "stdio", "protocol": "2025-11-25"}]
        assert seen.named("session.closed")[0]["requests"] == 3
