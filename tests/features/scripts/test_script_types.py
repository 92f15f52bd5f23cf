"""Types first: what of a script's calls certainly does not fit the schemas is said before anything is called."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import CallHandling, Share
from dynamic_mcp.features.scripts import run
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.names import ScriptNames, read_names
from dynamic_mcp.features.scripts.signature import sign
from dynamic_mcp.features.scripts.written_arguments import find_certain_flaws, read_arguments
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.tools.schema import InputSchema
from tests.fakes import FakeClock, FakeUpstream, Json, Opener, config_of, group_config, text_of, tool
from tests.features.scripts.scene import SLOW_S, Scene, ScriptClient, echo, patiently, scripting

ISSUES: Json = {
    "type": "object",
    "properties": {
        "state": {"enum": ["open", "closed"]},
        "limit": {"type": "integer", "maximum": 100},
        "labels": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]},
    },
    "required": ["state"],
    "additionalProperties": False,
}


def flaws_of(arguments: str, schema: Json) -> list[str]:
    """Return what certainly does not fit in arguments that are written like this."""
    node = ast.parse(arguments, mode="eval").body
    _, flaws = find_certain_flaws(InputSchema(Raw(wire.encode(schema))), read_arguments(node))
    return list(map(str, flaws))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"state": "open"}',
        '{"state": state}',
        '{"state": "open", "limit": n + 1}',
        '{"state": "open", "limit": "5"}',  # which is repaired in the call
        '{"state": "open", "labels": "bug"}',
        '{"state": "open", "labels": ["bug", label, *more]}',
        '{"state": "open", "labels": [f"{x}" for x in y]}',
        '{"state": "open", "limit": -1}',
        '{"state": "open", "limit": 1e999}',
        '{"state": "open", "filter": dict(by=1)}',
        "{**options}",
        '{"limit": 5, **options}',
        '{"state": "wrong", **options}',  # it may be replaced
        '{key: "open"}',
        '{"state": "wrong", key: "open"}',
        '{"state": "wrong", "state": "open"}',
        "arguments",
        '{"state": "open"} | more',
        '{"args": {"state": "open"}}',
        '\'{"state": "open"}\'',
    ],
)
def test_what_may_be_right_is_never_an_error(arguments: str) -> None:
    assert flaws_of(arguments, ISSUES) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{}", "`state` is missing"),
        ("None", "`state` is missing"),
        ('{"limit": n}', "`state` is missing"),
        ('{"state": "opn"}', "`state`"),
        ('{"state": "opn", "limit": n}', "`state`"),
        ('{"state": "open", "limt": n}', "`limt` is not a parameter"),
        ('{**options, "limt": 1}', "`limt` is not a parameter"),
        ('{**options, "state": "opn"}', "`state`"),
        ('{"state": "open", "limit": 101}', "`limit`"),
        ('{"state": "open", "filter": {"by": 1, "x": y}}', "`filter.by`"),
        ('{"state": "open", "filter": {}}', "`filter`: `by` is missing"),
        ('{"state": "open", "labels": [1, label]}', "`labels[0]`"),
        ('["state", "open"]', "`args` is not an object"),
    ],
)
def test_what_cannot_be_right_is_an_error(arguments: str, message: str) -> None:
    (found,) = flaws_of(arguments, ISSUES)
    assert message in found


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}, {"properties": {"x": {"const": "y"}}, "required": ["x"]}]},
        {"oneOf": [{"required": ["a"]}, {"required": ["x"]}, {"required": ["b"]}]},
        {"if": {"properties": {"x": {"const": 1}}}, "else": {"required": ["a"]}},
        {
            "$ref": "#/$defs/all",
            "$defs": {"all": {"if": {"properties": {"x": {"const": 1}}}, "else": {"required": ["a"]}}},
        },
        {"not": {"properties": {"x": {"const": None}}, "required": ["x"]}},
        {"dependentSchemas": {"x": {"properties": {"x": {"type": "string"}}}}},
        {"properties": {"x": False}},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x$": {"type": "string"}}},
        {"propertyNames": {"minLength": 1}, "minProperties": 1},
        {"unevaluatedProperties": {"type": "string"}},
    ],
)
def test_what_depends_on_a_computed_value_is_no_error(schema: Json) -> None:
    assert flaws_of('{"x": computed}', {"type": "object", **schema}) == []


def test_a_parameter_with_a_default_is_never_missing() -> None:
    schema = {"properties": {"a": {"type": "integer", "default": 1}}, "required": ["a"]}
    assert flaws_of('{"b": x}', schema) == []


@pytest.mark.parametrize(
    "written", ['{"a": "\\ud800"}', '{"a": b"x"}', '{"a": 1j}', '{"a": ...}', '{"a": 9**9}', "{1: 2}"]
)
def test_what_is_no_json_is_unknown(written: str) -> None:
    assert flaws_of(written, {"properties": {"a": {"type": "null"}}, "additionalProperties": False}) == []


# --- signatures ----------------------------------------------------------------------------------------


def signature(schema: Json, output: Json = None, name: str = "list") -> str:
    definition = {"name": name, "inputSchema": schema} | ({"outputSchema": output} if output is not None else {})
    return sign("up", name, Raw(wire.encode(definition)))


def test_a_signature_has_the_types_of_arguments_and_result() -> None:
    output = {"type": "object", "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Issue"}}}}
    issue = {"type": "object", "properties": {"number": {"type": "integer"}, "by": {"type": ["string", "null"]}}}
    assert signature(ISSUES, {**output, "$defs": {"Issue": {**issue, "required": ["number"]}}}) == (
        'call("up", "list", {"state": "open" | "closed", "limit"?: int, "labels"?: list[str],'
        ' "filter"?: {"by": str}}) -> list[{"number": int, "by"?: str | None}]'
    )


def test_what_has_no_type_is_any() -> None:
    assert signature({"type": "object"}) == 'call("up", "list", dict)'
    assert signature({"properties": {"a": {}, "b": {"type": "x"}, "c": True, "d": {"$ref": "http://x"}}}) == (
        'call("up", "list", {"a"?: Any, "b"?: Any, "c"?: Any, "d"?: Any})'
    )


DEEP: Json = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"deeper": DEEP}}
HOSTILE: list[Json] = [
    {"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}},
    {"properties": {"a": {"enum": [f"value {n}" for n in range(10_000)]}}},
    {"properties": {"a": {"$ref": "#/properties/a"}}},
    {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties"}}},
    {"properties": {"a": {"anyOf": [{"anyOf": [{"$ref": "#"}] * 50}] * 50}}},
    {"properties": {'"""\nimport os\nos.system("x")\n"""': {"type": "string", "description": '"""\n'}}},
    {"properties": {"\x1b[31m\u202e": {"const": "\x1b]0;x\x07"}}},
    {"properties": {"a": {"enum": [{}, [], 10**400, "x" * 100_000]}}},
    {"properties": ["a"], "required": {"a": 1}, "anyOf": 3, "enum": "x", "type": [[]]},
    {"properties": {"a": 1, "": None}, "required": [["a"], {}]},
    {"$ref": 1, "type": {"a": 1}},
    {"$ref": "#/a/b/~1~0"},
    [],
    "x",
    DEEP,
]


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_hostile_schema_makes_a_short_line(schema: Json) -> None:
    written = signature(schema, schema)
    assert len(written) <= 2001
    assert written.isprintable()
    assert written.startswith('call("up", "list", ')


