"""A resource keeps its URI, belongs to one group, and comes back as its upstream sent it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import quote

import pytest

from dynamic_mcp.config.resolved import Features
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.proxy.proxy import Proxy
from tests.fake_parties import OtherReplicas
from tests.fakes import (
    Client,
    FakeUpstream,
    FullUpstream,
    Json,
    Opener,
    client_of,
    config_of,
    group_config,
    part,
    settled,
)
from tests.upstreams import full_offers as offers

NO_RESOURCES = Features(tools=True, resources=False, prompts=True)
TEXT_OF_B = f"dynamic-mcp://b/{quote('full://text', safe='')}"


def _with_resources(*uris: str, **answers: Json) -> FakeUpstream:
    """Return an upstream that lists these resources, and answers what it is told to."""
    return FakeUpstream(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {"subscribe": True}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "resources/list": {"resources": [{"uri": uri, "name": "r"} for uri in uris]},
            "resources/templates/list": {"resourceTemplates": []},
            **{f"resources/{name}": answer for name, answer in answers.items()},
        }
    )


def _refuse(upstream: FakeUpstream, request: Mapping[str, Json]) -> None:
    upstream.say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32002, "message": "not here"}})


def _answer(upstream: FakeUpstream, request: Mapping[str, Json], result: Json) -> None:
    upstream.say({"jsonrpc": "2.0", "id": request["id"], "result": result})


async def _listed(client: Client, method: str = "resources/list") -> list[dict[str, Json]]:
    result = (await client.request(method))["result"]
    entries: list[dict[str, Json]] = result["resources" if method == "resources/list" else "resourceTemplates"]
    return entries


async def _read(client: Client, uri: str) -> bytes:
    """Read a resource and return the result's bytes."""
    return part(await client.exchange("resources/read", {"uri": uri}), "result")


def _readable(upstream: FullUpstream, uri: str) -> bytes:
    return upstream.server.filled(offers.READABLE[uri])


# --- lists and owners ----------------------------------------------------------------------------------


async def test_every_kind_of_resource_is_read_as_the_bytes_that_its_server_sent() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        for uri in offers.READABLE:
            written = upstream.server.filled(uri.encode()).decode()
            assert await _read(client, written) == _readable(upstream, uri)


async def test_an_identical_uri_of_a_later_group_is_listed_by_its_group_and_both_are_read() -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        uris = [entry["uri"] for entry in await _listed(client)]

        assert uris.count("full://text") == 1
        assert TEXT_OF_B in uris
        assert await _read(client, "full://text") == _readable(a, "@scheme@://text")
        assert await _read(client, TEXT_OF_B) == _readable(b, "@scheme@://text")
        assert (await b.hears("resources/read"))["params"]["uri"] == "full://text"
        # each group's resources, in config order
        assert uris.index("full://a/only") < uris.index(TEXT_OF_B) < uris.index("full://b/only")


async def test_what_is_listed_by_its_group_changes_in_nothing_but_the_uri() -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        entries = {entry["uri"]: entry for entry in await _listed(client)}
        first, renamed = entries["full://text"], entries[TEXT_OF_B]

        assert renamed | {"uri": "full://text"} == first | {"description": "Text of b"}
        assert list(renamed) == list(first)


async def test_a_group_may_be_named_even_for_a_uri_that_is_its_own() -> None:
    a = FullUpstream(name="a")
    async with client_of(Opener(a=[a])) as client:
        await client.initialize()
        named = f"dynamic-mcp://a/{quote('full://café/a%20b', safe='')}"
        assert await _read(client, named) == _readable(a, "@scheme@://café/a%20b")


async def test_a_uri_that_a_template_makes_goes_to_the_first_group_with_such_a_template() -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        item = json.loads(await _read(client, "full://item/7"))
        files = json.loads(await _read(client, "full://b/files/x/y?rev=2"))

        assert item["contents"] == [{"text": "a", "uri": "full://item/7", "x-item": 1.0}]
        assert files["contents"][0]["text"] == "b"
        assert [len(each.heard("resources/read")) for each in (a, b)] == [1, 1]


async def test_a_group_that_lists_a_uri_comes_before_one_whose_template_matches_it() -> None:
    a, b = FullUpstream(name="a"), _with_resources("full://item/7", read={"contents": []})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await _listed(client)
        assert await _read(client, "full://item/7") == b'{"contents": []}'
        assert a.heard("resources/read") == []


# --- what nobody lists -----------------------------------------------------------------------------------


async def test_an_unlisted_uri_is_read_from_the_group_that_has_it() -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        assert await _read(client, "full://hidden/b") == _readable(b, "@scheme@://hidden/@name@")
        assert len(a.heard("resources/read")) == 1


