"""What the proxy does not understand it passes on unchanged, and each side hears what is its own."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.config.resolved import Features, ToolFilter
from tests.fakes import (
    Client,
    FakeUpstream,
    FullUpstream,
    Json,
    Opener,
    client_of,
    group_config,
    part,
    settled,
    text_of,
)
from tests.upstreams import full_offers as offers

CAN_ALL: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
NOTHING = Features(tools=False, resources=False, prompts=False)


async def _params(client: Client, method: str) -> bytes:
    """Wait for a message with this method and return the bytes of its params."""
    return part(await client.line(lambda message: message.get("method") == method), "params")


# --- capabilities ----------------------------------------------------------------------------------------


async def test_an_upstream_is_told_the_bytes_that_the_client_said_of_itself() -> None:
    upstream = FullUpstream()
    opener = Opener(a=[upstream])
    declared = (
        b'"capabilities":{"x-first":1,"elicitation":{"url":{}, "form":{"x":1.0}},"sampling":{"tools":{}},'
        b'"experimental":{"vendor/z":{"twice":1,"twice":2}},"extensions":{"io.example/ui":{"n":%s}}},'
        b'"clientInfo":{"version":"1.0","name":"caf\\u00e9","icons":[ ],"x-client":true}' % offers.LONG
    )
    async with client_of(opener) as client:
        await settled()
        assert opener.opened == []
        await client.exchange("initialize", b'{"protocolVersion":"2025-06-18",%s,"x":1}' % declared)
        await upstream.hears("notifications/initialized")
        assert part(upstream.lines[0], "params") == b'{"protocolVersion":"2025-06-18",%s}' % declared


async def test_a_client_that_says_too_little_of_itself_is_introduced_by_the_proxy() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.request("initialize", {"clientInfo": {"name": "no version"}})
        hello = (await upstream.hears("initialize"))["params"]
        assert hello["capabilities"] == {}
        assert hello["clientInfo"]["name"] == "dynamic-mcp"


async def test_the_client_is_told_the_union_of_what_the_groups_can_do() -> None:
    opener = Opener(
        a=[FullUpstream(without=("resources", "logging", "tasks"))],
        b=[FullUpstream(without=("prompts", "completions", "resources", "tasks"))],
    )
    async with client_of(opener) as client:
        for group in ("a", "b"):
            await client.call(group, "echo", {"text": "there"})
        assert (await client.initialize())["result"]["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {},  # what is cut from a result is read as one
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
            "experimental": {"vendor.example/full": {"depth": 3}},
        }


async def test_what_is_not_known_yet_may_be_all_that_the_config_lets_through() -> None:
    async with client_of(Opener(a=[FullUpstream()], b=[FullUpstream()])) as client:
        capabilities = (await client.initialize())["result"]["capabilities"]
        assert set(capabilities) == {"tools", "resources", "prompts", "completions", "logging", "tasks"}
        assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
    configs = group_config("a", features=NOTHING), group_config("b", features=NOTHING)
    async with client_of(Opener(a=[FullUpstream()], b=[FullUpstream()]), *configs) as client:
        assert not {"resources", "prompts"} & set((await client.initialize())["result"]["capabilities"])


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_client_of_an_older_version_is_told_nothing_of_tasks(version: str) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        assert "tasks" not in (await client.initialize(version=version))["result"]["capabilities"]


async def test_what_a_server_says_of_itself_comes_in_a_text_of_its_own_after_the_tools() -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")])) as client:
        await client.initialize()
        asked = {"name": "get_dynamic_tools", "arguments": {"group": "a"}}
        tools, words, *_ = (await client.request("tools/call", asked))["result"]["content"]
        assert json.loads(tools["text"])["tools"][0]["name"] == "rich"
        assert words["text"] == "Use a with care. It has more to say.\n\nThis is the second paragraph."
        description = (await client.request("tools/list"))["result"]["tools"][0]["description"]
        assert "- a: Use a with care" in description
        assert "more to say" not in description


async def test_an_excluded_tool_is_reached_by_no_way() -> None:
    upstream = FullUpstream(name="a")
    config = group_config("a", tools=ToolFilter(include=("*",), exclude=("re*",)))
    async with client_of(Opener(a=[upstream]), config) as client:
        await client.initialize()
        await client.call("a", "add", {"list": "tools", "entry": {"name": "renew", "inputSchema": {}}})
        ways = []
        for name in ("release", "record", "renew"):
            by_group = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": name}}
            ways += [by_group, {**by_group, "task": {}}, {"name": name}, {"name": name, "task": {}}]
        answers = await asyncio.gather(*(client.request("tools/call", way) for way in ways))
        assert all(answer["result"]["isError"] for answer in answers)
        assert [message["params"]["name"] for message in upstream.heard("tools/call")] == ["add"]


# --- logging -------------------------------------------------------------------------------------------------


async def test_a_level_reaches_every_group_that_logs_now_later_and_again() -> None:
    first, second, quiet, late = FullUpstream(), FullUpstream(), FullUpstream(without=("logging",)), FakeUpstream()
    welcome = late.answers.pop("initialize")
    async with client_of(Opener(a=[first, second], quiet=[quiet], late=[late])) as client:
        await client.initialize()
        for group in ("a", "quiet"):
            await client.call(group, "echo", {"text": "there"})
        assert (await client.request("logging/setLevel", {"level": "warning"}))["result"] == {}
        assert (await first.hears("logging/setLevel"))["params"] == {"level": "warning"}

        welcome["capabilities"] = {"logging": {}}
        late.say({"jsonrpc": "2.0", "id": late.heard("initialize")[0]["id"], "result": welcome})
        assert (await late.hears("logging/setLevel"))["params"] == {"level": "warning"}
        first.die()
        await client.call("a", "echo", {"text": "wake up"})
        assert (await second.hears("logging/setLevel"))["params"] == {"level": "warning"}
        methods = [message.get("method") for message in second.sent]
        assert methods.index("logging/setLevel") < methods.index("tools/call")
        assert quiet.heard("logging/setLevel") == []


async def test_a_log_message_names_the_group_before_the_logger_and_is_else_as_it_was() -> None:
    upstream = FullUpstream(name="srv")
    async with client_of(Opener(git=[upstream])) as client:
        await client.initialize()
        await client.call("git", "log", {"level": "error", "logger": "http"})
        params = await _params(client, "notifications/message")

        data = b'{"b":"srv","a":%s}' % offers.LONG
        expected = b'{"x-first":1,"logger":"git/http","level":"error","data":%s,"twice":2}'
        assert params == expected % data


async def test_a_log_message_without_a_logger_gets_the_group_as_one() -> None:
    async with client_of(Opener(git=[FullUpstream()])) as client:
        await client.initialize()
        await client.call("git", "log", {"level": "error"})
        assert (await client.hears("notifications/message"))["params"]["logger"] == "git"


async def test_what_is_below_the_level_is_not_logged() -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        await client.call("a", "echo", {"text": "there"})
        await client.request("logging/setLevel", {"level": "error"})
        assert text_of(await client.call("a", "log", {"level": "warning"})) == "error"
        assert client.heard("notifications/message") == []


@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 3}, {"level": None}])
async def test_a_level_that_there_is_none_of_is_refused(params: Json) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        assert (await client.request("logging/setLevel", params))["error"]["code"] == -32602


# --- what nobody knows -------------------------------------------------------------------------------------


async def test_an_unknown_notification_of_a_server_goes_on_as_it_is() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await client.call("a", "vendor")
        params = await _params(client, "notifications/vendor.example/odd")
        assert params == upstream.server.filled(offers.VENDOR)
        await client.call("a", "elicited", {"key": "e-7"})
        assert await _params(client, "notifications/elicitation/complete") == b'{"elicitationId":"e-7"}'


async def test_an_unknown_notification_of_the_client_goes_to_the_group_that_it_names() -> None:
    a, b = FullUpstream(), FullUpstream()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        for group in ("a", "b"):
            await client.call(group, "echo", {"text": "there"})
        params = b'{"n":1.0,"_meta":{"dynamic-mcp/group":"b"}, "twice":1,"twice":2}'
        client.send(b'{"jsonrpc":"2.0","method":"notifications/vendor/hello","params":%s}' % params)
        client.send({"jsonrpc": "2.0", "method": "notifications/vendor/hello", "params": {}})
        await b.hears("notifications/vendor/hello")
        await settled()
        assert part(b.lines[-1], "params") == params
        assert (len(a.heard("notifications/vendor/hello")), len(b.heard("notifications/vendor/hello"))) == (0, 1)


async def test_an_unknown_request_goes_to_the_group_that_it_names_and_back_as_it_is() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[FullUpstream()], b=[upstream])) as client:
        await client.initialize()
        params = b'{"z":%s,"a":{"twice":1,"twice":2},"_meta":{"x": 1,"dynamic-mcp/group":"b"}}' % offers.LONG
        echoed = params.replace(b'{"x": 1,"', b'{"x":1,"upstream.')  # what a server says in our name gets another one
        assert part(await client.exchange("vendor/echo", params), "result") == echoed
        assert part(await client.exchange("vendor/nothing", params), "error", "code") == b"-32601"
        assert len(upstream.heard("vendor/nothing")) == 1


@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}, {"_meta": {"dynamic-mcp/group": 7}}, [1]])
async def test_an_unknown_request_that_names_no_group_is_not_found(params: Json) -> None:
    async with client_of(Opener(a=[FullUpstream()], b=[FullUpstream()])) as client:
        await client.initialize()
        for group in ("a", "b"):
            await client.call(group, "echo", {"text": "there"})
        assert (await client.request("vendor/echo", params))["error"]["code"] == -32601


async def test_an_unknown_request_that_one_group_alone_may_know_goes_there() -> None:
    opener = Opener(a=[FakeUpstream({"tools/call": {"content": []}})], b=[FullUpstream()])
    async with client_of(opener) as client:
        unknown = await client.request("vendor/echo", {"n": 1})
        await client.initialize()
        for group in ("a", "b"):
            await client.call(group, "echo", {"text": "there"})
        assert part(await client.exchange("vendor/echo", b'{"n":1.0}'), "result") == b'{"n":1.0}'
        assert unknown["error"]["code"] == -32601  # who has not said hello may only be trying us out


async def test_an_unknown_request_for_a_group_that_is_not_there_gets_the_closest() -> None:
    async with client_of(Opener(git=[FullUpstream()])) as client:
        await client.initialize()
        error = (await client.request("vendor/echo", {"_meta": {"dynamic-mcp/group": "gti"}}))["error"]
        assert error["code"] == -32602
        assert "`git`" in error["message"]
