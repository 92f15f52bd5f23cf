"""Arguments that can be read in two ways are refused; what JSON Schema takes passes."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.config.resolved import CallHandling
from tests.fakes import FakeUpstream, Json, Opener, client_of, group_config, text_of, tool

JUDGED: Json = {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"type": "object"}}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


def _upstream(schema: Json) -> FakeUpstream:
    return FakeUpstream({"tools/list": {"tools": [tool("log", inputSchema=schema)]}, "tools/call": DONE})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (b'{"group":"git","group":"zoo","name":"log","args":{}}', "group"),
        (b'{"group":"git","name":"log","args":{"n":1,"n":2}}', "n"),
        (b'{"group":"git","name":"log","args":{"o":{"x":1,"x":1}}}', "x"),
        (b'{"group":"git","name":"log","args":"{\\"n\\":1,\\"n\\":2}"}', "n"),
        (b'{"group":"git","name":"log","n":3,"args":{"o":{},"o":{}}}', "o"),
    ],
)
async def test_a_name_that_is_given_twice_is_refused(arguments: bytes, name: str) -> None:
    upstream = _upstream(JUDGED)
    async with client_of(Opener(git=[upstream]), group_config("git")) as client:
        await client.initialize()

        answer = await client.request("tools/call", b'{"name":"call_dynamic_tool","arguments":%s}' % arguments)

        assert answer["result"]["isError"] is True
        assert f"`{name}` is given twice" in text_of(answer["result"])
        assert upstream.heard("tools/call") == []


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-04/schema#"}])
@pytest.mark.parametrize("more", [{}, {"minimum": 0}])
async def test_a_whole_number_with_a_point_is_an_integer_and_passes_as_it_is(dialect: Json, more: Json) -> None:
    upstream = _upstream({"type": "object", "properties": {"n": {"type": "integer", **more}}, **dialect})
    strict = group_config("git", answers=CallHandling(validate="strict", limit=1000, compact=False))
    async with client_of(Opener(git=[upstream]), strict) as client:
        await client.initialize()

        assert await client.call("git", "log", {"n": 1.0}) == DONE
        assert await client.call("git", "log", {"n": "1.0"}) != DONE  # put right, which is noted

        assert [json.dumps(each["params"]["arguments"]) for each in upstream.heard("tools/call")] == [
            '{"n": 1.0}'
        ] * 2
        assert (await client.call("git", "log", {"n": 1.5}))["isError"] is True
