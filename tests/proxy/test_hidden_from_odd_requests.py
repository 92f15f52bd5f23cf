"""Requests that servers may read in another way than we do reach nothing that is hidden."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.config.access import AccessRule, Effect
from tests.fakes import BOUND_S
from tests.proxy.governed import EVERYTHING, Asker, Plan, World

# The names in this world that are hidden, as they would stand in a line to an upstream.
HIDDEN = (b"x://shared", b"delete_x", b"b__hi", b"y://")
PLAN = Plan(
    (AccessRule("a", Effect.DENY, ("*",), ("delete_x",), ("b__hi",), ("x://shared", "y://*")),),
    default=Effect.ALLOW,
)
REFERENCES = (
    '{"type":"ref/prompt","name":["b__hi"]}',
    '{"type":"ref/resource","uri":["x://shared"]}',
    '{"type":"ref/prompt","name":"greet","name":"b__hi"}',
    '{"type":"ref/prompt","name":"b__hi","name":"greet"}',
    '{"type":"ref/prompt","name":"greet","Name":"b__hi"}',
    '{"type":"ref/resource","uri":"x://shared","uri":"x://a/one"}',
    '{"type":"ref/resource","uri":"x://a/one","uri":"x://shared"}',
    '{"type":["ref/prompt"],"name":"b__hi","uri":"x://a/one"}',
    '["ref/prompt","b__hi"]',
)


async def _ask(world: World, only: str | None, method: str, params: str) -> bytes:
    client: Asker = world.join(only=only)
    await client.initialize()
    await client.ask("tools/list", {})
    for server in world.servers.values():
        server.lines.clear()
    async with asyncio.timeout(2 * BOUND_S):
        return await client.ask_raw(method, params.encode())


@pytest.mark.parametrize("only", [None, "a"], ids=["all groups", "one group"])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", '{"uri":["x://shared"]}'),
        ("resources/subscribe", '{"uri":["x://shared"]}'),
        ("resources/read", '{"uri":{"x":"x://shared"}}'),
        ("resources/read", '{"uri":"x://a/one","uri":"x://shared"}'),
        ("resources/read", '{"uri":"x://shared","uri":"x://a/one"}'),
        ("resources/read", '{"uri":"x://a/one","URI":"x://shared"}'),
        ("prompts/get", '{"name":["b__hi"]}'),
        ("prompts/get", '{"name":"greet","name":"b__hi"}'),
        ("tools/call", '{"name":["delete_x"],"arguments":{}}'),
        ("tools/call", '{"name":"read_x","name":"delete_x","arguments":{}}'),
        ("tools/call", '{"name":"read_x","Name":"delete_x","arguments":{}}'),
        ("prompts/get", '{"name":"greet","NAME":"b__hi"}'),
        *(("completion/complete", f'{{"ref":{each},"argument":{{"name":"n","value":"v"}}}}') for each in REFERENCES),
        ("vendor/read", '{"uri":"x://shared"}'),
        ("tasks/get", '{"taskId":["delete_x"]}'),
    ],
)
async def test_an_odd_request_reaches_nothing_hidden(only: str | None, method: str, params: str) -> None:
    world = World(PLAN, EVERYTHING)
    try:
        await _ask(world, only, method, params)
        sent = [line for server in world.servers.values() for line in server.lines]
        assert [line for line in sent if any(name in line for name in HIDDEN)] == []
    finally:
        await world.proxy.close()
