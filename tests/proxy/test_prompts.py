"""A prompt is listed under its group's name, found by either name, and comes back as its upstream sent it."""

from __future__ import annotations

import json
import re

import pytest

from dynamic_mcp.config.resolved import Features
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, group_config, part
from tests.upstreams import full_offers as offers

NO_PROMPTS = Features(tools=True, resources=True, prompts=False)


def _with_prompts(*names: str) -> FakeUpstream:
    """Return an upstream with these prompts, which answers `prompts/get` with the name that it was asked for."""
    upstream = FakeUpstream(
        {
            "prompts/list": {"prompts": [{"name": name} for name in names]},
            "prompts/get": lambda params: {"description": params["name"], "messages": []},
        }
    )
    upstream.answers["initialize"]["capabilities"] = {"prompts": {}}
    return upstream


async def _names(client: Client) -> list[str]:
    listed = await client.request("prompts/list")
    return [prompt["name"] for prompt in listed["result"]["prompts"]]


async def _got(client: Client, name: str) -> str:
    """Return under which name the upstream was asked for a prompt."""
    answer = await client.request("prompts/get", {"name": name})
    description: str = answer["result"]["description"]
    return description


# --- names ---------------------------------------------------------------------------------------------


async def test_prompts_are_listed_and_found_behind_their_groups_names() -> None:
    opener = Opener(git=[_with_prompts("review", "release")], web=[_with_prompts("review")])
    async with client_of(opener) as client:
        await client.initialize()
        assert await _names(client) == ["git__review", "git__release", "web__review"]
        assert await _got(client, "web__review") == "review"
        assert await _got(client, "git__release") == "release"


async def test_the_plain_name_is_enough_while_it_is_unique() -> None:
    opener = Opener(git=[_with_prompts("review", "release")], web=[_with_prompts("review")])
    async with client_of(opener) as client:
        await client.initialize()
        assert await _got(client, "release") == "release"

        error = (await client.request("prompts/get", {"name": "review"}))["error"]
        assert error["code"] == -32602
        assert "`git__review` or `web__review`" in error["message"]


async def test_a_prompt_is_found_before_any_list_was_asked_for() -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        line = await client.exchange("prompts/get", {"name": "only_b"})
        assert part(line, "result", "description") == b'"by b"'


async def test_a_name_that_clients_do_not_take_is_listed_in_a_short_form_that_leads_back() -> None:
    odd = [offers.LONG_PROMPT + "1", offers.LONG_PROMPT + "2", "with space", "with_space", "日本語", "x" * 64]
    async with client_of(Opener(git=[_with_prompts(*odd)])) as client:
        await client.initialize()
        listed = await _names(client)
        assert len(set(listed)) == len(odd)
        assert all(re.fullmatch(r"git__[A-Za-z0-9_-]{1,59}", name) for name in listed)
        assert [await _got(client, name) for name in listed] == odd


async def test_the_short_form_does_not_depend_on_what_else_is_there() -> None:
    async with client_of(Opener(git=[_with_prompts("with space", "more")])) as client:
        await client.initialize()
        alone = await _names(client)
    opener = Opener(web=[_with_prompts("with space")], git=[_with_prompts("other", "more", "with space")])
    async with client_of(opener) as client:
        await client.initialize()
        assert set(alone) < set(await _names(client))


async def test_two_prompts_that_would_be_listed_alike_are_told_apart() -> None:
    async with client_of(Opener(a=[_with_prompts("b__c")], a__b=[_with_prompts("c")])) as client:
        await client.initialize()
        first, second = await _names(client)
        assert re.fullmatch(r"a__b__c_[0-9a-f]{8}", first)
        assert second == "a__b__c"
        assert [await _got(client, first), await _got(client, second)] == ["b__c", "c"]


async def test_a_listed_name_comes_before_a_plain_one() -> None:
    async with client_of(Opener(a=[_with_prompts("p")], b=[_with_prompts("a__p")])) as client:
        await client.initialize()
        assert await _names(client) == ["a__p", "b__a__p"]
        assert await _got(client, "a__p") == "p"


async def test_a_name_that_nothing_has_gets_the_closest_ones() -> None:
    async with client_of(Opener(git=[_with_prompts("review")])) as client:
        await client.initialize()
        error = (await client.request("prompts/get", {"name": "git_revew"}))["error"]
        assert error["code"] == -32602
        assert "`git__review`" in error["message"]


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": ""}, None])
async def test_a_request_without_a_name_is_refused(params: Json) -> None:
    async with client_of(Opener(git=[_with_prompts("review")])) as client:
        await client.initialize()
        assert (await client.request("prompts/get", params))["error"]["code"] == -32602


# --- what comes back -------------------------------------------------------------------------------------


async def test_every_kind_of_content_comes_back_as_the_bytes_that_were_sent() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        params = {"name": "a__greet", "arguments": {"city": "Köln \ud83d", "style": "odd"}}
        line = await client.exchange("prompts/get", params)
        greeting = json.dumps("Hello Köln \ud83d").encode()
        assert part(line, "result") == upstream.server.filled(
            offers.PROMPT, greeting=greeting, more=offers.ODD_MESSAGE
        )


async def test_arguments_and_vendor_fields_reach_the_upstream_as_they_were_written() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        rest = (
            b'"arguments":{"city": "K\\u00f6ln","n":1E2,"twice":1,"twice":2},"x-vendor":{"z":1, "a":%s}' % offers.LONG
        )
        await client.exchange("prompts/get", b'{"name":"a__greet",%s}' % rest)
        await client.exchange("prompts/get", b'{"name":"greet",%s}' % rest)

        [renamed, plain] = [line for line in upstream.lines if b'"prompts/get"' in line]
        assert part(renamed, "params") == part(plain, "params") == b'{"name":"greet",%s}' % rest


async def test_the_error_of_an_upstream_is_the_answer() -> None:
    upstream = FullUpstream(name="a", refuse=("prompts/get",))
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        line = await client.exchange("prompts/get", {"name": "greet"})
        assert part(line, "error") == b'{"x-first":1,"code":-32603,"message":"prompts/get is out of order"}'


# --- switched off, and down --------------------------------------------------------------------------------


async def test_prompts_that_are_switched_off_are_absent_and_a_direct_request_says_so() -> None:
    b = _with_prompts("review", "own")
    configs = group_config("a"), group_config("b", features=NO_PROMPTS)
    async with client_of(Opener(a=[_with_prompts("review")], b=[b]), *configs) as client:
        await client.initialize()
        assert await _names(client) == ["a__review"]
        assert await _got(client, "review") == "review"
        error = (await client.request("prompts/get", {"name": "b__own"}))["error"]
        assert (error["code"], error["message"]) == (-32601, "the prompts feature is disabled for group `b`")
        assert (await client.request("prompts/get", {"name": "own"}))["error"]["code"] == -32602
        assert [message for message in b.sent if message["method"].startswith("prompts/")] == []


async def test_a_prompt_of_a_server_that_died_is_there_again_with_the_next_request() -> None:
    async with client_of(Opener(a=[(first := _with_prompts("p")), _with_prompts("p")])) as client:
        await client.initialize()
        assert await _got(client, "a__p") == "p"
        first.die()
        assert await _names(client) == ["a__p"]
        assert await _got(client, "a__p") == "p"
