"""Clients of one proxy with different profiles: what each sees, may call, and hears of after a reload."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dynamic_mcp.config.access import Access, AccessRule, Profile, ProfileTools
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.subscriptions import SETTLE_S
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config, settled, text_of

DONE = {"content": [{"type": "text", "text": "done"}]}
CHANGED = "notifications/tools/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
REVIEW = Profile("review", servers=("docs", "git"), tools=ProfileTools(("read*",)), instructions="You review.")
REVIEW_DOCS = Profile("review", servers=("docs",))
WRITE_WITHOUT_PUSH = Profile("write", servers=("git",), tools=ProfileTools(exclude=("push",)))
WRITE = Profile("write", servers=("git",), direct=DirectTools(is_all=True))


def _upstream(*tools: str, resource: str = "") -> FakeUpstream:
    answers: Json = {"tools/call": DONE}
    if resource:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}, "resources": {}}}
        listed = {"resources": [{"uri": resource, "name": "r"}]}
        answers |= {
            "initialize": {**hello, "serverInfo": {"name": "fake", "version": "1"}},
            "resources/list": listed,
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{"uri": resource, "text": "all of it"}]},
        }
    return FakeUpstream(answers, tools=tools)


def _config(*profiles: Profile, **changes: Any) -> Config:  # Any: fields of Config
    groups = [group_config(name) for name in ("docs", "git", "mail")]
    return config_of(*groups, profiles={each.name: each for each in profiles}, **changes)


class Scene:
    """A proxy in front of three servers, whose config has these profiles."""

    def __init__(self, *profiles: Profile, **changes: Any) -> None:  # Any: fields of Config
        self.opener = Opener(
            docs=[_upstream("read_page", "search", resource="docs://all")],
            git=[_upstream("read_file", "push")],
            mail=[_upstream("send", resource="mail://inbox")],
        )
        self.proxy = Proxy(_config(*profiles, **changes), opener=self.opener)

    async def join(self, profile: str | None = None, **options: Any) -> Client:  # Any: what a Client takes
        """Greet a client, once all that it sees is known."""
        client = Client(self.proxy, profile=profile, **options)
        await client.initialize()
        await settled()
        return client

    async def reload(self, *profiles: Profile, **changes: Any) -> None:  # Any: as above
        """Apply a config with other profiles, and wait until all is announced that there is to announce."""
        self.proxy.apply(_config(*profiles, **changes))
        await _announced()


async def _announced() -> None:
    """Wait until what was to be announced by now has been."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(2 * SETTLE_S, done.set)
    async with asyncio.timeout(5):
        await done.wait()
    await settled()


@contextlib.asynccontextmanager
async def scene(*profiles: Profile, **changes: Any) -> AsyncIterator[Scene]:  # Any: as above
    made = Scene(*profiles, **changes)
    try:
        yield made
    finally:
        await made.proxy.close()


async def groups_of(client: Client) -> list[str]:
    """Return the groups that a client's own tools name."""
    listed = (await client.request("tools/list"))["result"]["tools"]
    own = next(each for each in listed if each["name"] == "call_dynamic_tool")
    named: list[str] = own["inputSchema"]["properties"]["group"].get("enum", [])
    return named


async def tools_of(client: Client, group: str) -> list[str]:
    """Return the tools that a client finds in a group."""
    params = {"name": "get_dynamic_tools", "arguments": {"group": group, "detail": "names"}}
    answer = (await client.request("tools/call", params))["result"]
    return [each["name"] for each in json.loads(answer["content"][0]["text"])["tools"]]


async def failure(client: Client, group: str, tool: str) -> str:
    """Call a tool, and return the words with which that fails."""
    result = await client.call(group, tool)
    assert result["isError"] is True
    return text_of(result)


async def test_each_client_sees_what_its_profile_selects_and_all_share_the_servers() -> None:
    async with scene(REVIEW, WRITE) as it:
        review, write, whole = await it.join("review"), await it.join("write"), await it.join()

        assert await groups_of(review) == ["docs", "git"]
        assert await tools_of(review, "docs") == ["read_page"]
        assert await tools_of(review, "git") == ["read_file"]
        assert await groups_of(whole) == ["docs", "git", "mail"]
        assert await tools_of(whole, "git") == ["read_file", "push"]
        listed = (await write.request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in listed] == ["git__read_file", "git__push"]
        assert sorted(it.opener.opened) == ["docs", "git", "mail"]


async def test_servers_start_only_for_clients_that_see_them() -> None:
    async with scene(REVIEW, Profile("none", servers=())) as it:
        await it.join("none")
        assert it.opener.opened == []
        review = await it.join("review")
        assert sorted(it.opener.opened) == ["docs", "git"]
        await _announced()
        heard = len(review.heard(RESOURCES_CHANGED))

        await it.reload(Profile("review", servers=("*",)))
        assert sorted(it.opener.opened) == ["docs", "git", "mail"]
        assert len(review.heard(RESOURCES_CHANGED)) > heard


