"""What a client may not use does not exist for it, whatever way it tries; and what changes counts at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from dynamic_mcp.config.access import Access
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Opener, PresentedGroup, config_of, group_config, settled, text_of, tool
from tests.policy.rules import access_of, person

Json = Any  # whatever JSON a test writes down

DONE = {"content": [{"type": "text", "text": "done"}]}
EVERYTHING: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}},
        "serverInfo": {"name": "fake", "version": "1"},
        "instructions": "Use get_thing before delete_thing.",
    },
    "tools/list": {"tools": [tool("get_thing"), tool("delete_thing")]},
    "tools/call": DONE,
    "prompts/list": {"prompts": [{"name": "review"}, {"name": "secret"}]},
    "prompts/get": {"messages": []},
    "resources/list": {
        "resources": [{"uri": "file:///docs/a", "name": "a"}, {"uri": "file:///keys/private", "name": "b"}]
    },
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///keys/{blob}", "name": "k"}]},
    "resources/read": {"contents": []},
    "resources/subscribe": {},
    "completion/complete": {"completion": {"values": []}},
}
SOME = [{"servers": ["up"], "tools": ["get_*"], "prompts": ["review"], "resources": ["file:///docs/*"]}]


@dataclass
class Scene:
    """A proxy whose clients have roles."""

    proxy: Proxy
    upstreams: dict[str, list[FakeUpstream]]
    groups: list[PresentedGroup]

    async def join(self, *roles: str, subject: str = "ann", only: str | None = None) -> Client:
        """Return a client of somebody with these roles."""
        client = Client(self.proxy, only=only, authentication=person(subject, *roles))
        await client.initialize()
        return client

    def heard(self, method: str) -> int:
        """Return how many requests of this method upstreams have got."""
        return sum(len(upstream.heard(method)) for upstream in self.upstreams["up"])

    def change(self, access: Access | None) -> None:
        """Reload the config with other rules."""
        self.proxy.apply(config_of(*self.groups, access=access))


@contextlib.asynccontextmanager
async def scene(*rules: Json, groups: tuple[str, ...] = ("up",), **changes: Any) -> AsyncIterator[Scene]:
    """Run a proxy in which the role `dev` has these rules, and `admin` may do everything."""
    upstreams = {name: [FakeUpstream(EVERYTHING) for _ in range(3)] for name in groups}
    opener = Opener(**{name: list(each) for name, each in upstreams.items()})
    configs = [group_config(name, **changes) for name in groups]
    access = access_of(roles={"dev": list(rules), "admin": [{}]})
    proxy = Proxy(config_of(*configs, access=access), opener=opener)
    try:
        yield Scene(proxy, upstreams, configs)
    finally:
        await proxy.close()


def content_of(answer: Json) -> str:
    """Return an answer without its id."""
    return json.dumps({key: value for key, value in answer.items() if key != "id"})


async def test_lists_have_what_is_allowed_and_nothing_else() -> None:
    async with scene(*SOME) as on:
        client = await on.join("dev")
        found = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}})
        assert "get_thing" in content_of(found)
        assert "delete_thing" not in content_of(found), "not even in the instructions of the server"
        assert [each["name"] for each in (await client.request("prompts/list"))["result"]["prompts"]] == [
            "up__review"
        ]
        resources = (await client.request("resources/list"))["result"]["resources"]
        assert [each["uri"] for each in resources] == ["file:///docs/a"]
        assert (await client.request("resources/templates/list"))["result"]["resourceTemplates"] == []


async def test_a_group_of_which_nothing_is_allowed_is_nowhere() -> None:
    async with scene(*SOME, groups=("up", "prod")) as on:
        client = await on.join("dev")
        hello, listed = await client.initialize(), await client.request("tools/list")
        assert "prod" not in content_of(hello) + content_of(listed)
        assert "prod" in content_of(await (await on.join("admin")).request("tools/list"))


WAYS: dict[str, tuple[str, Json]] = {
    "call": ("tools/call", {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "NAME", "args": {}}}),
    "call with the prefix": (
        "tools/call",
        {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "up__NAME", "args": {}}},
    ),
    "call without a group": ("tools/call", {"name": "call_dynamic_tool", "arguments": {"name": "NAME"}}),
    "call by name": ("tools/call", {"name": "NAME", "arguments": {}}),
    "call by listed name": ("tools/call", {"name": "up__NAME", "arguments": {}}),
    "search": ("tools/call", {"name": "get_dynamic_tools", "arguments": {"query": "NAME"}}),
    "prompt": ("prompts/get", {"name": "up__NAME"}),
    "plain prompt": ("prompts/get", {"name": "NAME"}),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "up__NAME"}, "argument": {"name": "a", "value": ""}},
    ),
    "resource": ("resources/read", {"uri": "file:///keys/NAME"}),
    "resource of a group": ("resources/read", {"uri": "dynamic-mcp://up/file:///keys/NAME"}),
    "subscription": ("resources/subscribe", {"uri": "file:///keys/NAME"}),
    "completion of a template": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "file:///keys/{NAME}"}, "argument": {"name": "a", "value": ""}},
    ),
}


# For each kind of thing: a hidden one, and one that is nowhere and as far from every other name.
PAIRS = {
    "prompt": ("secret", "sacret"),
    "resource": ("private", "prixate"),
    "subscription": ("private", "prixate"),
    "template": ("blob", "blxb"),
}


@pytest.mark.parametrize("only", [None, "up"])
@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_refusal_reads_like_that_of_something_that_does_not_exist(
    *, is_direct: bool, only: str | None
) -> None:
    async with scene(*SOME, direct=DirectTools(is_all=is_direct)) as on:
        client = await on.join("dev", only=only)
        # all at once, because a list is read again once a second at most
        answers = await asyncio.gather(*(ask_for(client, way, name) for way in WAYS for name in pair_of(way)))

        for way, hidden, missing in zip(WAYS, answers[::2], answers[1::2], strict=True):
            assert hidden == missing, way
            assert "error" in hidden or "isError" in hidden or way == "search", hidden
        for name in ("tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"):
            assert on.heard(name) == 0


def pair_of(way: str) -> tuple[str, str]:
    """Return a hidden thing to ask for in this way, and one that is nowhere."""
    return next((pair for kind, pair in PAIRS.items() if kind in way), ("delete_thing", "deleta_thing"))


async def ask_for(client: Client, way: str, name: str) -> str:
    """Ask for something, and return the answer without its name."""
    method, params = WAYS[way]
    return content_of(await client.request(method, json.loads(json.dumps(params).replace("NAME", name)))).replace(
        name, "NAME"
    )


async def test_what_is_allowed_passes_unchanged() -> None:
    async with scene(*SOME) as on:
        client = await on.join("dev")
        assert await client.call("up", "get_thing", {"a": 1}) == DONE
        assert "error" not in await client.request("prompts/get", {"name": "up__review"})
        assert "error" not in await client.request("resources/read", {"uri": "file:///docs/a"})
        assert "error" not in await client.request("resources/read", {"uri": "file:///docs/unlisted"})
        assert "error" not in await client.request("resources/subscribe", {"uri": "file:///docs/a"})


@pytest.mark.parametrize(
    "reference",
    [{"type": "ref/prompt", "name": "up__review"}, {"type": "ref/resource", "uri": "file:///keys/{blob}"}],
    ids=["prompt", "template"],
)
async def test_what_is_allowed_is_completed(reference: Json) -> None:
    async with scene({"prompts": ["review"], "resources": ["file:///keys/*"]}) as on:
        client = await on.join("dev")

        answer = await client.request(
            "completion/complete", {"ref": reference, "argument": {"name": "a", "value": ""}}
        )

        assert answer["result"] == {"completion": {"values": []}}


async def test_arguments_decide_about_a_tool_that_is_there() -> None:
    async with scene({"tools": ["*"], "arguments": {"$.database": {"enum": ["stage"]}}}) as on:
        client = await on.join("dev")
        assert await client.call("up", "get_thing", {"database": "stage"}) == DONE
        refused = await client.call("up", "get_thing", {"database": "live"})
        assert refused["isError"]
        assert "do not allow `get_thing` of group `up` with these arguments" in text_of(refused)
        assert on.heard("tools/call") == 1


async def test_what_wants_approval_is_shown_and_refused_with_clear_words_where_nobody_can_be_asked() -> None:
    async with scene({"tools": ["*"]}, {"tools": ["delete_*"], "effect": "ask"}) as on:
        client = await on.join("dev")
        found = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}})
        assert "delete_thing" in content_of(found)
        refused = await client.call("up", "delete_thing")
        assert "`delete_thing` of group `up` needs approval" in text_of(refused)
        assert await client.call("up", "get_thing") == DONE
        assert on.heard("tools/call") == 1


async def test_a_missing_scope_is_an_error_of_the_client_and_not_of_the_model() -> None:
    async with scene({"tools": ["*"], "scope": "tools"}) as on:
        client = Client(on.proxy, authentication=person("ann", "dev", scopes=frozenset({"other"})))
        await client.initialize()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "get_thing"}}
        error = (await client.request("tools/call", params))["error"]
        assert (error["code"], error["data"]) == (-32003, {"scopes": ["tools"]})


async def test_other_rules_count_at_once_and_are_told_to_those_for_whom_something_changed() -> None:
    async with scene(*SOME) as on:
        ann, root = await on.join("dev"), await on.join("admin", subject="root")
        for client in (ann, root):
            assert await client.call("up", "get_thing") == DONE
            for method in ("prompts/list", "resources/list", "resources/templates/list"):
                await client.request(method)
            await client.hears("notifications/prompts/list_changed")  # they are known now

        on.change(access_of(roles={"dev": [{"servers": ["up"], "tools": ["delete_*"]}], "admin": [{}]}))

        assert "no tool of group `up` is named `get_thing`" in text_of(await ann.call("up", "get_thing"))
        assert await ann.call("up", "delete_thing") == DONE
        await ann.hears("notifications/prompts/list_changed", 2)
        await ann.hears("notifications/resources/list_changed", 2)
        await settled()
        assert len(root.heard("notifications/prompts/list_changed")) == 1

        on.change(access_of(roles={"admin": [{}]}))

        assert "no group is named `up`" in text_of(await ann.call("up", "delete_thing"))
        await ann.hears("notifications/tools/list_changed")


async def test_a_call_that_waits_for_its_server_is_decided_by_the_rules_when_it_is_sent() -> None:
    opener = Opener(up=[FakeUpstream(EVERYTHING)])
    opener.gate.clear()
    config = group_config()
    proxy = Proxy(config_of(config, access=access_of(roles={"dev": SOME})), opener=opener)
    client = Client(proxy, authentication=person("ann", "dev"))
    await client.initialize()
    calling = asyncio.create_task(client.call("up", "get_thing"))
    await settled()

    proxy.apply(config_of(config, access=access_of(roles={"dev": []})))
    opener.gate.set()

    assert "no group is named `up`" in text_of(await calling)
    await proxy.close()


@pytest.mark.parametrize("way", ["plain prompt", "resource"])
async def test_what_is_hidden_while_a_request_waits_for_it_does_not_exist_for_it_any_more(way: str) -> None:
    upstream, config = FakeUpstream(EVERYTHING), group_config()
    opener = Opener(up=[upstream])
    opener.gate.clear()
    proxy = Proxy(config_of(config, access=access_of(roles={"dev": [{}]})), opener=opener)
    client = Client(proxy, authentication=person("ann", "dev"))
    await client.initialize()
    hidden, _ = pair_of(way)
    asking = asyncio.create_task(ask_for(client, way, hidden))
    await settled()

    proxy.apply(config_of(config, access=access_of(roles={"dev": [{"tools": ["*"]}]})))
    opener.gate.set()

    assert await asking == await ask_for(client, way, hidden)
    assert [upstream.heard(method) for method in ("prompts/get", "resources/read")] == [[], []]
    await proxy.close()


# What a change of the rules does to calls that wait.
CHANGES: Json = {
    "hidden": ({"tools": ["delete_*"]}, "no tool is named `get_thing`"),
    "denied": ({"tools": ["get_*"], "effect": "deny"}, "no tool is named `get_thing`"),
    "to be asked about": ({"tools": ["get_*"], "effect": "ask"}, "the rules have changed; try again"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_call_that_waits_for_a_place_is_decided_by_the_rules_when_it_is_sent(change: str) -> None:
    upstream, config = FakeUpstream(EVERYTHING), group_config(concurrency=1)
    del upstream.answers["tools/call"]
    rule, why = CHANGES[change]
    proxy = Proxy(config_of(config, access=access_of(roles={"dev": [{}]})), opener=Opener(up=[upstream]))
    client = Client(proxy, authentication=person("ann", "dev"))
    await client.initialize()
    first = asyncio.create_task(client.call("up", "delete_thing"))
    await upstream.hears("tools/call")
    second = asyncio.create_task(client.call("up", "get_thing"))
    await settled()

    proxy.apply(config_of(config, access=access_of(roles={"dev": [{}, rule] if "effect" in rule else [rule]})))
    upstream.say({"jsonrpc": "2.0", "id": upstream.heard("tools/call")[0]["id"], "result": DONE})

    assert await first == DONE
    assert why in text_of(await second)
    assert len(upstream.heard("tools/call")) == 1
    await proxy.close()


async def test_a_call_that_waits_goes_on_where_a_change_of_the_rules_leaves_its_right_as_it_is() -> None:
    upstream, config = FakeUpstream(EVERYTHING), group_config()
    opener = Opener(up=[upstream])
    opener.gate.clear()
    proxy = Proxy(config_of(config, access=access_of(roles={"dev": SOME})), opener=opener)
    client = Client(proxy, authentication=person("ann", "dev"))
    await client.initialize()
    reading = asyncio.create_task(client.request("resources/read", {"uri": "dynamic-mcp://up/file:///docs/a"}))
    await settled()

    proxy.apply(config_of(config, access=access_of(roles={"dev": [{"resources": ["file:///docs/a"]}]})))
    opener.gate.set()

    assert (await reading)["result"] == {"contents": []}
    await proxy.close()


async def test_a_resource_that_is_hidden_while_its_server_is_connecting_is_not_read() -> None:
    upstream, config = FakeUpstream(EVERYTHING), group_config()
    opener = Opener(up=[upstream])
    opener.gate.clear()
    proxy = Proxy(config_of(config, access=access_of(roles={"dev": [{}]})), opener=opener)
    client = Client(proxy, authentication=person("ann", "dev"))
    await client.initialize()
    read = "resources/read", {"uri": "dynamic-mcp://up/file:///keys/private"}
    reading = asyncio.create_task(client.request(*read))
    await settled()

    proxy.apply(config_of(config, access=access_of(roles={"dev": SOME})))
    opener.gate.set()

    assert "error" in await reading
    assert upstream.heard("resources/read") == []
    await proxy.close()


async def test_a_second_subscriber_is_decided_like_the_first() -> None:
    async with scene(*SOME) as on:
        root, ann = await on.join("admin"), await on.join("dev")
        assert "error" not in await root.request("resources/subscribe", {"uri": "file:///keys/private"})
        assert "error" in await ann.request("resources/subscribe", {"uri": "file:///keys/private"})


async def test_updates_end_with_the_right_to_read() -> None:
    async with scene(*SOME) as on:
        ann, root = await on.join("dev"), await on.join("admin", subject="root")
        for client in (ann, root):
            await client.request("resources/subscribe", {"uri": "file:///docs/a"})
        updated = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///docs/a"}}
        for upstream in on.upstreams["up"][:2]:
            upstream.say(updated)
        await ann.hears("notifications/resources/updated")

        on.change(access_of(roles={"dev": [{"servers": ["up"], "tools": ["*"]}], "admin": [{}]}))
        for upstream in on.upstreams["up"][:2]:
            upstream.say(updated)

        await root.hears("notifications/resources/updated", 2)
        assert len(ann.heard("notifications/resources/updated")) == 1


async def test_a_kept_result_is_gone_with_the_right_to_its_tool() -> None:
    async with scene(*SOME) as on:
        client = await on.join("dev")
        on.upstreams["up"][0].answers["tools/call"] = {"content": [{"type": "text", "text": "x" * 200_000}]}
        text = json.dumps(await client.call("up", "get_thing"))
        uri = text[text.index("dynamic-mcp://results/") :][:54]
        assert "result" in await client.request("resources/read", {"uri": uri})

        on.change(access_of(roles={"dev": [{"servers": ["up"], "tools": ["delete_*"]}]}))

        gone = await client.request("resources/read", {"uri": uri})
        never = await client.request("resources/read", {"uri": uri[:-1] + ("0" if uri[-1] != "0" else "1")})
        assert content_of(gone).replace(uri[-1] + "`", "`") == content_of(never).replace(
            ("0" if uri[-1] != "0" else "1") + "`", "`"
        )


async def test_a_task_is_gone_with_the_right_to_its_tool_and_outlives_other_changes() -> None:
    task = {"taskId": "t1", "status": "working", "ttl": None, "createdAt": "2026-01-01T00:00:00Z"}
    able = {**EVERYTHING["initialize"]["capabilities"], "tasks": {"requests": {"tools": {"call": {}}}}}
    answers = {
        **EVERYTHING,
        "initialize": {**EVERYTHING["initialize"], "capabilities": able},
        "tools/call": {"task": task},
        "tasks/get": task,
    }
    async with scene(*SOME) as on:
        for upstream in on.upstreams["up"]:
            upstream.answers |= answers
        client = await on.join("dev")
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "get_thing"}, "task": {}}
        assert "task" in (await client.request("tools/call", params))["result"]

        on.change(access_of(roles={"dev": [*SOME, {"servers": ["other"]}]}))
        assert "result" in await client.request("tasks/get", {"taskId": "t1"})

        on.change(access_of(roles={"dev": [{"servers": ["up"], "tools": ["delete_*"]}]}))
        gone, never = [content_of(await client.request("tasks/get", {"taskId": id})) for id in ("t1", "t2")]
        assert gone.replace("t1", "t2") == never


async def test_lists_of_a_thousand_people_with_five_roles_are_made_five_times() -> None:
    upstream = FakeUpstream(EVERYTHING)
    roles = {str(number): [{"tools": [f"*{number}"]}] for number in range(5)}
    proxy = Proxy(config_of(group_config(), access=access_of(roles=roles)), opener=Opener(up=[upstream]))
    clients = [Client(proxy, authentication=person(f"p{number}", str(number % 5))) for number in range(1000)]

    views = {proxy.view_for(client.session)["up"] for client in clients}

    assert len(views) == 5
    await proxy.close()
