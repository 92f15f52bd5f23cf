"""The draft groups extension: which groups and tools a client gets by it, and who gets none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.resolved import Program, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.features.mcp_groups.methods import EXTENSION, name_groups
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.view import make_view
from tests.fakes import (
    Client,
    Error,
    FakeUpstream,
    Json,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    settled,
    tool,
)
from tests.features.overrides.overridden import rules_of
from tests.modern_client import ModernClient
from tests.policy.rules import access_of, person
from tests.proxy.skill_upstreams import SkillUpstream

KNOWS: Json = {"extensions": {EXTENSION: {}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
ON = ("groups",)


def upstream(*names: str, **members: Json) -> FakeUpstream:
    """Return a server with these tools, whose schema has an argument."""
    tools = [tool(name, description=f"Does {name}.", inputSchema=SCHEMA) for name in names or ("echo",)]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "fake", "title": "Fake", "version": "1"},
        **members,
    }
    result = {"content": [{"type": "text", "text": "fine"}]}
    return FakeUpstream({"initialize": hello, "tools/list": {"tools": tools}, "tools/call": result})


class Scene:
    """A proxy whose clients of both eras know the extension."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    async def client(
        self, *, is_modern: bool = False, knows: Json = KNOWS, subject: str = "ann", profile: str | None = None
    ) -> Client | ModernClient:
        if is_modern:
            return ModernClient(self.proxy, capabilities=knows, authentication=person(subject))
        client = Client(self.proxy, authentication=person(subject), profile=profile)
        await client.initialize(capabilities=knows)
        return client

    async def list_groups(self, **options: Json) -> list[Json]:
        answer = await (await self.client(**options)).request("groups/list")
        groups: list[Json] = answer["result"]["groups"]
        return groups

    async def tools_of(self, name: str, **options: Json) -> list[str]:
        answer = await (await self.client(**options)).request("groups/get", {"name": name})
        return [each["name"] for each in answer["result"]["contents"]["tools"]]


@contextlib.asynccontextmanager
async def serving(
    upstreams: Mapping[str, FakeUpstream], *groups: PresentedGroup, **settings: Json
) -> AsyncIterator[Scene]:
    """Run a proxy in front of these servers, with the extension."""
    configs = groups or tuple(group_config(name) for name in upstreams)
    opener = Opener(**{name: [each] * 3 for name, each in upstreams.items()})
    proxy = Proxy(config_of(*configs, **{"experimental": ON, **settings}), opener=opener)
    try:
        yield Scene(proxy)
    finally:
        await proxy.close()


async def test_a_group_that_a_reload_replaces_meanwhile_is_told_as_it_was_asked_for() -> None:
    opener = Opener(up=[upstream("old"), upstream("new")])
    opener.gate.clear()
    proxy = Proxy(config_of(group_config("up"), experimental=ON), opener=opener)
    try:
        client = await Scene(proxy).client()
        asking = asyncio.create_task(client.request("groups/get", {"name": "up"}))
        await settled()
        other = Program(command="other", args=(), env={}, cwd=None)
        proxy.apply(config_of(group_config("up", upstream=other), experimental=ON))
        await settled()
        opener.gate.set()

        (found,) = (await asking)["result"]["contents"]["tools"]
        assert found["name"] in ("up__old", "up__new")
    finally:
        await proxy.close()


@pytest.mark.parametrize("is_modern", [False, True])
async def test_groups_are_listed_and_their_tools_come_whole_and_can_be_called(is_modern: bool) -> None:
    servers = {"files": upstream("read", "write", instructions="Read first."), "web": upstream("fetch")}
    groups = (group_config("files", description="Files here."), group_config("web"))
    async with serving(servers, *groups) as on:
        client = await on.client(is_modern=is_modern)
        listed = (await client.request("groups/list"))["result"]["groups"]
        assert [(each["name"], each["description"]) for each in listed] == [
            ("files", "Files here."),
            ("web", listed[1]["description"]),
        ]
        got = (await client.request("groups/get", {"name": "files"}))["result"]
        assert got["instructions"] == "Read first."
        entry = tool("files__read", description="Does read.", inputSchema=SCHEMA)
        assert got["contents"]["tools"] == [entry, {**entry, "name": "files__write", "description": "Does write."}]
        call = {"name": "files__read", "arguments": {"a": "b"}}
        assert (await client.request("tools/call", call))["result"]["content"][0]["text"] == "fine"
        assert servers["files"].heard("tools/call")[0]["params"]["name"] == "read"


@pytest.mark.parametrize("is_modern", [False, True])
async def test_it_is_declared_where_the_config_has_it_and_only_there(is_modern: bool) -> None:
    for settings in ({}, {"experimental": ()}):
        async with serving({"up": upstream()}, **settings) as on:
            if is_modern:
                answer = await ModernClient(on.proxy).request("server/discover")
            else:
                answer = await Client(on.proxy).initialize()
            extensions = answer["result"]["capabilities"].get("extensions", {})
            assert extensions == ({} if settings else {EXTENSION: {}})


async def test_without_the_setting_there_is_no_such_method() -> None:
    async with serving({"up": upstream()}, experimental=()) as on:
        answer = await (await on.client()).request("groups/list")
        assert answer["error"]["code"] == -32601


@pytest.mark.parametrize("is_modern", [False, True])
@pytest.mark.parametrize("method", ["groups/list", "groups/get"])
async def test_a_client_that_does_not_declare_it_is_told_so(is_modern: bool, method: str) -> None:
    async with serving({"up": upstream()}) as on:
        client = await on.client(is_modern=is_modern, knows={})
        error = (await client.request(method, {"name": "up"}))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": KNOWS}