async def test_what_a_profile_does_not_select_cannot_be_told_from_what_does_not_exist() -> None:
    async with scene(REVIEW) as it:
        client = await it.join("review")
        assert text_of(await client.call("git", "read_file")) == "done"
        hidden, missing = await failure(client, "git", "push"), await failure(client, "git", "pull")
        assert hidden.replace("push", "pull") == missing
        hidden, missing = await failure(client, "mail", "send"), await failure(client, "fax", "send")
        assert hidden.replace("mail", "fax") == missing
        assert "the groups are `docs`, `git`" in hidden
        (git,) = (each for each in it.opener.upstreams if "push" in str(each.answers["tools/list"]))
        assert [each["params"]["name"] for each in git.sent if each.get("method") == "tools/call"] == ["read_file"]


async def test_resources_of_servers_outside_of_the_profile_do_not_exist() -> None:
    async with scene(REVIEW) as it:
        client, whole = await it.join("review"), await it.join()
        listed = (await client.request("resources/list"))["result"]["resources"]
        assert len(listed) == 1
        assert len((await whole.request("resources/list"))["result"]["resources"]) == 2
        (mail,) = (each for each in it.opener.upstreams if "mail" in str(each.answers.get("resources/list")))
        await client.request("resources/read", {"uri": "mail://inbox"})
        assert "resources/read" not in [each.get("method") for each in mail.sent]
        await whole.request("resources/read", {"uri": "mail://inbox"})
        assert "resources/read" in [each.get("method") for each in mail.sent]


async def test_the_instructions_of_a_profile_come_first() -> None:
    async with scene(REVIEW) as it:
        client = Client(it.proxy, profile="review")
        said = (await client.initialize())["result"]["instructions"]
        assert said.startswith("You review.\n\n")
        assert "docs, git." in said
        assert "mail" not in said


async def test_one_group_alone_is_narrowed_too() -> None:
    async with scene(REVIEW) as it:
        alone = await it.join("review", only="git")
        listed = (await alone.request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in listed] == ["read_file"]
        assert "error" in await alone.request("tools/call", {"name": "push", "arguments": {}})
        outside = Client(it.proxy, profile="review", only="mail")
        assert "error" in await outside.initialize()


async def test_roles_give_a_profile_to_clients_that_choose_none() -> None:
    someone = Authentication(Principal("test", "ada"), "token", roles=("reviewer",))
    review = Profile("review", servers=("docs",), roles=("reviewer",))
    async with scene(WRITE, review) as it:
        assert await groups_of(await it.join(authentication=someone)) == ["docs"]
        assert await groups_of(await it.join()) == ["docs", "git", "mail"]
        chosen = (await (await it.join("write", authentication=someone)).request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in chosen] == ["git__read_file", "git__push"]


async def test_a_profile_shows_nothing_that_the_access_rules_hide() -> None:
    someone = Authentication(Principal("test", "ada"), "token", roles=("reader",))
    access = Access(roles={"reader": (AccessRule("r", servers=("git",), tools=("read*",)),)})
    everything = Profile("everything")
    async with scene(everything, WRITE, access=access) as it:
        client = await it.join("everything", authentication=someone)
        assert await groups_of(client) == ["git"]
        assert await tools_of(client, "git") == ["read_file"]
        direct = (await (await it.join("write", authentication=someone)).request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in direct] == ["git__read_file"]


async def test_a_reload_is_told_to_exactly_those_whose_lists_it_changes() -> None:
    async with scene(REVIEW, WRITE) as it:
        review, write, whole = await it.join("review"), await it.join("write"), await it.join()
        for each in (review, write, whole):
            await each.request("tools/list")

        await it.reload(Profile("review", servers=("docs",), tools=ProfileTools(("read*",))), WRITE)
        assert [len(each.heard(CHANGED)) for each in (review, write, whole)] == [1, 0, 0]
        assert await groups_of(review) == ["docs"]

        await it.reload(
            Profile("review", servers=("docs",)),
            Profile("write", servers=("git",), tools=ProfileTools(exclude=("push",))),
        )
        assert await tools_of(review, "docs") == ["read_page", "search"]
        assert [len(each.heard(CHANGED)) for each in (review, write, whole)] == [1, 1, 0]
        assert sorted(it.opener.opened) == ["docs", "git", "mail"]


@pytest.mark.parametrize("others", [(), (WRITE,)])
async def test_a_client_whose_profile_is_removed_has_no_servers_and_is_told_why(others: tuple[Profile, ...]) -> None:
    async with scene(REVIEW, *others) as it:
        client = await it.join("review")
        await it.reload(*others)

        assert len(client.heard(CHANGED)) == 1
        assert await groups_of(client) == []
        said = await failure(client, "git", "read_file")
        assert "the profile `review` is no longer in the config" in said
        search = {"name": "get_dynamic_tools", "arguments": {"query": "read"}}
        answer = (await client.request("tools/call", search))["result"]
        assert "the profile `review` is no longer" in json.dumps(answer)
        assert (await client.request("resources/list"))["result"]["resources"] == []
        late = Client(it.proxy, profile="review")
        assert "`review`" in (await late.initialize())["result"]["instructions"]
        assert await groups_of(late) == []

        await it.reload(REVIEW, *others)
        assert await tools_of(client, "git") == ["read_file"]