def test_a_name_stays_inside_its_quotes() -> None:
    name = 'x"); import os  # '
    assert signature({}, name=name).startswith(f'call("up", {msgspec.json.encode(name).decode()}, ')


def test_nested_by_ten_thousand_is_any() -> None:
    data = b'{"name":"list","inputSchema":' + b'{"items":' * 10_000 + b"{}" + b"}" * 10_000 + b"}"
    assert sign("up", "list", Raw(data)) == 'call("up", "list", Any)'


# --- scripts -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def typed(schema: Json = None, **changes: Json) -> AsyncIterator[tuple[Scene, ScriptClient]]:
    """Run a proxy whose server `up` has the tool `list_issues`."""
    async with scripting(echo, **changes) as (scene, client):
        listed = tool("list_issues", inputSchema=ISSUES if schema is None else schema)
        scene.upstream.answers["tools/list"] = {"tools": [listed, tool("echo")]}
        yield scene, client


async def test_an_error_shows_the_line_and_how_the_tool_is_called_and_nothing_was_called() -> None:
    async with typed() as (scene, client):
        code = 'await call("up", "echo")\nissues = await call("up", "list_issues", {"state": "opn", "limit": 3})'
        words = await client.failure(code)
        assert words.startswith('line 2: `issues = await call("up", "list_issues", {"state": "opn", "limit": 3})`\n')
        assert '"opn" is not one of' in words
        assert 'call("up", "list_issues", {"state": "open" | "closed", "limit"?: int' in words
        assert words.endswith("nothing was called")
        assert scene.upstream.heard("tools/call") == []


