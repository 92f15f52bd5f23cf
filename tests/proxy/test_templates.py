"""A template that two groups have is listed once for each, and leads to the group it is listed for."""

from __future__ import annotations

import json

import pytest

from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, part

OF_B = "dynamic-mcp://b/full://item/{id}"


async def _templates(client: Client) -> list[dict[str, Json]]:
    entries: list[dict[str, Json]] = (await client.request("resources/templates/list"))["result"]["resourceTemplates"]
    return entries


async def _item(client: Client, uri: str) -> Json:
    return json.loads(part(await client.exchange("resources/read", {"uri": uri}), "result"))["contents"][0]


def _two_of_a_kind() -> Opener:
    return Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])


async def test_the_same_template_of_a_later_group_is_listed_by_its_group() -> None:
    async with client_of(_two_of_a_kind()) as client:
        await client.initialize()
        entries = {entry["uriTemplate"]: entry for entry in await _templates(client)}

        assert len(entries) == len(await _templates(client))
        assert entries[OF_B] | {"uriTemplate": "full://item/{id}"} == entries["full://item/{id}"]


async def test_a_list_of_one_group_names_a_template_as_the_list_of_all_does() -> None:
    async with client_of(_two_of_a_kind()) as client:
        await client.initialize()
        answer = await client.request("resources/templates/list", {"group": "b"})
        assert OF_B in [entry["uriTemplate"] for entry in answer["result"]["resourceTemplates"]]


@pytest.mark.parametrize("id", ["7", "a%2Fb%20c", "caf%C3%A9"])
async def test_what_each_template_makes_is_read_from_its_own_group_as_it_was_written(id: str) -> None:
    b = FullUpstream(name="b")
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[b])) as client:
        await client.initialize()
        assert (await _item(client, f"full://item/{id}"))["text"] == "a"
        assert (await _item(client, f"dynamic-mcp://b/full://item/{id}"))["text"] == "b"
        assert (await b.hears("resources/read"))["params"]["uri"] == f"full://item/{id}"


async def test_each_template_is_completed_by_its_own_group_under_its_own_uri() -> None:
    async with client_of(_two_of_a_kind()) as client:
        await client.initialize()
        for uri, values in (("full://item/{id}", "a"), (OF_B, "b")):
            ref = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "id", "value": "K"}}
            answer = await client.request("completion/complete", ref)
            assert answer["result"]["completion"]["values"] == [values, "full://item/{id} K"]


async def test_an_update_of_what_a_later_groups_template_made_comes_under_the_uri_that_was_subscribed_to() -> None:
    b = FullUpstream(name="b")
    written = "dynamic-mcp://b/full://item/a%20b"
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[b])) as client:
        await client.initialize()
        await client.request("resources/subscribe", {"uri": written})
        assert (await b.hears("resources/subscribe"))["params"]["uri"] == "full://item/a%20b"
        b.say(
            {
                "jsonrpc": "2.0",
                "method": "notifications/resources/updated",
                "params": {"uri": "full://item/a%20b"},
            }
        )
        assert (await client.hears("notifications/resources/updated"))["params"]["uri"] == written


async def test_a_template_that_is_one_variable_alone_leads_to_its_group_too() -> None:
    first, later = _with_template("{+uri}"), _with_template("{+uri}")
    async with client_of(Opener(a=[first], b=[later])) as client:
        await client.initialize()
        assert [entry["uriTemplate"] for entry in await _templates(client)] == ["{+uri}", "dynamic-mcp://b/{+uri}"]
        await client.request("resources/read", {"uri": "dynamic-mcp://b/any:x%20y"})
        assert [each["params"]["uri"] for each in later.heard("resources/read")] == ["any:x%20y"]
        assert first.heard("resources/read") == []


def _with_template(template: str) -> FakeUpstream:
    """Return an upstream with one template, which reads one URI."""
    return FakeUpstream(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": template, "name": "t"}]},
            "resources/read": {"contents": []},
        }
    )