async def test_of_two_groups_that_have_an_unlisted_uri_the_earlier_one_counts_though_it_answers_later() -> None:
    a, b = _with_resources(), _with_resources()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        reading = asyncio.create_task(_read(client, "x://hidden"))
        _answer(b, await b.hears("resources/read"), "of b")
        await settled()
        _answer(a, await a.hears("resources/read"), "of a")

        assert await reading == b'"of a"'


async def test_an_earlier_group_that_does_not_answer_is_not_waited_for_long_and_is_told_so() -> None:
    a, b = _with_resources(), _with_resources(read="of b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        assert await _read(client, "x://hidden") == b'"of b"'
        asked = a.heard("resources/read")[0]
        assert (await a.hears("notifications/cancelled"))["params"]["requestId"] == asked["id"]


async def test_a_group_that_dies_over_an_unlisted_uri_does_not_hide_one_that_has_it() -> None:
    a, b = _with_resources(), _with_resources()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        reading = asyncio.create_task(_read(client, "x://hidden"))
        await a.hears("resources/read")
        a.die()
        _answer(b, await b.hears("resources/read"), "of b")
        assert await reading == b'"of b"'


async def test_a_uri_that_no_group_has_is_not_found() -> None:
    a, b = _with_resources(), _with_resources()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        reading = asyncio.create_task(client.request("resources/read", {"uri": "x://nowhere"}))
        for upstream in (a, b):
            _refuse(upstream, await upstream.hears("resources/read"))
        error = (await reading)["error"]
        assert error["code"] == -32002
        assert "x://nowhere" in error["message"]


async def test_where_one_group_alone_could_know_a_uri_its_own_error_is_the_answer() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        line = await client.exchange("resources/read", {"uri": "x://nowhere"})
        uri = b'"x://nowhere"'
        assert part(line, "error") == upstream.server.filled(offers.NOT_READABLE, uri=uri)


async def test_a_group_without_resources_is_not_asked_for_any() -> None:
    without, b = FullUpstream(without=("resources",)), FullUpstream(name="b")
    async with client_of(Opener(a=[without], b=[b])) as client:
        await client.initialize()
        await _listed(client)
        await _read(client, "full://hidden/b")
        assert not [message for message in without.sent if message.get("method", "").startswith("resources/")]


@pytest.mark.parametrize("params", [{}, {"uri": 7}, {"uri": ""}, None])
@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "resources/unsubscribe"])
async def test_a_request_without_a_uri_is_refused(method: str, params: Json) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        assert (await client.request(method, params))["error"]["code"] == -32602


# --- subscriptions -----------------------------------------------------------------------------------------


async def _update(upstream: FullUpstream, client: Client, group: str, uri: str) -> str:
    """Let a server say that a resource was updated; returns what it knows to be subscribed."""
    result = await client.call(group, "update", {"uri": uri})
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("written", ["full://text", TEXT_OF_B.replace("//b", "//a"), TEXT_OF_B])
async def test_an_update_comes_with_the_uri_that_the_client_wrote_and_all_else_as_it_was(written: str) -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        group, upstream = ("b", b) if "//b" in written else ("a", a)

        subscribed = await client.exchange("resources/subscribe", {"uri": written})
        assert part(subscribed, "result") == b'{"_meta":{"x-subscribed":1.0}}'
        await _update(upstream, client, group, "full://text")
        line = await client.line(lambda message: message.get("method") == "notifications/resources/updated")

        assert part(line, "params") == b'{"x-first":1.0,"uri":%s,"x-last":2}' % json.dumps(written).encode()
        assert len(client.heard("notifications/resources/updated")) == 1


