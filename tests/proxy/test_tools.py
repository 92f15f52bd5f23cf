"""`tools/list` and `tools/call`: two tools in front of all, and results that come back as they were sent."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.config.resolved import Features, Timeouts, ToolFilter
from dynamic_mcp.errors import Unreachable
from tests.fakes import Client, FakeUpstream, Json, Opener, client_of, group_config, settled, text_of, tool

DONE: Json = {"content": [{"type": "text", "text": "done"}]}
NO_TOOLS = Features(tools=False, resources=True, prompts=True)


def _upstream(*tools: str, call: Json = DONE) -> FakeUpstream:
    """Return an upstream with these tools, which answers each call alike."""
    return FakeUpstream({"tools/call": call}, tools=tools or ("echo",))


def _silent() -> FakeUpstream:
    """Return an upstream that does not answer calls."""
    return FakeUpstream()


async def _get(client: Client, **arguments: Json) -> dict[str, Json]:
    answer = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    result: dict[str, Json] = answer["result"]
    return result


async def _description(client: Client) -> list[str]:
    """Return the lines that `get_dynamic_tools` is described with."""
    listed = await client.request("tools/list")
    lines: list[str] = listed["result"]["tools"][0]["description"].splitlines()
    return lines


def _call_line(params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":' + params + b"}"


async def _exchange(client: Client, params: bytes) -> bytes:
    """Send `tools/call` with these bytes as its params and return the line that answers it."""
    client.send(_call_line(params))
    return await client.line(lambda message: message.get("id") == "raw" and "method" not in message)


# --- tools/list ----------------------------------------------------------------------------------------


async def test_the_list_is_the_same_bytes_each_time_and_in_every_run() -> None:
    lists = []
    for _ in range(2):
        async with client_of(Opener(zoo=[_upstream()], api=[_upstream()], git=[_upstream()])) as client:
            await client.initialize()
            lists += [(await client.request("tools/list"))["result"] for _ in range(2)]
            await settled()
            lists.append((await client.request("tools/list", {"_meta": {}}))["result"])

    assert len({json.dumps(each) for each in lists}) == 1


async def test_groups_are_listed_in_the_order_of_the_config() -> None:
    configs = [group_config(name, description=f"About {name}") for name in ("zoo", "api", "git")]
    async with client_of(Opener(api=[_upstream()], git=[_upstream()], zoo=[_upstream()]), *configs) as client:
        await client.initialize()

        listed = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in listed] == ["get_dynamic_tools", "call_dynamic_tool"]
        for each in listed:
            assert each["inputSchema"]["properties"]["group"]["enum"] == ["zoo", "api", "git"]
        rows = [line for line in listed[0]["description"].splitlines() if line.startswith("- ")]
        assert rows == ["- zoo: About zoo", "- api: About api", "- git: About git"]


async def test_a_group_that_is_down_is_listed_with_the_reason() -> None:
    broken = Unreachable("bad", "the command `x` was not found", final=True)
    async with client_of(Opener(bad=[broken], good=[_upstream()])) as client:
        await client.initialize()
        await settled()

        lines = await _description(client)

        assert lines.index("- good: Tools from `fake`") < lines.index("Unavailable groups (connection failed):")
        assert lines[-1] == "- bad: Tools from `fake` (Error: the command `x` was not found)"


FOREIGN = "first\nsecond\r\n- evil: group\x1b[2J\x00\u2028third"


async def test_what_an_upstream_says_of_itself_is_one_line() -> None:
    welcome = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "title": FOREIGN}}
    async with client_of(Opener(up=[FakeUpstream({"initialize": welcome})])) as client:
        await client.initialize()
        await settled()

        lines = await _description(client)

        assert "- up: first second - evil: group [2J third" in lines
        assert all(line.isprintable() for line in lines)


async def test_the_reason_of_a_group_that_is_down_is_one_line() -> None:
    async with client_of(Opener(up=[FakeUpstream({"initialize": {"protocolVersion": FOREIGN}})])) as client:
        await client.initialize()
        await settled()

        lines = await _description(client)

        assert [line.startswith("- up: ") for line in lines if line.startswith("- ")] == [True]
        assert all(line.isprintable() for line in lines)


async def test_a_group_whose_tools_are_switched_off_is_neither_listed_nor_called() -> None:
    upstream = _upstream()
    off = group_config("off", features=NO_TOOLS)
    async with client_of(Opener(off=[upstream], on=[_upstream("other")]), off, group_config("on")) as client:
        await client.initialize()
        await settled()

        listed = (await client.request("tools/list"))["result"]["tools"]
        refusals = [await client.call("off", "echo"), await _get(client, group="off")]
        plain = (await client.request("tools/call", {"name": "echo"}))["result"]

        assert [each["inputSchema"]["properties"]["group"]["enum"] for each in listed] == [["on"], ["on"]]
        assert all(result["isError"] and "disabled" in text_of(result) for result in refusals)
        assert plain["isError"]
        assert upstream.heard("tools/call") == []


# --- get_dynamic_tools ---------------------------------------------------------------------------------


async def test_the_tools_of_a_group_are_a_compact_object_in_the_upstreams_order() -> None:
    listed = (
        rb'{"tools":[{"name":"b","description":"B","inputSchema":{"type" : "object", "maximum":1.50},"_meta":{},'
        rb'"title":"T","annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"},"icons":[]},'
        rb'{"name":"a","inputSchema":{"type":"object"}}]}'
    )
    async with client_of(Opener(up=[FakeUpstream({"tools/list": listed})])) as client:
        await client.initialize()

        result = await _get(client, group="up")

        assert text_of(result) == (
            '{"tools":[{"name":"b","title":"T","description":"B","inputSchema":{"type":"object","maximum":1.50},'
            '"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},'
            '{"name":"a","inputSchema":{"type":"object"}}]}'
        )
        assert not result.get("isError")
        assert len(result["content"]) == 1


async def test_a_group_without_tools_has_an_empty_list() -> None:
    async with client_of(Opener(up=[FakeUpstream(tools=[])])) as client:
        await client.initialize()

        assert text_of(await _get(client, group="up")) == '{"tools":[]}'


@pytest.mark.parametrize(
    "arguments",
    [
        b"{}",
        b'{"group":"gti"}',
        b'{"group":""}',
        b'{"group":null}',
        b'{"group":5}',
        b'{"group":["git"]}',
        b"[]",
        b"null",
    ],
    ids=bytes.decode,
)
@pytest.mark.parametrize("name", [b"get_dynamic_tools", b"call_dynamic_tool"], ids=bytes.decode)
async def test_a_wrong_or_missing_group_is_answered_with_the_reason(name: bytes, arguments: bytes) -> None:
    async with client_of(Opener(git=[_upstream()], zoo=[_upstream()])) as client:
        await client.initialize()

        line = await _exchange(client, b'{"name":"%s","arguments":%s}' % (name, arguments))

        result = json.loads(line)["result"]
        assert result["isError"] is True
        if arguments.startswith(b"{"):
            assert "`git`" in text_of(result)
            assert "`zoo`" in text_of(result)


async def test_a_group_that_cannot_be_reached_says_why() -> None:
    broken = Unreachable("up", "the command `x` was not found", hint="install it", final=True)
    async with client_of(Opener(up=[broken])) as client:
        await client.initialize()

        for result in (await _get(client, group="up"), await client.call("up", "echo")):
            assert result["isError"] is True
            assert "the command `x` was not found" in text_of(result)
            assert "hint: install it" in text_of(result)


async def test_tools_that_the_config_excludes_are_neither_listed_nor_called() -> None:
    upstream = _upstream("read", "delete_file", "delete_all")
    config = group_config("up", tools=ToolFilter(include=("*",), exclude=("delete_*",)))
    async with client_of(Opener(up=[upstream]), config) as client:
        await client.initialize()

        listed = json.loads(text_of(await _get(client, group="up")))["tools"]
        refusals = [
            await client.call("up", "delete_file", {}),
            (await client.request("tools/call", {"name": "delete_all"}))["result"],
        ]

        assert [each["name"] for each in listed] == ["read"]
        assert all(result["isError"] for result in refusals)
        assert upstream.heard("tools/call") == []


# --- call_dynamic_tool: what goes up and what comes back -----------------------------------------------

RESULTS = [
    pytest.param(b'{"content":[{"type":"text","text":"plain"}]}', id="text"),
    pytest.param(b'{"content":[{"type":"hologram","x": 1.50 }],"vendor":[ ],"_meta":{"b":1,"a":2}}', id="unknown"),
    pytest.param(b'{"structuredContent":{"n":1' + b"0" * 40 + b',"f":0.1e-400},"content":[]}', id="numbers"),
    pytest.param(rb'{"content":[{"type":"text","text":"\u00e9\/\ud800"}],"isError":true}', id="escapes"),
    pytest.param('{"content":[{"type":"text","text":"日本 é"}]}'.encode(), id="UTF-8"),
    pytest.param(b'{"a":1,"a":2}', id="a member twice"),
    pytest.param(b"{}", id="nothing"),
]


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("name", [b"call_dynamic_tool", b"echo"], ids=["call_dynamic_tool", "its own name"])
async def test_a_result_comes_back_byte_for_byte(result: bytes, name: bytes) -> None:
    async with client_of(Opener(up=[_upstream(call=result)])) as client:
        await client.initialize()
        await settled()

        line = await _exchange(client, b'{"name":"%s","arguments":{"group":"up","name":"echo"}}' % name)

        assert line == b'{"jsonrpc":"2.0","id":"raw","result":' + result + b"}\n"


async def test_members_of_vendors_beside_the_result_come_back() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        answer = asyncio.create_task(_exchange(client, b'{"name":"call_dynamic_tool","arguments":' + _ECHO + b"}"))
        id = (await upstream.hears("tools/call"))["id"]

        upstream.say(b'{"x-trace":[ 1.50 ],"jsonrpc":"2.0","id":%d,"result":{}}' % id)

        assert await answer == b'{"jsonrpc":"2.0","id":"raw","result":{},"x-trace":[ 1.50 ]}\n'


_ECHO = b'{"group":"up","name":"echo"}'


async def test_arguments_and_all_other_params_go_up_byte_for_byte() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        args = rb'{"n": 1.50,"big":1' + b"0" * 40 + rb',"s":"\u00e9\ud800","n":2}'

        await _exchange(
            client,
            b'{"_meta":{"trace": "t"},"task":{"ttl":1.50 },"name":"call_dynamic_tool",'
            b'"arguments":{"name":"echo","args": ' + args + b',"group":"up"},"x":[ ]}',
        )

        sent = upstream.lines[-1]
        assert b'"_meta":{"trace": "t"},"task":{"ttl":1.50 },"name":"echo","arguments":' + args + b',"x":[ ]}' in sent


async def test_a_call_under_the_tools_own_name_goes_up_byte_for_byte() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        await _exchange(client, b'{"name":"echo","arguments":{"n": 1.50},"x":[ ]}')

        assert upstream.lines[-1].endswith(b'"params":{"name":"echo","arguments":{"n": 1.50},"x":[ ]}}\n')


@pytest.mark.parametrize(
    "args", [b"", b',"args":null', b',"args":{}', b',"args":{ }'], ids=["missing", "null", "empty", "spaced"]
)
async def test_without_arguments_a_tool_gets_an_empty_object(args: bytes) -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        await _exchange(client, b'{"name":"call_dynamic_tool","arguments":{"group":"up","name":"echo"%s}}' % args)

        assert upstream.heard("tools/call")[0]["params"] == {"name": "echo", "arguments": {}}


@pytest.mark.parametrize("args", ["text", "[]", "5", [1], 5, False])
async def test_arguments_that_are_no_object_are_refused_and_not_sent(args: Json) -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        results = [
            await client.call("up", "echo", args),
            (await client.request("tools/call", {"name": "echo", "arguments": args}))["result"],
        ]

        assert all(result["isError"] and "not an object" in text_of(result) for result in results)
        assert upstream.heard("tools/call") == []


@pytest.mark.parametrize("name", [b"", b',"name":""', b',"name":null', b',"name":5'], ids=bytes.decode)
async def test_a_call_without_a_tool_name_says_where_the_names_are(name: bytes) -> None:
    async with client_of(Opener(up=[_upstream()])) as client:
        await client.initialize()

        line = await _exchange(client, b'{"name":"call_dynamic_tool","arguments":{"group":"up"%s}}' % name)

        result = json.loads(line)["result"]
        assert result["isError"] is True
        assert "get_dynamic_tools" in text_of(result)


@pytest.mark.parametrize("params", [None, [], {}, {"name": 5}, {"name": None}], ids=str)
async def test_a_call_that_names_no_tool_at_all_is_invalid(params: Json) -> None:
    async with client_of(Opener(up=[_upstream()])) as client:
        await client.initialize()

        assert (await client.request("tools/call", params))["error"]["code"] == -32602


# --- names ---------------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_looked_for_once_more_and_then_answered_with_the_closest() -> None:
    upstream = _upstream("read_file", "write_file", "zip")
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        result = await client.call("up", "raed_file")

        assert result["isError"] is True
        assert "did you mean `read_file`" in text_of(result)
        assert len(upstream.heard("tools/list")) == 2
        assert upstream.heard("tools/call") == []


async def test_a_tool_that_is_new_is_found_without_an_announcement() -> None:
    upstream = _upstream("old")
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        upstream.answers["tools/list"] = {"tools": [tool("old"), tool("new")]}

        assert await client.call("up", "new") == DONE


async def test_a_tool_of_another_group_is_pointed_out() -> None:
    async with client_of(Opener(one=[_upstream("a")], two=[_upstream("b")])) as client:
        await client.initialize()
        await settled()

        assert "group `two` has one" in text_of(await client.call("one", "b"))


async def test_a_plain_name_that_several_groups_have_is_answered_with_them() -> None:
    upstreams = {name: _upstream("search", "own") for name in ("git", "zoo")}
    async with client_of(Opener(**{name: [each] for name, each in upstreams.items()})) as client:
        await client.initialize()
        await settled()

        result = (await client.request("tools/call", {"name": "search", "arguments": {}}))["result"]

        assert result["isError"] is True
        for word in ("`git`", "`zoo`", '`"group": "git", "name": "search"`'):
            assert word in text_of(result)
        assert not any(each.heard("tools/call") for each in upstreams.values())


async def test_a_plain_name_that_no_group_has_is_answered_with_the_closest() -> None:
    async with client_of(Opener(up=[_upstream("read_file")])) as client:
        await client.initialize()
        await settled()

        for name, closest in (("readfile", "read_file"), ("get_dynamic_tool", "get_dynamic_tools")):
            result = (await client.request("tools/call", {"name": name}))["result"]
            assert result["isError"] is True
            assert f"did you mean `{closest}`" in text_of(result)


# --- when the upstream fails ---------------------------------------------------------------------------


async def _failed(client: Client, upstream: FakeUpstream, error: bytes) -> dict[str, Json]:
    """Call a tool that the upstream answers with this error, and return the answer."""
    answer = asyncio.create_task(_exchange(client, b'{"name":"call_dynamic_tool","arguments":' + _ECHO + b"}"))
    id = (await upstream.hears("tools/call"))["id"]
    upstream.say(b'{"jsonrpc":"2.0","id":%d,"error":%s}' % (id, error))
    return json.loads(await answer)  # type: ignore[no-any-return]


async def test_an_error_of_the_upstream_shows_its_code_message_and_data() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        error = b'{"code":-32000,"message":"disk \\"full\\"","data":{"free": 0.50}}'
        result = (await _failed(client, upstream, error))["result"]

        assert result["isError"] is True
        for words in ("`up`", "`echo`", "-32000", 'disk "full"', '{"free": 0.50}'):
            assert words in text_of(result)
        assert "schema" not in text_of(result)


async def test_arguments_that_the_upstream_refuses_are_answered_with_the_tools_input_schema() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    upstream = FakeUpstream({"tools/list": {"tools": [tool("echo", inputSchema=schema)]}})
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        result = (await _failed(client, upstream, b'{"code":-32602,"message":"no path"}'))["result"]

        assert result["isError"] is True
        assert "no path" in text_of(result)
        assert json.dumps(schema, separators=(",", ":")) in text_of(result)


@pytest.mark.parametrize(
    "error",
    [
        b'"plain words"',
        b'{"message":"plain words"}',
        b'{"code":"E1","message":{"a":"plain words"}}',
        b'["plain words"]',
    ],
    ids=["a string", "no code", "odd members", "a list"],
)
async def test_an_odd_error_of_the_upstream_is_still_an_error(error: bytes) -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        result = (await _failed(client, upstream, error))["result"]

        assert result["isError"] is True
        assert "plain words" in text_of(result)


async def test_an_upstream_that_wants_a_url_opened_is_relayed_for_the_client_to_act() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        error = b'{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","url":"https://x.test"}]}}'

        answer = await _failed(client, upstream, error)

        elicitation = {"mode": "url", "url": "https://x.test", "_meta": {"dynamic-mcp/group": "up"}}
        assert answer["error"] == {**json.loads(error), "data": {"elicitations": [elicitation]}}


@pytest.mark.parametrize("result", [None, [], "text", 5, True], ids=str)
async def test_a_result_that_is_no_object_is_an_error_that_names_the_group(result: Json) -> None:
    async with client_of(Opener(up=[_upstream(call=result)])) as client:
        await client.initialize()

        answer = await client.call("up", "echo")

        assert answer["isError"] is True
        assert "`up`" in text_of(answer)


async def test_a_call_that_is_not_answered_in_time_says_so() -> None:
    timeouts = Timeouts(connect_s=5, tools_s=0.01, resources_s=5, prompts_s=5)
    async with client_of(Opener(up=[_silent()]), group_config("up", timeouts=timeouts)) as client:
        await client.initialize()

        result = await client.call("up", "echo")

        assert result["isError"] is True
        assert "`echo` was not answered within 0.01 s" in text_of(result)


async def test_a_server_that_dies_during_a_call_says_that_it_may_have_run() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        call = asyncio.create_task(client.call("up", "echo"))
        await upstream.hears("tools/call")

        upstream.die("the server exited with code 1; stderr: out of memory")
        result = await call

        assert result["isError"] is True
        assert "out of memory" in text_of(result)
        assert "may have run" in text_of(result)


# --- many at once --------------------------------------------------------------------------------------


async def test_a_hung_group_delays_no_other() -> None:
    hung, mute = _silent(), _silent()
    del mute.answers["initialize"]
    async with client_of(Opener(hung=[hung], mute=[mute], good=[_upstream()])) as client:
        await client.initialize()
        stuck = [asyncio.create_task(client.call(name, "echo")) for name in ("hung", "mute", "hung")]
        await hung.hears("tools/call", times=2)

        assert await client.call("good", "echo") == DONE
        assert len((await client.request("tools/list"))["result"]["tools"]) == 2
        assert not any(each.done() for each in stuck)


async def test_answers_of_two_clients_with_equal_ids_do_not_mix() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as ann:
        bob = Client(ann.server)
        calls = []
        for client, word in ((ann, "for ann"), (bob, "for bob")):
            await client.initialize()
            calls.append(asyncio.create_task(client.call("up", "echo", {"word": word})))
        await upstream.hears("tools/call", times=2)

        for message in reversed(upstream.heard("tools/call")):
            upstream.say({"jsonrpc": "2.0", "id": message["id"], "result": message["params"]["arguments"]})

        assert [await call for call in calls] == [{"word": "for ann"}, {"word": "for bob"}]


async def test_a_client_that_cancels_a_call_gets_no_answer_and_the_upstream_is_told() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        client.send(_call_line(b'{"name":"call_dynamic_tool","arguments":' + _ECHO + b"}"))
        id = (await upstream.hears("tools/call"))["id"]
        before = len(client.lines)

        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "raw"}})

        assert (await upstream.hears("notifications/cancelled"))["params"]["requestId"] == id
        upstream.say({"jsonrpc": "2.0", "id": id, "result": DONE})
        await settled()
        assert len(client.lines) == before


# --- in the other direction ----------------------------------------------------------------------------


async def test_progress_reaches_the_client_that_called_with_its_own_token() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as ann:
        bob = Client(ann.server)
        for client, token in ((ann, "t"), (bob, 7)):
            await client.initialize()
            client.send(_call_line(_ECHO_WITH_TOKEN % json.dumps(token).encode()))
        await upstream.hears("tools/call", times=2)
        token = upstream.heard("tools/call")[1]["params"]["_meta"]["progressToken"]

        params = {"progressToken": token, "progress": 1}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

        assert (await bob.hears("notifications/progress"))["params"] == {"progressToken": 7, "progress": 1}
        assert ann.heard("notifications/progress") == []


_ECHO_WITH_TOKEN = b'{"name":"call_dynamic_tool","arguments":' + _ECHO + b',"_meta":{"progressToken":%s}}'


async def test_what_an_upstream_asks_during_a_call_is_answered_by_the_client_that_called() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as ann:
        bob = Client(ann.server)
        for client in (ann, bob):
            await client.initialize(capabilities={"elicitation": {}})
        call = asyncio.create_task(bob.call("up", "echo"))
        await upstream.hears("tools/call")

        upstream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "sure?"}})
        asked = await bob.hears("elicitation/create")
        bob.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})

        assert asked["params"] == {"message": "up asks: sure?", "_meta": {"dynamic-mcp/group": "up"}}
        assert await upstream.hears("an answer") == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}
        assert ann.heard("elicitation/create") == []
        call.cancel()


async def test_what_the_client_cannot_do_is_refused_to_the_upstream_at_once() -> None:
    upstream = _silent()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        client.send(_call_line(b'{"name":"call_dynamic_tool","arguments":' + _ECHO + b"}"))
        await upstream.hears("tools/call")

        upstream.say({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}})

        assert (await upstream.hears("an answer"))["error"]["code"] == -32601
        assert client.heard("sampling/createMessage") == []
