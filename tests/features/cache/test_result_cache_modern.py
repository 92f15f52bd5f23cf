"""Kept results where one side, or both, speak the newest revision: what servers say to caches is done."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig, Share
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from tests.fakes import Client, FakeClock, Json, config_of, group_config, tool
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import person
from tests.upstream.modern import ModernUpstream, complete, open_modern

MARK = "dynamic-mcp/cache"
URI = "x://one"
KEPT = Cache("cache[0]", tools=("*",), resources=("*",), ttl_s=60, per="all")


class Scene:
    """A proxy in front of a modern server, whose results of calls and reads have these members."""

    def __init__(self, share: Share, members: Json) -> None:
        self.clock = FakeClock()
        self.asks = False
        hint: Json = {"ttlMs": 60_000, "cacheScope": "public"}
        self.upstream = ModernUpstream(
            {"tools": {}, "resources": {}},
            **{
                "tools/list": complete(tools=[tool("get_x")], **hint),
                "resources/list": complete(
                    resources=[{"uri": URI, "name": "one"}], ttlMs=60_000, cacheScope="public"
                ),
                "resources/templates/list": complete(resourceTemplates=[], **hint),
                "resources/read": lambda params: complete(contents=[{"uri": URI, "text": "one"}], **members),
                "tools/call": lambda params: self._call(params, members),
            },
        )
        config = config_of(group_config("up", rules={"cache": (KEPT,)}, share=share))
        self.proxy = Proxy(config, opener=self._open, clock=self.clock)

    def _call(self, params: Json, members: Json) -> Json:
        if self.asks and "inputResponses" not in params:
            form = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
            question = {"method": "elicitation/create", "params": form}
            return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
        return complete(content=[{"type": "text", "text": "fine"}], **members)

    async def _open(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        return await open_modern(self.upstream, listener, hello)

    async def legacy(self, subject: str = "ann") -> Client:
        client = Client(self.proxy, authentication=person(subject))
        await client.initialize(capabilities={"elicitation": {}})
        return client

    def modern(self, subject: str = "ann") -> ModernClient:
        return ModernClient(self.proxy, authentication=person(subject))

    def count(self, method: str = "tools/call") -> int:
        return len(self.upstream.heard(method))


@contextlib.asynccontextmanager
async def scene(share: Share = Share.ALL, **members: Json) -> AsyncIterator[Scene]:
    """Run such a proxy."""
    made = Scene(share, members)
    try:
        yield made
    finally:
        await made.proxy.close()


async def test_a_modern_client_gets_a_whole_modern_result_that_says_how_old_it_is() -> None:
    async with scene() as on:
        client = on.modern()
        first = (await client.call("up", "get_x", {}))["result"]
        on.clock.time += 3
        again = (await client.call("up", "get_x", {}))["result"]
        assert on.count() == 1
    assert again["_meta"].pop(MARK) == {"age_s": 3}
    assert again == first
    assert again["resultType"] == "complete"


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_servers_time_is_kept_to_for_clients_of_both_eras(is_modern: bool) -> None:
    async with scene(ttlMs=5000, cacheScope="public") as on:
        client = on.modern() if is_modern else await on.legacy()
        for _ in range(2):
            await client.request("resources/read", {"uri": URI})
        on.clock.time += 2
        answer = await client.request("resources/read", {"uri": URI})
        assert on.count("resources/read") == 1
        assert answer["result"].get("ttlMs") == (3000 if is_modern else None)
        on.clock.time += 3
        await client.request("resources/read", {"uri": URI})
        assert on.count("resources/read") == 2


@pytest.mark.parametrize("is_modern", [False, True])
@pytest.mark.parametrize("members", [{"ttlMs": 5000, "cacheScope": "private"}, {"ttlMs": 5000}])
async def test_what_is_not_said_to_be_public_is_given_to_nobody_else(is_modern: bool, members: Json) -> None:
    async with scene(**members) as on:
        ann, bob = [on.modern(name) if is_modern else await on.legacy(name) for name in ("ann", "bob")]
        for client in (ann, bob, ann, bob):
            await client.request("resources/read", {"uri": URI})
        assert on.count("resources/read") == 2


async def test_what_must_not_be_kept_is_read_each_time() -> None:
    async with scene(ttlMs=0, cacheScope="public") as on:
        for client in (await on.legacy(), on.modern()):
            for _ in range(2):
                await client.request("resources/read", {"uri": URI})
        assert on.count("resources/read") == 4


async def test_a_client_of_one_era_is_not_given_the_result_for_another() -> None:
    async with scene() as on:
        legacy, modern = await on.legacy(), on.modern()
        assert "resultType" not in await legacy.call("up", "get_x", {})
        assert (await modern.call("up", "get_x", {}))["result"]["resultType"] == "complete"
        assert "resultType" not in await legacy.call("up", "get_x", {})


async def test_a_result_for_which_the_server_asked_is_not_kept() -> None:
    async with scene() as on:
        on.asks = True
        client = on.modern()
        for _ in range(2):
            asked = await client.call("up", "get_x", {})
            assert asked["result"]["resultType"] == "input_required"
            done = await client.call("up", "get_x", {}, **retry_of(asked))
            assert MARK not in done["result"]["_meta"]
        assert on.count() == 4


async def test_a_result_for_which_a_legacy_client_was_asked_is_not_kept() -> None:
    async with scene(Share.USER) as on:
        on.asks = True
        client = await on.legacy()
        for number in (1, 2):
            id = f"n{number}"
            params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "get_x", "args": {}}}
            client.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            client.reply(await client.hears("elicitation/create", number), {"action": "accept", "content": {}})
            await client.line(lambda message, id=id: message.get("id") == id and "method" not in message)  # type: ignore[misc]
        assert on.count() == 4
