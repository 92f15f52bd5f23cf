"""What is measured of a proxy: requests under the names of catalogs, and nothing that a client makes up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.access import LOCAL_NAME, Access, AccessRule, Effect
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.features.metrics.definitions import BUCKETS
from dynamic_mcp.features.metrics.families import MAX_DISTRIBUTIONS, Family
from dynamic_mcp.features.metrics.gauges import read_gauges
from dynamic_mcp.features.metrics.observer import MetricsObserver
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.outcomes import read_answer
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers
from tests.fakes import Client, FakeClock, FakeUpstream, FullUpstream, Json, Opener, config_of, group_config, settled
from tests.features.approvals.scene import READ_S, asking_with
from tests.features.metrics.readers import Samples, sample, samples_of
from tests.modern_client import ModernClient

DONE: Json = {"content": [{"type": "text", "text": "done"}]}
SERVER = "mcp_server_operation_duration_seconds_count"
CLIENT = "mcp_client_operation_duration_seconds_count"
GROUP = "dynamic_mcp_group"
ECHO = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "echo", "dynamic_mcp_group": "a"}


class Measured:
    """A proxy that is measured, and a client of it."""

    def __init__(self, opener: Opener, access: Access | None = None) -> None:
        config = config_of(*(group_config(name) for name in opener.plan))
        config = config if access is None else replace(config, access=access)
        self.clock = FakeClock()
        self.proxy = Proxy(config, opener=opener, steps=asking_with(self.clock))
        self.observer = MetricsObserver()
        self.proxy.observers = Observers([self.observer])
        self.client = Client(self.proxy)

    @property
    def families(self) -> list[Family]:
        """All metrics."""
        return [*self.observer.families, *read_gauges(self.proxy)]

    def read(self) -> Samples:
        """Return what a reader gets now."""
        return samples_of(self.families)

    def names(self) -> set[str]:
        """Return the values of all labels."""
        return {value for _, labels in self.read() for _, value in labels}


@contextlib.asynccontextmanager
async def measured(access: Access | None = None, **plan: FakeUpstream | Unreachable) -> AsyncIterator[Measured]:
    found = Measured(Opener(**{name: [each] for name, each in plan.items()}), access)
    try:
        await found.client.initialize()
        await settled()
        yield found
    finally:
        await found.proxy.close()


async def test_a_call_is_measured_at_both_ends_under_the_servers_own_name() -> None:
    async with measured(a=FullUpstream()) as this:
        await this.client.call("a", "echo", {"text": "there"})
        await this.client.call("a", "a__echo", {"text": "there"})
        samples = this.read()

    assert sample(samples, SERVER, **ECHO) == sample(samples, CLIENT, **ECHO) == 2
    bounds = [float(dict(labels)["le"]) for name, labels in samples if name == SERVER.replace("count", "bucket")]
    assert bounds == [*BUCKETS, float("inf")]
    assert sample(samples, "dynamic_mcp_request_bytes_total", dynamic_mcp_group="a") > 100
    assert sample(samples, "dynamic_mcp_result_bytes_total", dynamic_mcp_group="a") > 80


async def test_prompts_and_resources_are_measured_and_a_uri_is_never_shown() -> None:
    async with measured(a=FullUpstream()) as this:
        prompts = (await this.client.request("prompts/list"))["result"]["prompts"]
        resources = (await this.client.request("resources/list"))["result"]["resources"]
        name, uri = prompts[0]["name"], resources[0]["uri"]
        await this.client.request("prompts/get", {"name": name, "arguments": {}})
        await this.client.request("resources/read", {"uri": uri})
        samples = this.read()

        assert sample(samples, SERVER, mcp_method_name="resources/read", dynamic_mcp_group="a") == 1
        assert any(dict(labels).get("gen_ai_prompt_name") == name.removeprefix("a__") for _, labels in samples)
        assert uri not in this.names()


async def test_a_search_is_measured_by_itself_and_is_no_call_of_a_server() -> None:
    async with measured(a=FullUpstream()) as this:
        asked = {"name": "get_dynamic_tools", "arguments": {"query": "echo"}}
        await this.client.request("tools/call", asked)
        samples = this.read()

    own = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "get_dynamic_tools"}
    assert sample(samples, "dynamic_mcp_search_duration_seconds_count") == 1
    assert sample(samples, SERVER, **own) == 1
    assert not any(name == CLIENT for name, _ in samples)


async def test_each_kind_of_failure_has_a_word_of_its_own() -> None:
    upstream = FakeUpstream({"tools/call": {**DONE, "isError": True}})
    async with measured(a=upstream, b=Unreachable("b", "no such program", final=True)) as this:
        await this.client.call("a", "echo")
        upstream.answers["tools/call"] = b'{"content":[],"isError":"perhaps"}'
        await this.client.call("a", "echo")
        await this.client.call("a", "ecco")
        await this.client.call("b", "echo")
        await this.client.request("invented/method")
        samples = this.read()

    assert sample(samples, SERVER, **ECHO, error_type="tool_error") == 1
    assert sample(samples, SERVER, **ECHO) == 1
    own = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "call_dynamic_tool"}
    assert sample(samples, SERVER, **own, error_type="NotFound") == 1
    assert sample(samples, SERVER, **own, dynamic_mcp_group="b", error_type="Unreachable") == 1
    assert sample(samples, SERVER, mcp_method_name="_other", error_type="-32601") == 1


async def test_the_code_of_a_server_counts_if_it_is_a_known_one() -> None:
    def answered(error: bytes) -> str:
        return read_answer("prompts/get", wire.parse(b'{"jsonrpc":"2.0","id":1,"error":%s}' % error)).label

    assert answered(b'{"code":-32602,"message":""}') == "-32602"
    for odd in (b'{"code":12345}', b'{"code":"-32602"}', b'{"code":[1]}', b"{}", b"[]", b"null", b'{"code":1e400}'):
        assert answered(odd) == "_OTHER"


async def test_a_cancelled_call_is_counted_as_such() -> None:
    upstream = FakeUpstream()
    async with measured(a=upstream) as this:
        arguments = {"group": "a", "name": "echo"}
        params = {"name": "call_dynamic_tool", "arguments": arguments}
        this.client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        await upstream.hears("tools/call")
        assert sample(this.read(), "dynamic_mcp_upstream_requests_in_flight", dynamic_mcp_group="a") == 1
        this.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        await settled()
        samples = this.read()

    assert sample(samples, SERVER, **ECHO, error_type="cancelled") == 1
    assert sample(samples, CLIENT, **ECHO, error_type="cancelled") == 1
    assert sample(samples, "dynamic_mcp_upstream_requests_in_flight", dynamic_mcp_group="a") == 0


async def test_a_request_to_several_groups_is_measured_for_each() -> None:
    """Its duration and its group are those of the group that was asked, and not of the one that was asked last."""
    async with measured(a=FullUpstream(), b=FullUpstream(), c=FullUpstream()) as this:
        await this.client.request("resources/read", {"uri": "unknown://nowhere"})
        samples = this.read()

    counts = [
        sum(count for (name, labels), count in samples.items() if name == CLIENT and (GROUP, group) in labels)
        for group in ("a", "b", "c")
    ]
    assert counts == [1, 1, 1]


async def test_decisions_are_counted_by_effect_and_what_is_hidden_is_not_decided() -> None:
    rules = (
        AccessRule("echo", servers=("a",), tools=("echo",)),
        AccessRule("no", Effect.DENY, servers=("a",), tools=("add",)),
        AccessRule("ask", Effect.ASK, servers=("a",), tools=("slow",)),
    )
    access = Access(roles={"all": rules}, people={LOCAL_NAME: ("all",)})
    async with measured(access, a=FakeUpstream({"tools/call": DONE}, tools=("echo", "add", "slow"))) as this:
        for tool in ("echo", "echo", "slow", "add"):
            await this.client.call("a", tool)
        samples = this.read()

    assert sample(samples, "dynamic_mcp_decisions_total", decision="allow") == 2
    assert sample(samples, "dynamic_mcp_decisions_total", decision="ask") == 1
    assert sum(count for (name, _), count in samples.items() if name == "dynamic_mcp_decisions_total") == 3


async def test_questions_to_a_person_are_counted_by_outcome() -> None:
    access = Access(roles={"all": (AccessRule("ask", Effect.ASK, servers=("a",)),)}, people={LOCAL_NAME: ("all",)})
    async with measured(access, a=FakeUpstream({"tools/call": DONE})) as this:
        assert this.proxy.approvals is not None
        assert sample(this.read(), "dynamic_mcp_approvals_pending") == 0
        await this.client.initialize(capabilities={"elicitation": {}})
        call = asyncio.create_task(this.client.call("a", "echo"))
        question = await this.client.hears("elicitation/create")
        assert sample(this.read(), "dynamic_mcp_approvals_pending") == 1
        await this.clock.pass_(READ_S)
        this.client.reply(question, {"action": "accept", "content": {"decision": "once"}})
        await call
        samples = this.read()

    assert sample(samples, "dynamic_mcp_approvals_pending") == 0
    assert sample(samples, "dynamic_mcp_approvals_total", outcome="allowed") == 1
    assert sample(samples, "dynamic_mcp_decisions_total", decision="ask") == 1


async def test_sessions_of_clients_and_of_servers_are_measured_when_they_end() -> None:
    upstream = FakeUpstream({"tools/call": DONE})
    client_sessions, server_sessions = "mcp_client_session_duration_seconds", "mcp_server_session_duration_seconds"
    async with measured(a=upstream) as this:
        await this.client.call("a", "echo")
        assert not any(name.startswith((client_sessions, server_sessions)) for name, _ in this.read())
        upstream.die()
        await settled()
        this.client.session.close()
        samples = this.read()

    assert sample(samples, f"{client_sessions}_count", dynamic_mcp_group="a") == 1
    assert sample(samples, f"{server_sessions}_count", network_transport="pipe") == 1
    assert sample(samples, f"{server_sessions}_sum", network_transport="pipe") < 300


async def test_a_client_of_a_stateless_revision_has_no_session_to_measure() -> None:
    async with measured(a=FakeUpstream({"tools/call": DONE})) as this:
        modern = ModernClient(this.proxy)
        await modern.request("tools/list")
        modern.session.close()
        assert not any(name.startswith("mcp_server_session") for name, _ in this.read())


async def test_a_server_that_crashes_and_comes_back_is_a_loss_and_a_restart() -> None:
    first, second = FakeUpstream({"tools/call": DONE}), FakeUpstream({"tools/call": DONE})
    this = Measured(Opener(a=[first, second]))
    try:
        await this.client.initialize()
        await this.client.call("a", "echo")
        first.die()
        await this.client.call("a", "echo")
        samples = this.read()
    finally:
        await this.proxy.close()

    told = [
        sample(samples, f"dynamic_mcp_upstream_{what}_total", dynamic_mcp_group="a")
        for what in ("connects", "losses", "restarts", "connect_failures")
    ]
    assert told == [2, 1, 1, 0]
    assert sample(samples, "dynamic_mcp_instances", dynamic_mcp_group="a", state="ready") == 1


async def test_a_server_that_cannot_be_reached_is_down_and_one_that_nobody_needs_is_up() -> None:
    async with measured(a=Unreachable("a", "no such program", final=True), b=FakeUpstream()) as this:
        await this.client.call("a", "echo")
        samples = this.read()

    assert sample(samples, "dynamic_mcp_upstream_up", dynamic_mcp_group="a") == 0
    assert sample(samples, "dynamic_mcp_upstream_up", dynamic_mcp_group="b") == 1
    assert sample(samples, "dynamic_mcp_upstream_connect_failures_total", dynamic_mcp_group="a") >= 1
    assert sample(samples, "dynamic_mcp_instances", dynamic_mcp_group="a", state="failed") == 1
    assert sample(samples, "dynamic_mcp_sessions", transport="stdio", era="legacy") == 1
    assert sample(samples, "dynamic_mcp_tools", dynamic_mcp_group="b") == 1


async def test_counts_of_links_go_on_when_a_reload_replaces_the_group() -> None:
    async with measured(a=FakeUpstream({"tools/call": DONE})) as this:
        await this.client.call("a", "echo")
        changed = replace(group_config("a"), upstream=replace(group_config("a").upstream, args=("--new",)))
        this.proxy.apply(config_of(changed))
        await this.client.call("a", "echo")
        assert sample(this.read(), "dynamic_mcp_upstream_connects_total", dynamic_mcp_group="a") == 2


async def test_requests_that_wait_for_a_free_place_are_queued() -> None:
    upstream = FakeUpstream()
    this = Measured(Opener(a=[upstream]))
    this.proxy.apply(config_of(group_config("a", concurrency=1)))
    try:
        await this.client.initialize()
        calls = [asyncio.create_task(this.client.call("a", "echo")) for _ in range(3)]
        await upstream.hears("tools/call")
        await settled()
        samples = this.read()
        for each in calls:
            each.cancel()
    finally:
        await this.proxy.close()

    assert sample(samples, "dynamic_mcp_upstream_requests_in_flight", dynamic_mcp_group="a") == 1
    assert sample(samples, "dynamic_mcp_upstream_requests_queued", dynamic_mcp_group="a") == 2


async def test_results_that_are_kept_are_measured() -> None:
    long = {"content": [{"type": "text", "text": "x" * 200_000}]}
    async with measured(a=FakeUpstream({"tools/call": long})) as this:
        await this.client.call("a", "echo")
        samples = this.read()

    assert sample(samples, "dynamic_mcp_stored_results") == 1
    assert sample(samples, "dynamic_mcp_stored_result_characters") == 200_000


@pytest.mark.parametrize("name", ["", "x" * 129, "line\nbreak", "bell\a", "e\u202ecrab"])
async def test_a_name_that_cannot_be_shown_is_other(name: str) -> None:
    async with measured(a=FakeUpstream({"tools/call": DONE}, tools=("echo", name))) as this:
        await this.client.call("a", name)
        assert name not in this.names() - {""}


async def test_nothing_that_a_client_makes_up_becomes_a_label() -> None:
    async with measured(a=FakeUpstream({"tools/call": DONE})) as this:
        await this.client.call("a", "made up tool", {"secret": "made up"})
        await this.client.call("made up group", "echo")
        await this.client.request("tools/call", {"name": "made up", "arguments": {"query": "made up"}})
        await this.client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"query": "made up"}})
        await this.client.request("prompts/get", {"name": "made up"})
        await this.client.request("resources/read", {"uri": "made://up"})
        await this.client.request("made up/method", {"name": "made up"})
        assert not any("made" in each for each in this.names())


async def test_a_server_with_thousands_of_tools_does_not_make_thousands_of_lines() -> None:
    tools = [f"t{number}" for number in range(MAX_DISTRIBUTIONS + 50)]
    async with measured(a=FakeUpstream({"tools/call": DONE}, tools=tools)) as this:
        for name in tools:
            await this.client.call("a", name)
        samples = this.read()

    assert sample(samples, CLIENT, **{**ECHO, "gen_ai_tool_name": "_other", "dynamic_mcp_group": "_other"}) == 50
    assert sum(name == CLIENT for name, _ in samples) == MAX_DISTRIBUTIONS + 1