async def test_an_unknown_group_is_one_that_is_not_found() -> None:
    async with serving({"up": upstream()}) as on:
        error = (await (await on.client()).request("groups/get", {"name": "down"}))["error"]
        assert error["code"] == -32002


async def test_a_group_that_cannot_be_reached_is_listed_and_says_why_it_has_no_tools() -> None:
    broken = FakeUpstream({"initialize": Error(message="out of order")})
    async with serving({"up": broken}) as on:
        client = await on.client()
        assert [each["name"] for each in (await client.request("groups/list"))["result"]["groups"]] == ["up"]
        assert "out of order" in (await client.request("groups/get", {"name": "up"}))["error"]["message"]


async def test_a_tool_that_is_listed_by_itself_is_in_no_group() -> None:
    some, whole = DirectTools(globs=("read",)), DirectTools(is_all=True)
    groups = (group_config("files", direct=some), group_config("web", direct=whole))
    async with serving({"files": upstream("read", "write"), "web": upstream("fetch")}, *groups) as on:
        assert [each["name"] for each in await on.list_groups()] == ["files"]
        assert await on.tools_of("files") == ["files__write"]


async def test_a_group_of_skills_alone_is_not_listed() -> None:
    skills = SkillUpstream("team", {"refunds": {}})
    async with serving({"files": upstream("read"), "team": skills}) as on:
        client = await on.client()
        await client.request("skills/list", {})
        await settled()
        assert [each["name"] for each in await on.list_groups()] == ["files"]
        assert (await client.request("groups/get", {"name": "team"}))["error"]["code"] == -32002


async def test_rules_filters_and_overrides_hold() -> None:
    access = access_of(roles={"dev": [{"servers": ["files"]}, {"effect": "deny", "tools": ["write"]}]})
    groups = (
        group_config(
            "files", tools=ToolFilter(include=("*",), exclude=("purge",)), rules=rules_of(read={"rename": "look"})
        ),
        group_config("web"),
    )
    servers = {"files": upstream("read", "write", "purge"), "web": upstream("fetch")}
    async with serving(servers, *groups, access=access) as on:
        client = Client(on.proxy, authentication=person("ann", "dev"))
        await client.initialize(capabilities=KNOWS)
        listed = (await client.request("groups/list"))["result"]["groups"]
        assert [each["name"] for each in listed] == ["files"]
        got = (await client.request("groups/get", {"name": "files"}))["result"]
        assert [each["name"] for each in got["contents"]["tools"]] == ["files__look"]
        assert (await client.request("groups/get", {"name": "web"}))["error"]["code"] == -32002


async def test_a_profile_has_its_groups_only() -> None:
    profiles = {"ops": Profile("ops", servers=("web",))}
    servers = {"files": upstream("read"), "web": upstream("fetch")}
    async with serving(servers, profiles=profiles) as on:
        assert [each["name"] for each in await on.list_groups(profile="ops")] == ["web"]
        assert await on.tools_of("web", profile="ops") == ["web__fetch"]


async def test_a_client_of_one_group_alone_gets_the_servers_own_answer() -> None:
    own = {"groups": [{"name": "inner", "description": "of the server"}]}
    server = upstream()
    server.answers["groups/list"] = own
    async with serving({"up": server}) as on:
        client = Client(on.proxy, only="up")
        await client.initialize(capabilities=KNOWS)
        assert (await client.request("groups/list"))["result"] == own


async def test_a_tool_with_a_name_that_clients_do_not_take_can_be_called_by_its_short_form() -> None:
    long = "a" * 70
    server = upstream(long, "odd/name")
    async with serving({"up": server}) as on:
        for name in await on.tools_of("up"):
            assert len(name) <= 64
            answer = await (await on.client()).request("tools/call", {"name": name, "arguments": {"a": "b"}})
            assert "result" in answer
    assert [each["params"]["name"] for each in server.heard("tools/call")] == [long, "odd/name"]


def names(*groups: str) -> list[str]:
    """Return the names under which these groups are listed."""
    configs = [group_config(name) for name in groups]
    proxy = Proxy(config_of(*configs), opener=Opener())
    return [*name_groups([*make_view(proxy.groups, config_of(*configs))])]


async def test_names_that_the_draft_forbids_are_made_to_fit() -> None:
    assert names("github", "my-server2") == ["github", "my-server2"]
    assert names("My Server", "a__b", "-x-", "日本") == ["my-server", "a-b", "x", "group"]
    assert names("git_hub", "git-hub", "Git Hub") == ["git-hub-2", "git-hub", "git-hub-3"]
    assert names("x" * 64) == ["x" * 64]
    assert all(len(name) <= 64 for name in names("X" * 64, "Y_" * 32, "y-" * 32))


async def test_a_name_that_was_made_to_fit_says_which_group_it_is() -> None:
    async with serving({"My Server": upstream()}) as on:
        (listed,) = await on.list_groups()
        assert (listed["name"], listed["_meta"]) == ("my-server", {"dynamic-mcp/group": "My Server"})
        assert len(await on.tools_of("my-server")) == 1


async def test_a_tool_that_is_for_apps_is_in_no_group() -> None:
    shown, hidden = tool("draw"), tool("refresh", _meta={"ui": {"visibility": ["app"]}})
    server = FakeUpstream({"tools/list": {"tools": [shown, hidden]}})
    async with serving({"charts": server}) as scene:
        assert await scene.tools_of("charts") == ["charts__draw"]