async def test_an_update_that_follows_the_answer_at_once_arrives() -> None:
    upstream = _with_resources("x://a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        subscribing = asyncio.create_task(client.request("resources/subscribe", {"uri": "x://a"}))
        _answer(upstream, await upstream.hears("resources/subscribe"), {})
        upstream.say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x://a"}})

        assert (await subscribing)["result"] == {}
        await client.hears("notifications/resources/updated")


async def test_an_update_of_a_part_of_what_is_subscribed_arrives_as_it_is() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await client.request("resources/subscribe", {"uri": "full://text"})
        await _update(upstream, client, "a", "full://text/part")
        updated = await client.hears("notifications/resources/updated")
        assert updated["params"]["uri"] == "full://text/part"


async def test_an_update_of_what_nobody_subscribed_to_reaches_nobody() -> None:
    upstream = _with_resources("x://a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await _listed(client)
        upstream.say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x://a"}})
        await settled()
        assert client.heard("notifications/resources/updated") == []


async def test_a_server_that_crashed_is_subscribed_to_again() -> None:
    first, second = FullUpstream(), FullUpstream()
    async with client_of(Opener(a=[first, second])) as client:
        await client.initialize()
        await client.request("resources/subscribe", {"uri": "full://text"})
        first.die()
        await client.call("a", "echo", {"text": "wake up"})

        assert (await second.hears("resources/subscribe"))["params"] == {"uri": "full://text"}
        await _update(second, client, "a", "full://text")
        await client.hears("notifications/resources/updated")


async def test_after_unsubscribing_the_server_has_nothing_to_tell_nor_has_its_successor() -> None:
    first, second = FullUpstream(), FullUpstream()
    async with client_of(Opener(a=[first, second])) as client:
        await client.initialize()
        for uri in ("full://text", "full://blob"):
            await client.request("resources/subscribe", {"uri": uri})
        line = await client.exchange("resources/unsubscribe", {"uri": "full://text"})
        assert part(line, "result") == b'{"_meta":{"x-unsubscribed":1.0}}'
        assert await _update(first, client, "a", "full://text") == "full://blob"

        first.die()
        await client.call("a", "echo", {"text": "wake up"})
        await second.hears("resources/subscribe")
        await settled()

        assert [each["params"]["uri"] for each in second.heard("resources/subscribe")] == ["full://blob"]
        assert client.heard("notifications/resources/updated") == []


async def test_a_subscription_that_the_server_refuses_is_not_repeated() -> None:
    first, second = FullUpstream(refuse=("resources/subscribe",)), FullUpstream()
    async with client_of(Opener(a=[first, second])) as client:
        await client.initialize()
        line = await client.exchange("resources/subscribe", {"uri": "full://text"})
        assert part(line, "error", "code") == b"-32603"
        first.die()
        await client.call("a", "echo", {"text": "wake up"})
        await settled()
        assert second.heard("resources/subscribe") == []


async def test_what_is_nowhere_cannot_be_subscribed_to() -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        answer = await client.request("resources/subscribe", {"uri": "x://nowhere"})
        assert answer["error"]["code"] == -32002


# --- switched off, and down --------------------------------------------------------------------------------


async def test_resources_that_are_switched_off_are_absent_and_a_direct_request_says_so() -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    configs = group_config("a"), group_config("b", features=NO_RESOURCES)
    async with client_of(Opener(a=[a], b=[b]), *configs) as client:
        await client.initialize()
        assert {entry["uri"].partition("//")[2].partition("/")[0] for entry in await _listed(client)} == {
            "text",
            "blob",
            "café",
            "a",
        }
        for method in ("resources/read", "resources/subscribe"):
            error = (await client.request(method, {"uri": TEXT_OF_B}))["error"]
            assert error["code"] == -32601
            assert "the resources feature is disabled for group `b`" in error["message"]
        assert (await client.request("resources/read", {"uri": "full://hidden/b"}))["error"]["code"] == -32002
        assert not [message for message in b.sent if message.get("method", "").startswith("resources/")]


async def test_a_group_that_is_not_there_is_named() -> None:
    async with client_of(Opener(git=[FullUpstream()])) as client:
        await client.initialize()
        error = (await client.request("resources/read", {"uri": "dynamic-mcp://gti/x"}))["error"]
        assert error["code"] == -32602
        assert "`git`" in error["message"]


async def test_the_resources_of_a_group_that_is_down_stay_listed_and_reading_one_says_why_not() -> None:
    first = FullUpstream()
    async with client_of(Opener(a=[first, Unreachable("a", "the command was not found")])) as client:
        await client.initialize()
        before = await _listed(client)
        first.die("it burned down")
        assert await _listed(client) == before
        error = (await client.request("resources/read", {"uri": "full://text"}))["error"]
        assert "it burned down" in error["message"]


# --- replicas ------------------------------------------------------------------------------------------


async def test_at_a_replica_that_knows_only_the_second_group_a_uri_of_both_is_that_of_the_first() -> None:
    first, second = (
        _with_resources("x://same", read={"contents": [{"uri": "x://same", "text": name}]}) for name in "ab"
    )
    listed = first.answers.pop("resources/list")
    proxy = Proxy(config_of(group_config("a"), group_config("b")), opener=Opener(a=[first], b=[second]))
    proxy.join_replicas(OtherReplicas())
    try:
        client = Client(proxy)
        await client.initialize()
        await (
            proxy.view_for(client.session).group("b", "resources").learn_catalog(client.session, [ListKind.RESOURCES])
        )
        reading = asyncio.create_task(_read(client, "x://same"))
        await settled()
        _answer(first, await first.hears("resources/list"), listed)
        assert b'"a"' in await reading, "another replica has listed it as that of the first group"
    finally:
        await proxy.close()
