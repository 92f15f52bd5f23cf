"""Kept results: who gets them, when they are dropped, and what is never kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.resolved import Config, Program, Share
from dynamic_mcp.features.cache.clearing import SEEN_AFTER_S, mark_cleared
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.metrics.observer import MetricsObserver
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observation, Observer, Observers
from tests.fakes import (
    BOUND_S,
    Client,
    FakeClock,
    FakeUpstream,
    Json,
    Opener,
    config_of,
    group_config,
    part,
    settled,
    tool,
)
from tests.features.metrics.readers import sample, samples_of
from tests.policy.rules import person

MARK = "dynamic-mcp/cache"
ALL = Cache("cache[0]", tools=("*",), ttl_s=60, per="all")
OWN = Cache("cache[0]", tools=("*",), ttl_s=60)
PAGES = Cache("cache[0]", resources=("x://*",), ttl_s=60, per="all")
URI = "x://one"


class Counting(FakeUpstream):
    """A server whose results say how many calls and reads there were; it waits while it is `held`."""

    def __init__(self, **extra: Json) -> None:
        self.count = 0
        self.extra: Json = extra
        super().__init__(
            {
                "initialize": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
                    "serverInfo": {"name": "fake", "version": "1"},
                },
                "resources/list": {"resources": [{"uri": URI, "name": "one"}]},
                "resources/templates/list": {"resourceTemplates": []},
                "resources/subscribe": {},
                "resources/read": self._read,
                "tools/call": self._call,
            },
            tools=("get_x", "get_y", "delete_x"),
        )

    def hold(self) -> None:
        """Answer no calls until the test does."""
        del self.answers["tools/call"]

    def release(self, number: int, **members: Json) -> None:
        """Answer the call that came as this one, from 1."""
        call = self.heard("tools/call")[number - 1]
        self.say({"jsonrpc": "2.0", "id": call["id"], "result": self._call(call["params"]) | members})

    def announce(self, method: str, **params: Json) -> None:
        self.say({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})

    def _call(self, params: Json) -> Json:
        self.count += 1
        return {"content": [{"type": "text", "text": f"{params['name']} {self.count}"}], **self.extra}

    def _read(self, params: Json) -> Json:
        self.count += 1
        return {"contents": [{"uri": params["uri"], "text": str(self.count)}], **self.extra}


class Scene:
    """A proxy in front of the server `up`, by these rules, at a time that is moved."""

    def __init__(
        self, caches: Sequence[Cache], upstream: Counting | None, marks: Path | None, **changes: Json
    ) -> None:
        self.upstream = upstream or Counting()
        self.clock = FakeClock()
        self.proxy = Proxy(
            self.config(*caches, **changes),
            opener=Opener(up=[self.upstream]),
            clock=self.clock,
            state_folder=marks,
        )

    def config(self, *caches: Cache, redact: Sequence[Redact] = (), **changes: Json) -> Config:
        rules = {"cache": caches, "redact": tuple(redact)}
        return config_of(group_config("up", rules=rules, **{"share": Share.ALL, **changes}))

    async def client(self, subject: str = "ann") -> Client:
        client = Client(self.proxy, authentication=person(subject))
        await client.initialize()
        return client


@contextlib.asynccontextmanager
async def scene(
    *caches: Cache, upstream: Counting | None = None, marks: Path | None = None, **changes: Json
) -> AsyncIterator[Scene]:
    """Run such a proxy."""
    made = Scene(caches, upstream, marks, **changes)
    try:
        yield made
    finally:
        await made.proxy.close()


async def get(client: Client, args: Json = None, name: str = "get_x", **params: Json) -> str:
    """Call a tool; return what it says, without the mark of a hit."""
    result = await client.call("up", name, {} if args is None else args, **params)
    return str(result["content"][0]["text"])


async def read(client: Client) -> str:
    """Read the resource."""
    answer = await client.request("resources/read", {"uri": URI})
    return str(answer["result"]["contents"][0]["text"])


# --- hits ----------------------------------------------------------------------------------------------


async def test_the_same_call_again_is_answered_without_the_server_and_says_how_old_the_result_is() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        first = await client.call("up", "get_x", {"a": 1})
        on.clock.time += 7.5
        again = await client.call("up", "get_x", {"a": 1})
    assert "_meta" not in first
    assert again == first | {"_meta": {MARK: {"age_s": 7}}}
    assert on.upstream.count == 1


async def test_a_result_keeps_its_own_meta_and_structure() -> None:
    extra = {"_meta": {"vendor/x": [1]}, "structuredContent": {"n": 1.0}}
    async with scene(ALL, upstream=Counting(**extra)) as on:
        client = await on.client()
        first = await client.exchange("tools/call", _dynamic("get_x"))
        again = json.loads(await client.exchange("tools/call", _dynamic("get_x")))["result"]
    assert again.pop("_meta") == {"vendor/x": [1], MARK: {"age_s": 0}}
    expected = json.loads(first)["result"]
    del expected["_meta"]
    assert again == expected


async def test_a_result_is_used_until_its_time_is_over() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        said = [await get(client)]
        on.clock.time += 59
        said.append(await get(client))
        on.clock.time += 1
        said.append(await get(client))
    assert said == ["get_x 1", "get_x 1", "get_x 2"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": 1, "b": "é"}, b'{ "b" : "\\u00e9", "a":1 }', True),
        ({"a": 1}, b'{"a":1.0}', False),
        ({"a": 1}, b'{"a":"1"}', False),
        ({"a": [1, 2]}, b'{"a":[2,1]}', False),
        ({}, b'{"a":null}', False),
        ({"a": 12345678901234567890123}, b'{"a":12345678901234567890124}', False),
    ],
)
async def test_arguments_are_the_same_if_every_reader_takes_them_so(one: Json, other: bytes, is_same: bool) -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await client.exchange("tools/call", _dynamic("get_x", json.dumps(one).encode()))
        await client.exchange("tools/call", _dynamic("get_x", other))
    assert on.upstream.count == (1 if is_same else 2)


async def test_other_tools_and_tools_that_no_rule_names_are_called() -> None:
    async with scene(Cache("cache[0]", tools=("get_x",), per="all")) as on:
        client = await on.client()
        said = [await get(client, name=name) for name in ("get_x", "get_y", "get_x", "get_y")]
    assert said == ["get_x 1", "get_y 2", "get_x 1", "get_y 3"]


async def test_meta_makes_no_difference_and_other_params_do() -> None:
    async with scene(ALL) as on:
        alone = Client(on.proxy, only="up")
        await alone.initialize()
        for extra in ({}, {"_meta": {"progressToken": 4}}, {"vendor": 1}, {"vendor": 1}, {"vendor": 2}):
            await alone.request("tools/call", {"name": "get_x", "arguments": {}, **extra})
    assert on.upstream.count == 3


async def test_a_resource_is_kept_by_its_uri() -> None:
    async with scene(PAGES) as on:
        client = await on.client()
        assert [await read(client), await read(client)] == ["1", "1"]


async def test_where_no_rule_matches_every_byte_is_as_without_rules() -> None:
    odd = b'{ "content" : [ ] , "n":1.50, "e":"\\u00e9" }'
    lines = []
    for caches in ((), (Cache("cache[0]", tools=("other",), resources=("none://*",)),)):
        async with scene(*caches) as on:
            on.upstream.answers["tools/call"] = odd
            alone = Client(on.proxy, only="up")
            await alone.initialize()
            for _ in range(2):
                lines.append(part(await alone.exchange("tools/call", {"name": "get_x", "arguments": {}}), "result"))
            assert len(on.upstream.heard("tools/call")) == 2
    assert lines == [odd] * 4


# --- who gets it ---------------------------------------------------------------------------------------


async def test_a_result_is_for_the_person_whose_call_it_was_of() -> None:
    async with scene(OWN) as on:
        ann, same, bob = await on.client("ann"), await on.client("ann"), await on.client("bob")
        said = [await get(each) for each in (ann, same, bob, ann)]
    assert said == ["get_x 1", "get_x 1", "get_x 2", "get_x 1"]


async def test_a_result_is_for_everybody_where_the_rule_says_so() -> None:
    async with scene(ALL) as on:
        assert [await get(await on.client(name)) for name in ("ann", "bob")] == ["get_x 1", "get_x 1"]


async def test_what_a_session_of_its_own_was_answered_stays_in_it() -> None:
    async with scene(OWN, share=Share.SESSION) as on:
        one, other = await on.client(), await on.client()
        said = [await get(each) for each in (one, other, one, other)]
    assert said == ["get_x 1", "get_x 2", "get_x 1", "get_x 2"]


# --- what makes it old ---------------------------------------------------------------------------------


async def test_a_call_that_may_write_drops_what_was_read_of_that_server() -> None:
    async with scene(ALL, PAGES) as on:
        client = await on.client()
        assert [await get(client), await get(client), await read(client), await read(client)] == [
            "get_x 1",
            "get_x 1",
            "2",
            "2",
        ]
        assert await get(client, name="delete_x") == "delete_x 3"
        assert [await get(client), await read(client)] == ["get_x 4", "5"]


async def test_a_reading_during_which_something_was_written_is_not_kept() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client, {"warm": 1})
        on.upstream.hold()
        reading = asyncio.create_task(get(client))
        await on.upstream.hears("tools/call", 2)
        writing = asyncio.create_task(get(client, name="delete_x"))
        await on.upstream.hears("tools/call", 3)
        on.upstream.release(3)
        await writing
        on.upstream.release(2)
        await reading
        after = asyncio.create_task(get(client))
        await on.upstream.hears("tools/call", 4)
        on.upstream.release(4)
        assert await after == "get_x 4"


@pytest.mark.parametrize(("method", "drops"), [("tools", True), ("resources", True), ("prompts", False)])
async def test_changed_lists_drop_what_is_kept(method: str, drops: bool) -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        on.upstream.announce(f"{method}/list_changed")
        await settled()
        assert await get(client) == ("get_x 2" if drops else "get_x 1")


async def test_an_updated_resource_is_read_again_and_others_are_not() -> None:
    async with scene(PAGES) as on:
        client = await on.client()
        other = {"uri": "x://two"}
        await client.request("resources/subscribe", {"uri": URI})
        first = [await read(client), (await client.request("resources/read", other))["result"]]
        on.upstream.announce("resources/updated", uri=URI)
        await client.hears("notifications/resources/updated")
        assert await read(client) != first[0]
        again = (await client.request("resources/read", other))["result"]
        assert again["contents"] == first[1]["contents"]


async def test_another_definition_of_the_tool_makes_its_results_old() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        on.upstream.answers["tools/list"] = {"tools": [tool("get_x", description="Something else.")]}
        group = on.proxy.groups.of(None)["up"]
        await group.reread(client.session)
        assert await get(client) == "get_x 2"


async def test_a_reload_drops_what_is_kept_by_another_rule_and_keeps_the_rest() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        moved = Cache("cache[1]", tools=("*",), ttl_s=60, per="all")
        on.proxy.apply(on.config(Cache("cache[0]", tools=("other",)), moved, description="Another one."))
        assert await get(client) == "get_x 1"
        on.proxy.apply(on.config(OWN))
        assert await get(client) == "get_x 2"
        on.proxy.apply(on.config(ALL))
        assert await get(client) == "get_x 3"


async def test_what_is_to_be_redacted_otherwise_is_not_kept_over_a_reload() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        on.proxy.apply(on.config(ALL, redact=[Redact("redact[0]", pattern="secret")]))
        assert await get(client) == "get_x 2"


async def test_a_tool_that_the_config_calls_a_writer_is_not_answered_from_what_was_kept_before() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        on.proxy.apply(on.config(ALL, effects=ToolEffects(write=("get_x",))))
        assert [await get(client), await get(client)] == ["get_x 2", "get_x 3"]


async def test_another_server_under_the_same_name_starts_anew() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        await get(client)
        on.proxy.apply(on.config(ALL, upstream=Program(command="other", args=(), env={}, cwd=None)))
        assert await get(client) == "get_x 2"


@pytest.mark.parametrize(("server", "drops"), [(None, True), ("up", True), ("other", False)])
async def test_a_mark_has_what_is_kept_of_a_server_dropped(tmp_path: Path, server: str | None, drops: bool) -> None:
    mark_cleared(tmp_path)
    async with scene(ALL, PAGES, marks=tmp_path) as on:
        client = await on.client()
        said = [await get(client), await get(client), await read(client), await read(client)]
        assert said == ["get_x 1", "get_x 1", "2", "2"]
        mark_cleared(tmp_path, server)
        on.clock.time += SEEN_AFTER_S
        said = [await get(client), await get(client), await read(client)]
    assert said == (["get_x 3", "get_x 3", "4"] if drops else ["get_x 1", "get_x 1", "2"])


async def test_a_reading_under_way_is_not_kept_when_results_are_to_be_dropped(tmp_path: Path) -> None:
    async with scene(ALL, marks=tmp_path) as on:
        client = await on.client()
        on.upstream.hold()
        reading = asyncio.create_task(get(client))
        await on.upstream.hears("tools/call")
        mark_cleared(tmp_path, "up")
        on.clock.time += SEEN_AFTER_S
        after = asyncio.create_task(get(client))
        await on.upstream.hears("tools/call", 2)
        on.upstream.release(2)
        on.upstream.release(1)
        assert (await reading, await after) == ("get_x 2", "get_x 1")
        assert await get(client) == "get_x 1"


# --- what is never kept --------------------------------------------------------------------------------


async def test_what_may_write_is_called_each_time() -> None:
    async with scene(ALL) as on:
        client = await on.client()
        said = [await get(client, name="delete_x") for _ in range(2)]
    assert said == ["delete_x 1", "delete_x 2"]


@pytest.mark.parametrize(
    "extra",
    [
        {"isError": True},
        {"resultType": "input_required"},
        {"task": {"taskId": "1"}},
        {"_meta": 1},
        {"ttlMs": 0},
        {"ttlMs": "x"},
    ],
)
async def test_results_that_are_not_whole_or_not_to_be_kept_are_not_kept(extra: Json) -> None:
    async with scene(ALL, upstream=Counting(**extra)) as on:
        alone = Client(on.proxy, only="up")
        await alone.initialize()
        for _ in range(2):
            await alone.request("tools/call", {"name": "get_x", "arguments": {}})
    assert on.upstream.count == 2


async def test_the_server_may_want_a_shorter_time_and_one_person_only() -> None:
    extra = {"ttlMs": 5000, "cacheScope": "private"}
    async with scene(ALL, upstream=Counting(**extra)) as on:
        ann, bob = await on.client("ann"), await on.client("bob")
        said = [await get(ann), await get(bob), await get(ann), await get(bob)]
        on.clock.time += 5
        said.append(await get(ann))
    assert said == ["get_x 1", "get_x 2", "get_x 1", "get_x 2", "get_x 3"]


async def test_a_hit_does_not_say_that_it_may_be_kept_for_longer_than_it_is() -> None:
    async with scene(ALL, upstream=Counting(ttlMs=5000, cacheScope="public")) as on:
        client = await on.client()
        await get(client)
        on.clock.time += 2
        assert (await client.call("up", "get_x", {}))["ttlMs"] == 3000


async def test_a_result_that_depends_on_what_somebody_was_asked_is_not_kept() -> None:
    async with scene(ALL) as on:
        client = Client(on.proxy)
        await client.initialize(capabilities={"elicitation": {}})
        on.upstream.hold()
        for number in (1, 2):
            calling = asyncio.create_task(get(client))
            await on.upstream.hears("tools/call", number)
            on.upstream.say({"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create", "params": {}})
            client.reply(await client.hears("elicitation/create", number), {"action": "decline"})
            await on.upstream.hears("an answer", number)
            on.upstream.release(number)
            assert await calling == f"get_x {number}"


# --- memory --------------------------------------------------------------------------------------------


async def test_of_too_many_results_the_least_used_is_dropped() -> None:
    async with scene(Cache("cache[0]", tools=("*",), per="all", max_bytes=2000)) as on:
        client = await on.client()
        for name in ("a", "b", "a", "c", "d", "e"):
            await get(client, {"n": name})
        before = on.upstream.count
        await get(client, {"n": "e"})
        assert on.upstream.count == before
        await get(client, {"n": "b"})
        assert on.upstream.count == before + 1


async def test_a_result_that_is_larger_than_the_bound_is_not_kept() -> None:
    async with scene(structs.replace(ALL, max_bytes=1000), upstream=Counting(x="y" * 1000)) as on:
        client = await on.client()
        assert [await get(client), await get(client)] == ["get_x 1", "get_x 2"]


# --- equal calls at once -------------------------------------------------------------------------------


async def test_equal_calls_at_once_make_one_call() -> None:
    async with scene(ALL) as on:
        on.upstream.hold()
        clients = [await on.client(f"p{number}") for number in range(5)]
        calls = [asyncio.create_task(get(each)) for each in clients]
        await on.upstream.hears("tools/call")
        await settled()
        on.upstream.release(1)
        assert await asyncio.gather(*calls) == ["get_x 1"] * 5
        assert len(on.upstream.heard("tools/call")) == 1


async def test_if_the_first_of_equal_calls_is_cancelled_the_next_one_is_made() -> None:
    async with scene(ALL) as on:
        on.upstream.hold()
        client, other, third = [await on.client(name) for name in ("ann", "bob", "cyd")]
        client.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": json.loads(_dynamic("get_x"))})
        await on.upstream.hears("tools/call")
        waiting = [asyncio.create_task(get(each)) for each in (other, third)]
        await settled()
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
        await on.upstream.hears("tools/call", 2)
        on.upstream.release(2)
        assert await asyncio.gather(*waiting) == ["get_x 1"] * 2
        assert len(on.upstream.heard("tools/call")) == 2


async def test_if_the_first_of_equal_calls_fails_the_others_are_made() -> None:
    async with scene(ALL) as on:
        on.upstream.hold()
        client, other = await on.client("ann"), await on.client("bob")
        first = asyncio.create_task(client.call("up", "get_x", {}))
        await on.upstream.hears("tools/call")
        waiting = asyncio.create_task(get(other))
        await settled()
        on.upstream.release(1, isError=True)
        assert (await first)["isError"]
        await on.upstream.hears("tools/call", 2)
        on.upstream.release(2)
        assert await waiting == "get_x 2"


async def test_of_equal_calls_that_wait_one_can_be_cancelled() -> None:
    async with scene(ALL) as on:
        on.upstream.hold()
        client, other = await on.client("ann"), await on.client("bob")
        first = asyncio.create_task(get(client))
        await on.upstream.hears("tools/call")
        other.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": json.loads(_dynamic("get_x"))})
        await settled()
        other.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
        await settled()
        on.upstream.release(1)
        assert await first == "get_x 1"


async def test_progress_reaches_the_one_whose_call_it_is() -> None:
    async with scene(ALL) as on:
        on.upstream.hold()
        client = await on.client()
        calling = asyncio.create_task(get(client, _meta={"progressToken": "mine"}))
        call = await on.upstream.hears("tools/call")
        on.upstream.announce("progress", progressToken=call["params"]["_meta"]["progressToken"], progress=1)
        assert (await client.hears("notifications/progress"))["params"]["progressToken"] == "mine"
        on.upstream.release(1)
        await calling


# --- what is observed ----------------------------------------------------------------------------------


class Hits(Observer):
    """Notes of each request whether a kept result was its answer, and whether the server was asked."""

    def __init__(self) -> None:
        self.ended: list[tuple[bool, bool]] = []

    def end(self, seen: Observation, answer: object, error: BaseException | None) -> None:
        if seen.request.method == "tools/call":
            self.ended.append((seen.is_cached, seen.sent is not None))


async def test_an_observer_sees_a_hit_as_one() -> None:
    async with scene(ALL) as on:
        client, hits = await on.client(), Hits()
        on.proxy.observers = Observers([hits])
        async with asyncio.timeout(BOUND_S):
            await get(client)
            await get(client)
    assert hits.ended == [(False, True), (True, False)]


async def test_hits_are_counted_for_metrics_and_no_request_to_the_server_is() -> None:
    async with scene(ALL) as on:
        client, metrics = await on.client(), MetricsObserver()
        on.proxy.observers = Observers([metrics])
        for _ in range(3):
            await get(client)
    samples = samples_of(metrics.families)
    assert sample(samples, "dynamic_mcp_cache_hits_total", dynamic_mcp_group="up") == 2
    sent = "mcp_client_operation_duration_seconds_count"
    assert [value for (name, _), value in samples.items() if name == sent] == [1]


def _dynamic(name: str, args: bytes = b"{}") -> bytes:
    call = b'{"group":"up","name":"%b","args":%b}' % (name.encode(), args)
    return b'{"name":"call_dynamic_tool","arguments":%b}' % call
