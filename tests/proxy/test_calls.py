"""A call is put right before it is sent, and its result fits into a context."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import CallHandling, Validation
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, client_of, config_of, group_config, settled, text_of, tool

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["title"],
    "additionalProperties": False,
}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
REPAIRED = "dynamic-mcp/repaired"


def _upstream(*names: str, call: Json = DONE, schema: Json = None) -> FakeUpstream:
    tools = [tool(name, inputSchema=schema or SCHEMA) for name in names or ("create",)]
    return FakeUpstream({"tools/call": call, "tools/list": {"tools": tools}})


def _answers(*, validate: Validation | None = None, limit: int = 1000, compact: bool = False) -> CallHandling:
    return CallHandling(validate=validate, limit=limit, compact=compact)


async def _dynamic(client: Client, arguments: Json, **params: Json) -> dict[str, Json]:
    answer = await client.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments, **params})
    result: dict[str, Json] = answer["result"]
    return result


# --- arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": "up", "name": "create", "args": '{"title":"x","count":5}'},
        {"group": "up", "name": "create", "arguments": {"title": "x", "count": 5}},
        {"group": "up", "name": "create", "params": {"title": "x", "count": 5}},
        {"group": "up", "name": "create", "title": "x", "count": "5"},
        {"group": "up", "name": "create", "args": {"title": "x", "count": "5"}},
        {"group": "up", "name": "up__create", "args": {"title": "x", "count": 5}},
        {"group": "up", "name": "up.create", "args": {"title": "x", "count": 5}},
        {"name": "up__create", "args": {"title": "x", "count": 5}},
        {"name": "up.create", "title": "x", "count": 5},
        {"name": "create", "args": {"title": "x", "count": 5}},
        '{"group":"up","name":"create","args":{"title":"x","count":"5"}}',
    ],
    ids=json.dumps,
)
async def test_what_leaves_one_reading_is_read_and_noted(arguments: Json) -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream], other=[_upstream("remove")])) as client:
        await client.initialize()
        await settled()

        result = await _dynamic(client, arguments)

        assert result["content"] == DONE["content"]
        assert result["_meta"][REPAIRED]
        (call,) = upstream.heard("tools/call")
        assert call["params"] == {"name": "create", "arguments": {"title": "x", "count": 5}}


async def test_a_name_with_a_group_works_before_anything_is_known() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        assert (await _dynamic(client, {"name": "up__create", "args": {"title": "x"}}))["content"] == DONE["content"]


@pytest.mark.parametrize("own_name", [False, True], ids=["without a group", "by its own name"])
async def test_a_name_waits_for_a_group_that_has_not_yet_told_its_tools(*, own_name: bool) -> None:
    upstream = _upstream()
    listing = upstream.answers.pop("tools/list")
    async with client_of(Opener(up=[upstream], other=[_upstream("remove")])) as client:
        await client.initialize()
        args = {"title": "x"}
        params = {"name": "create", "arguments": args}
        if not own_name:
            params = {"name": "call_dynamic_tool", "arguments": {"name": "create", "args": args}}
        asked = asyncio.ensure_future(client.request("tools/call", params))
        request = await upstream.hears("tools/list")
        await settled()

        upstream.say({"jsonrpc": "2.0", "id": request["id"], "result": listing})

        assert (await asked)["result"]["content"] == DONE["content"]


async def test_a_name_that_several_groups_have_needs_a_group() -> None:
    async with client_of(Opener(one=[_upstream()], two=[_upstream()])) as client:
        await client.initialize()
        await settled()

        result = await _dynamic(client, {"name": "create", "args": {"title": "x"}})

        assert result["isError"] is True
        assert "`one`" in text_of(result)
        assert "`two`" in text_of(result)


async def test_a_tool_whose_own_name_looks_like_a_group_is_that_tool() -> None:
    upstream = _upstream("up__create", "create")
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        await client.call("up", "up__create", {"title": "x"})

        assert upstream.heard("tools/call")[0]["params"]["name"] == "up__create"


async def test_a_call_that_fits_passes_with_every_byte_and_without_a_note() -> None:
    upstream = _upstream(call=b'{"content":[ ],"x":1.50}')
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        args = b'{ "count":1' + b"0" * 39 + rb', "title":"\u00e9"}'

        line = await client.exchange(
            "tools/call",
            b'{"name":"call_dynamic_tool","arguments":{"group":"up","name":"create","args":' + args + b"}}",
        )

        assert b'"arguments":' + args + b"}" in upstream.lines[-1]
        assert b'"result":{"content":[ ],"x":1.50}}' in line


async def test_validation_can_be_switched_off() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream]), group_config("up", answers=_answers(validate="off"))) as client:
        await client.initialize()

        assert await client.call("up", "create", {"titel": 1}) == DONE
        await client.call("up", "create", '{"titel":1}')

        assert [call["params"]["arguments"] for call in upstream.heard("tools/call")] == [{"titel": 1}] * 2


async def test_a_call_of_a_tool_under_its_own_name_is_put_right_too() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        answer = await client.request("tools/call", {"name": "create", "arguments": {"title": "x", "count": "5"}})

        assert answer["result"]["_meta"][REPAIRED]
        assert upstream.heard("tools/call")[0]["params"]["arguments"] == {"title": "x", "count": 5}


async def test_an_upstream_whose_schema_is_hostile_is_called_all_the_same() -> None:
    bomb = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    hostile = {"$defs": {**bomb, "a40": {}}, "$ref": "#/$defs/a0"}
    async with client_of(Opener(up=[_upstream(schema=hostile)])) as client:
        await client.initialize()

        assert await client.call("up", "create", {"any": 1}) == DONE


async def test_a_meta_that_is_no_object_stays_as_it_is() -> None:
    async with client_of(Opener(up=[_upstream(call=b'{"content":[],"_meta":[1]}')])) as client:
        await client.initialize()

        assert await client.call("up", "create", '{"title":"x"}') == {"content": [], "_meta": [1]}


# --- results -------------------------------------------------------------------------------------------

ROWS = {"rows": [{"id": n, "name": f"row {n}"} for n in range(300)]}
LONG: Json = {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": ROWS}


async def _read(client: Client, uri: str) -> dict[str, Json]:
    return await client.request("resources/read", {"uri": uri})


async def test_a_long_result_is_cut_and_readable_whole_and_in_ranges() -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as client:
        said = await client.initialize()
        result = await client.call("up", "create", {"title": "x"})
        link = result["content"][-1]
        whole = text_of({"content": LONG["content"]})

        assert "resources" in said["result"]["capabilities"]
        assert link["type"] == "resource_link"
        assert link["uri"] in result["content"][1]["text"]
        assert len(text_of(result)) <= 1000
        (content,) = (await _read(client, link["uri"]))["result"]["contents"]
        assert content == {"uri": link["uri"], "mimeType": "application/json", "text": whole}
        parts = [
            (await _read(client, f"{link['uri']}?start={at}&end={at + 4000}"))["result"]["contents"][0]["text"]
            for at in range(0, len(whole), 4000)
        ]
        assert "".join(parts) == whole


async def test_the_range_that_the_note_names_follows_what_is_shown() -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as client:
        await client.initialize()
        result = await client.call("up", "create", {"title": "x"})
        uri = result["content"][1]["text"].split("`")[3]

        (content,) = (await _read(client, uri))["result"]["contents"]

        assert text_of({"content": LONG["content"]}).startswith(text_of(result) + content["text"])


@pytest.mark.parametrize("query", ["?start=-1", "?start=a", "?from=1", "?start=1&end=", "?" + "a=1&" * 100])
async def test_a_range_that_is_none_is_refused(query: str) -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as client:
        await client.initialize()
        uri = (await client.call("up", "create", {"title": "x"}))["content"][-1]["uri"]

        assert "start=A" in (await _read(client, uri + query))["error"]["message"]


async def test_what_is_kept_is_for_its_own_session_only() -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as ann:
        bob = Client(ann.server)
        for client in (ann, bob):
            await client.initialize()
        uri = (await ann.call("up", "create", {"title": "x"}))["content"][-1]["uri"]

        assert "result" in await _read(ann, uri)
        assert "error" in await _read(bob, uri)


async def test_the_oldest_results_are_forgotten() -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as client:
        await client.initialize()
        uris = [(await client.call("up", "create", {"title": "x"}))["content"][-1]["uri"] for _ in range(101)]

        assert "kept for a while only" in (await _read(client, uris[0]))["error"]["message"]
        assert "result" in await _read(client, uris[1])
        assert "result" in await _read(client, uris[-1])


async def test_an_older_client_gets_no_link() -> None:
    config = group_config("up", answers=_answers())
    async with client_of(Opener(up=[_upstream(call=LONG)]), config) as client:
        await client.initialize("2025-03-26")

        result = await client.call("up", "create", {"title": "x"})

        assert {block["type"] for block in result["content"]} == {"text"}


async def test_select_returns_the_part_that_is_asked_for() -> None:
    async with client_of(Opener(up=[_upstream(call=LONG)])) as client:
        await client.initialize()

        result = await _dynamic(
            client, {"group": "up", "name": "create", "args": {"title": "x"}, "select": "$.rows[1].name"}
        )

        assert result == {"content": [{"type": "text", "text": '{"selected":"row 1"}'}]}


async def test_what_select_cannot_select_is_told_and_the_whole_is_kept() -> None:
    async with client_of(Opener(up=[_upstream(call=LONG)])) as client:
        await client.initialize()

        result = await _dynamic(client, {"group": "up", "name": "create", "args": {"title": "x"}, "select": "$.["})

        assert result["isError"] is True
        uri = next(word for word in text_of(result).split("`") if word.startswith("dynamic-mcp://"))
        assert json.loads((await _read(client, uri))["result"]["contents"][0]["text"]) == ROWS


@pytest.mark.parametrize(("select", "params"), [(5, {}), ("$.a", {"task": {}})], ids=["a number", "a task"])
async def test_a_select_that_cannot_be_is_refused_before_the_call(select: Json, params: Json) -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        arguments = {"group": "up", "name": "create", "args": {"title": "x"}, "select": select}
        result = await _dynamic(client, arguments, **params)

        assert "`select`" in text_of(result)
        assert upstream.heard("tools/call") == []


async def test_the_loop_goes_on_while_a_large_result_is_selected_from() -> None:
    rows = b",".join(b'{"a":{"b":%d}}' % n for n in range(50_000))
    large = b'{"content":[],"structuredContent":{"rows":[' + rows + b"]}}"
    upstream = _upstream(call=large)
    async with client_of(Opener(up=[upstream]), bound_s=60) as client:  # the selection is real work
        await client.initialize()
        arguments = {"group": "up", "name": "create", "args": {"title": "x"}, "select": "$..zz"}

        call = asyncio.create_task(_dynamic(client, arguments))
        await upstream.hears("tools/call")
        pinged = 0
        while not call.done():
            await client.request("ping")
            pinged += 1
            await asyncio.sleep(0)

        assert "$..zz" in text_of(await call)
        assert pinged > 1


async def test_compact_results_are_a_setting() -> None:
    call = {"content": [{"type": "text", "text": json.dumps(ROWS, indent=2)}]}
    config = group_config("up", answers=_answers(limit=100_000, compact=True))
    async with client_of(Opener(up=[_upstream(call=call)]), config) as client:
        await client.initialize()

        result = await client.call("up", "create", {"title": "x"})

        assert text_of(result) == json.dumps(ROWS, separators=(",", ":"))


# --- split calls ---------------------------------------------------------------------------------------

HINTS = {
    "look": {"readOnlyHint": True},
    "change": {"readOnlyHint": False},
    "odd": {"readOnlyHint": True, "destructiveHint": True},
    "unknown": None,
}


@pytest.mark.parametrize(
    ("name", "verb"), [("look", "read"), ("change", "write"), ("odd", "write"), ("unknown", "write")]
)
async def test_each_tool_is_called_by_the_verb_of_its_annotations_only(name: str, verb: str) -> None:
    tools = [tool(each, **({"annotations": hints} if hints else {})) for each, hints in HINTS.items()]
    upstream = FakeUpstream({"tools/call": DONE, "tools/list": {"tools": tools}})
    proxy = Proxy(config_of(group_config("up"), split_calls=True), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy)
        await client.initialize()
        listed = (await client.request("tools/list"))["result"]["tools"]
        results = {
            each: (
                await client.request(
                    "tools/call", {"name": f"call_dynamic_tool{each}", "arguments": {"group": "up", "name": name}}
                )
            )["result"]
            for each in ("", "_read", "_write")
        }

        assert [each["name"] for each in listed[1:]] == ["call_dynamic_tool_read", "call_dynamic_tool_write"]
        assert listed[1]["annotations"]["readOnlyHint"] is True
        assert results.pop(f"_{verb}") == DONE
        for refused in results.values():
            assert refused["isError"] is True
            assert f"`call_dynamic_tool_{verb}`" in text_of(refused)
        assert len(upstream.heard("tools/call")) == 1
    finally:
        await proxy.close()


async def test_without_split_calls_the_two_verbs_point_to_the_one() -> None:
    async with client_of(Opener(up=[_upstream()])) as client:
        await client.initialize()

        answer = await client.request("tools/call", {"name": "call_dynamic_tool_read", "arguments": {}})

        assert "`call_dynamic_tool`" in text_of(answer["result"])


async def test_a_hint_from_disk_is_no_leave_to_write(tmp_path: Path) -> None:
    config = group_config("up")
    before, now = (tool("wipe", annotations={"readOnlyHint": only_reads}) for only_reads in (True, False))
    known = Catalog({ListKind.TOOLS: Listing({"wipe": Raw(json.dumps(before).encode())})})
    CatalogStore(tmp_path).save(config, known)
    upstream = FakeUpstream({"tools/call": DONE, "tools/list": {"tools": [now]}})
    proxy = Proxy(
        config_of(config, split_calls=True), opener=Opener(up=[upstream]), catalog_store=CatalogStore(tmp_path)
    )
    try:
        client = Client(proxy)
        await client.initialize()

        call = {"name": "call_dynamic_tool_read", "arguments": {"group": "up", "name": "wipe"}}
        answer = await client.request("tools/call", call)

        assert "`call_dynamic_tool_write`" in text_of(answer["result"])
        assert upstream.heard("tools/call") == []
    finally:
        await proxy.close()


async def test_a_long_error_of_an_upstream_is_cut_as_results_are() -> None:
    upstream = FakeUpstream(tools=["log"])
    async with client_of(Opener(up=[upstream]), group_config("up", answers=_answers(limit=500))) as client:
        await client.initialize()
        call = asyncio.create_task(client.call("up", "log"))
        asked = await upstream.hears("tools/call")
        error = {"code": -32000, "message": "no", "data": "word " * 1000}
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": error})

        result = await call

        assert result["isError"] is True
        assert "answered with error -32000: no" in text_of(result)
        assert len(text_of(result)) <= 500
        assert "is cut here" in result["content"][1]["text"]
