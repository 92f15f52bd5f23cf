"""Scripts: what they can do, what a client sees of them, and what of their calls."""

from __future__ import annotations

import asyncio
import json

from tests.fakes import Error, Json, text_of
from tests.features.scripts.scene import echo, patiently, scripting, text


async def test_a_script_calls_tools_and_only_its_result_is_shown() -> None:
    async with scripting(echo) as (scene, client):
        code = 'rows = [await call("up", "echo", {"n": n}) for n in range(5)]\nsum(row["n"] for row in rows)'
        result = await client.run(code)
        assert result == {"content": [{"type": "text", "text": "10"}]}
        assert [call["params"]["arguments"] for call in scene.upstream.heard("tools/call")] == [
            {"n": n} for n in range(5)
        ]


async def test_calls_run_beside_each_other() -> None:
    async with scripting() as (scene, client):
        code = (
            "import asyncio\n"
            'answers = await asyncio.gather(call("up", "echo", {"n": 1}), call("other", "echo", {"n": 2}))\n'
            "return answers"
        )
        running = asyncio.create_task(client.value(code))
        for upstream in (scene.upstream, scene.other):
            question = await patiently(upstream.hears, "tools/call")
            upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": echo(question["params"])})
        assert await running == [{"n": 1}, {"n": 2}]


async def test_input_and_print_and_modules() -> None:
    async with scripting() as (_, client):
        code = (
            "import json, re, math, datetime\n"
            "print('seen', input['a'])\n"
            "return [re.findall('[0-9]+', 'a1b22'), math.floor(1.5), json.dumps(input),"
            " str(datetime.date(2026, 1, 2))]"
        )
        result = await client.run(code, {"a": [1, "ä"]})
        assert json.loads(text_of(result)) == [["1", "22"], 1, '{"a": [1, "\\u00e4"]}', "2026-01-02"]
        assert result["content"][1]["text"] == "printed:\nseen [1, 'ä']\n"


# --- values --------------------------------------------------------------------------------------------


async def test_a_result_is_its_structured_content_else_json_in_its_text_else_the_text() -> None:
    results = {
        "structured": {"content": [], "structuredContent": {"a": 1, "result": 2}},
        "wrapped": {"content": [], "structuredContent": {"result": [1, 2]}},
        "json": text('{"b": [1]}'),
        "text": text("3 issues"),
        "several": {"content": [*text("1")["content"], *text("two")["content"]]},
        "none": {"content": []},
    }
    async with scripting(lambda params: results[params["arguments"]["which"]]) as (_, client):
        code = 'return {which: await call("up", "echo", {"which": which}) for which in input}'
        assert await client.value(code, [*results]) == {
            "structured": {"a": 1, "result": 2},
            "wrapped": [1, 2],
            "json": {"b": [1]},
            "text": "3 issues",
            "several": [1, "two"],
            "none": None,
        }


async def test_an_image_is_a_handle_and_is_shown_if_it_is_in_the_result() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    blob = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "application/zip", "blob": "AAA="}}
    results = {1: {"content": [image]}, 2: {"content": [*text("it")["content"], blob]}}
    async with scripting(lambda params: results[params["arguments"]["n"]]) as (_, client):
        alone = await client.run('return await call("up", "echo", {"n": 1})')
        assert alone["content"] == [image]

        code = (
            'image, (words, file) = await call("up", "echo", {"n": 1}), await call("up", "echo", {"n": 2})\n'
            'return {"size": image["size"], "kind": file["type"], "words": words, "file": file}'
        )
        mixed = await client.run(code)
        value = json.loads(text_of(mixed))
        assert (value["size"], value["kind"], value["words"]) == (3, "resource", "it")
        assert mixed["content"][1:] == [blob]

        forged = await client.run(
            'await call("up", "echo", {"n": 1})\nreturn {"type": "image", "handle": "content-00-1"}'
        )
        assert len(forged["content"]) == 1


async def test_a_long_result_is_cut_and_kept() -> None:
    async with scripting() as (_, client):
        result = await client.run('return "x" * 150_000')
        assert len(text_of(result)) <= 100_000
        uri = json.dumps(result).partition("dynamic-mcp://results/")[2][:32]
        read = await client.request("resources/read", {"uri": f"dynamic-mcp://results/{uri}"})
        assert read["result"]["contents"][0]["text"] == json.dumps("x" * 150_000)


async def test_a_long_result_of_a_tool_reaches_the_script_whole() -> None:
    async with scripting(text("y" * 300_000)) as (_, client):
        assert await client.value('return len(await call("up", "echo"))') == 300_000


# --- errors --------------------------------------------------------------------------------------------


async def test_errors_of_tools_can_be_caught_with_their_details() -> None:
    results = {
        "tool": {**text("no such repo"), "isError": True, "structuredContent": {"repo": "x"}},
        "rpc": Error(-32001, "down"),
    }
    async with scripting(lambda params: results[params["arguments"]["which"]]) as (_, client):
        code = (
            "found = []\n"
            'for which in ["tool", "rpc"]:\n'
            "    try:\n"
            '        await call("up", "echo", {"which": which})\n'
            "    except ToolError as error:\n"
            "        found.append([str(error), details(error)])\n"
            "try:\n"
            '    await call("up", str("nope"))\n'
            "except ToolError as error:\n"
            '    found.append(details(error)["code"])\n'
            "return found"
        )
        assert await client.value(code) == [
            ["no such repo", {"code": 0, "message": "no such repo", "data": {"repo": "x"}}],
            ["down", {"code": -32001, "message": "down", "data": None}],
            -32602,
        ]


async def test_an_uncaught_error_says_where_it_was_and_what_was_done_before() -> None:
    def answer(params: Json) -> Json:
        return echo(params) if params["arguments"]["n"] < 2 else {**text("too many"), "isError": True}

    async with scripting(answer) as (_, client):
        code = '# a comment\nprint("begun")\nfor n in [1, 2]:\n    await call("up", "echo", {"n": n})'
        said = await client.failure(code)
        assert 'line 4: `await call("up", "echo", {"n": n})`\nToolError: too many' in said
        assert "what was done before, 2 calls:\n- up.echo: done (" in said
        assert "- up.echo: failed: too many (" in said
        assert "printed:\nbegun\n" in said


async def test_other_errors_say_their_kind_and_line() -> None:
    async with scripting() as (_, client):
        assert "line 2: `1 / 0`\nZeroDivisionError: division by zero\nnothing was called" in await client.failure(
            "x = 1\n1 / 0"
        )
        assert "SyntaxError" in await client.failure("def f(:")
        assert "NameError: name 'nope' is not defined" in await client.failure("await nope()")
        assert "the result of the script is no JSON" in await client.failure("return {1, 2}")
        assert "the result of the script is no JSON" in await client.failure('return float("nan")')


async def test_a_call_without_code_is_refused() -> None:
    async with scripting() as (_, client):
        answer = await client.request("tools/call", {"name": "run_dynamic_script", "arguments": {"code": " "}})
        assert "`code` is missing" in text_of(answer["result"])
