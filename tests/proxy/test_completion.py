"""Completion goes to the group that owns the prompt or the template, and comes back as it was sent."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from dynamic_mcp.config.resolved import Features
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, group_config, part, settled
from tests.upstreams import full_offers as offers

ARGUMENT = {"name": "city", "value": "K"}


def _prompt(name: str) -> Json:
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": ARGUMENT}


def _resource(uri: str) -> Json:
    return {"ref": {"type": "ref/resource", "uri": uri}, "argument": ARGUMENT}


async def _completed(client: Client, params: Json) -> list[str]:
    """Return the values: who completed, and what."""
    answer = await client.request("completion/complete", params)
    values: list[str] = answer["result"]["completion"]["values"]
    return values


@pytest.mark.parametrize("name", ["b__only_b", "only_b"])
async def test_a_prompts_argument_is_completed_by_the_prompts_owner_under_its_own_name(name: str) -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        assert await _completed(client, _prompt(name)) == ["b", "only_b K"]


@pytest.mark.parametrize(
    ("uri", "values"),
    [
        ("full://b/files{/path*}{?rev}", ["b", "full://b/files{/path*}{?rev} K"]),
        ("full://item/{id}", ["a", "full://item/{id} K"]),
        ("full://b/only", ["b", "full://b/only K"]),
        ("full://b/files/x", ["b", "full://b/files/x K"]),
        (f"dynamic-mcp://b/{quote('full://text', safe='')}", ["b", "full://text K"]),
    ],
    ids=["its template", "a template of both", "its resource", "made by its template", "named by its group"],
)
async def test_a_templates_variable_is_completed_by_the_templates_owner(uri: str, values: list[str]) -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        assert await _completed(client, _resource(uri)) == values


async def test_the_result_is_the_bytes_that_were_sent_and_so_is_the_context_of_the_request() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        rest = b'"argument":{"value":"\\u00e4","name":"city"},"context":{"x":1.0,"twice":1,"twice":2},"x-v":[ ]'
        ref = b'{"x-first":%s,"type":"ref/prompt","name":"%%s","title":"t"}' % offers.LONG
        line = await client.exchange("completion/complete", b'{"ref":%s,%s}' % (ref % b"a__greet", rest))

        values = {"value": json.dumps("greet ä").encode()}
        assert part(line, "result") == upstream.server.filled(offers.COMPLETION, **values)
        [sent] = [line for line in upstream.lines if b'"completion/complete"' in line]
        assert part(sent, "params") == b'{"ref":%s,%s}' % (ref % b"greet", rest)


async def test_who_is_known_to_own_it_completes_while_another_group_hangs() -> None:
    hanging = FakeUpstream()
    del hanging.answers["initialize"]
    async with client_of(Opener(a=[hanging], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        await client.request("resources/templates/list", {"group": "b"})
        for id, params in enumerate((_prompt("only_b"), _resource("full://item/{id}"))):
            client.send({"jsonrpc": "2.0", "id": id, "method": "completion/complete", "params": params})
        await settled()  # no time passes: nobody is waited for
        answers = {message["id"]: message for message in map(json.loads, client.lines) if "id" in message}
        assert [answers[id]["result"]["completion"]["values"][0] for id in (0, 1)] == ["b", "b"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (_prompt("nothing"), -32602),
        (_resource("x://nothing/{id}"), -32002),
        ({"ref": {"type": "ref/tool", "name": "echo"}, "argument": ARGUMENT}, -32602),
        ({"ref": {"type": "ref/prompt"}, "argument": ARGUMENT}, -32602),
        ({"ref": "greet", "argument": ARGUMENT}, -32602),
        ({"argument": ARGUMENT}, -32602),
        (None, -32602),
    ],
    ids=["no such prompt", "no such template", "another type", "no name", "no object", "no ref", "nothing"],
)
async def test_what_nobody_owns_is_refused(params: Json, code: int) -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")])) as client:
        await client.initialize()
        assert (await client.request("completion/complete", params))["error"]["code"] == code


async def test_a_feature_that_is_switched_off_is_not_completed_either() -> None:
    off = group_config("b", features=Features(tools=True, resources=False, prompts=False))
    opener = Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])
    async with client_of(opener, group_config("a"), off) as client:
        await client.initialize()
        for params in (_prompt("b__only_b"), _resource("dynamic-mcp://b/x")):
            error = (await client.request("completion/complete", params))["error"]
            assert error["code"] == -32601
            assert "feature is disabled for group `b`" in error["message"]


async def test_a_server_that_does_not_complete_says_so_itself() -> None:
    async with client_of(Opener(a=[FullUpstream(without=("completions",))])) as client:
        await client.initialize()
        line = await client.exchange("completion/complete", _prompt("greet"))
        assert part(line, "error") == b'{"x-first":1,"code":-32601,"message":"method not found"}'