async def test_all_lines_that_are_wrong_are_told_at_once() -> None:
    async with typed() as (_, client):
        words = await client.failure(
            'await call("up", "list_issues")\nawait call("up", "list_isues")\nawait call("u")'
        )
        assert words.startswith("line 1: ")
        assert "`state` is missing" in words
        assert "line 2: `" in words
        assert "did you mean `list_issues`?" in words


async def test_a_group_or_a_tool_that_does_not_exist_is_told_as_the_call_would() -> None:
    async with typed() as (scene, client):
        for group, name in (("upp", "echo"), ("up", "ecko")):
            plain = await client.call(group, name, {})
            found = await client.failure(f'await call("{group}", "{name}")')
            assert plain["content"][0]["text"] in found
        assert scene.upstream.heard("tools/call") == []


async def test_a_name_that_carries_its_group_is_the_tool() -> None:
    async with typed() as (_, client):
        assert await client.value('await call("up", "up__list_issues", {"state": "open"})') == {"state": "open"}
        assert "`state` is missing" in await client.failure('await call("up", "up__list_issues")')


async def test_a_script_that_redefines_call_is_not_checked() -> None:
    async with typed() as (_, client):
        code = 'def call(group, name): return group + name\nreturn call("no", "thing")'
        assert await client.value(code) == "nothing"


async def test_arguments_are_not_checked_where_the_config_says_so() -> None:
    async with typed() as (scene, client):
        assert "`state` is missing" in await client.failure('await call("up", "list_issues")')
        off = CallHandling(validate="off", limit=100_000, compact=False)
        groups = [group_config(name, share=Share.ALL, answers=off) for name in ("up", "other")]
        scene.proxy.apply(config_of(*groups, scripts=Scripts()))
        assert await client.value('return await call("up", "list_issues")') == {}


async def test_a_server_that_cannot_be_asked_is_no_error_of_types() -> None:
    async with typed() as (scene, client):
        scene.upstream.deaf = "it is gone"
        scene.other.deaf = "it is gone"
        code = 'try:\n    await call("other", "echo")\nexcept ToolError:\n    return "caught"'
        assert await client.value(code) == "caught"


async def test_a_schema_from_disk_is_read_again_before_a_script_is_refused(tmp_path: Path) -> None:
    config = config_of(group_config("up", share=Share.ALL), scripts=Scripts())
    words = []
    for schema in (ISSUES, ISSUES, {"type": "object"}):
        upstream = FakeUpstream({"tools/call": echo})
        upstream.answers["tools/list"] = {"tools": [tool("list_issues", inputSchema=schema)]}
        proxy = Proxy(config, opener=Opener(up=[upstream]), catalog_store=CatalogStore(tmp_path))
        client = ScriptClient(proxy, bound_s=SLOW_S)
        await client.initialize()
        words.append(text_of(await client.run('return await call("up", "list_issues")')))
        await proxy.close()
    assert ["`state` is missing" in each for each in words] == [True, True, False]
    assert words[-1] == "{}"


@pytest.mark.parametrize("schema", [each for each in HOSTILE if isinstance(each, dict)])
async def test_a_hostile_schema_holds_up_no_right_script(schema: dict[str, Json]) -> None:
    async with typed({"type": "object", **schema}) as (_, client):
        assert await client.value('return await call("up", "list_issues", {"x": input})', 1) == {"x": 1}


async def test_servers_that_do_not_answer_hold_a_script_up_for_no_longer_than_a_bound() -> None:
    clock = FakeClock()
    async with typed(clock=clock) as (scene, client):
        del scene.other.answers["initialize"]
        code = 'if input:\n    await call("other", "echo")\nreturn await call("up", "list_issues", {"state": "open"})'
        running = asyncio.create_task(client.value(code))
        await patiently(scene.other.hears, "initialize")
        await clock.pass_(10)
        assert await running == {"state": "open"}


async def test_the_text_of_a_script_is_read_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def read(code: str) -> ScriptNames:
        threads.append(threading.current_thread())
        return read_names(code)

    monkeypatch.setattr(run, "read_names", read)
    async with typed() as (_, client):
        assert await client.value('return await call("other", "echo", {"n": 1})') == {"n": 1}
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
