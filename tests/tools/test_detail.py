"""A tool is shown as briefly as requested, and an odd one breaks nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.tools.detail import Detail, first_sentence, format_signature, format_tool, format_tools
from tests.examples import examples

Json = Any  # whatever JSON a test writes down


def show(tool: bytes, detail: Detail = Detail.BRIEF) -> Json:
    return json.loads(format_tool("t", Raw(tool), detail))


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({}, "()"),
        ({"properties": {}}, "()"),
        ({"properties": {"a": {"type": "string"}}}, "(a?: str)"),
        ({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["b"]}, "(b, a?: str)"),
        ({"properties": {"a": {"enum": ["x", 1, None]}}}, "(a?: x|1|null)"),
        ({"properties": {"a": {"const": "x"}}}, "(a?: x)"),
        ({"properties": {"a": {"type": "array", "items": {"enum": ["x", "y"]}}}}, "(a?: (x|y)[])"),
        ({"properties": {"a": {"type": "array"}}}, "(a?: [])"),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}}},
            "(a?: str|int)",
        ),
        ({"properties": {"a": {"oneOf": [{"$ref": "#/x"}, {"type": "boolean"}]}}}, "(a?: any|bool)"),
        ({"properties": {"a": {"type": "object", "properties": {"x": {}}}}}, "(a?: {x})"),
        ({"properties": {"a": {"type": "object"}, "b": {"type": "hologram"}}}, "(a?: {}, b?: hologram)"),
        ({"properties": {"a": True, "b": 5, "c": None}}, "(a?, b?, c?)"),
        ({"properties": {"a": {"enum": "x"}, "b": {"type": 5}}, "required": 5}, "(a?, b?)"),
        ({"properties": {"a\nb": {}}, "required": [["a"], "z", 5]}, "(a b?)"),
        ({"properties": [1]}, "()"),
    ],
)
def test_a_signature_names_what_is_needed_first_and_the_types(schema: Json, line: str) -> None:
    assert format_signature(schema) == line


def test_a_signature_is_bounded() -> None:
    wide = {f"parameter_{n}": {"enum": ["value" * 100] * 1000} for n in range(5000)}

    line = format_signature({"properties": wide})

    assert len(line) < 1000
    assert line.endswith("4988 more)")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("Open an issue", "Open an issue"),
        ("Open an issue. Then close it.", "Open an issue."),
        ("Use v1.2 of it, e.g. for this. More", "Use v1.2 of it, e.g. for this."),
        ("Does it work? It does!", "Does it work?"),
        ("\n  First line\nand on.\n\nMore", "First line and on."),
        ("天気を調べる。都市の名前。", "天気を調べる。"),
        ("a\x00b\x1b[2J\u2028c", "a b [2J c"),
    ],
)
def test_the_first_sentence_is_one_line(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_a_long_sentence_is_cut() -> None:
    assert len(first_sentence("word " * 100_000)) <= 160
    assert first_sentence("word " * 100_000).endswith("…")


@pytest.mark.parametrize(
    "tool",
    [
        b"{}",
        b'{"inputSchema":null,"description":5,"title":[]}',
        b'{"inputSchema":' + b'{"properties":{"a":' * 400 + b"1" + b"}}" * 400 + b"}",
        b'{"description":"\\ud800","inputSchema":{"properties":{"\\ud800":{"enum":["\\udfff"]}}}}',
    ],
    ids=lambda tool: tool[:30],
)
def test_an_odd_tool_is_shown_in_brief_all_the_same(tool: bytes) -> None:
    assert show(tool)["name"] == "t"


def test_the_title_stands_in_for_a_description() -> None:
    assert show(b'{"title":"Open issue"}')["description"] == "Open issue"


@examples(100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["properties", "type", "enum", "items", "anyOf", "required", "a"]), inner, max_size=4
            )
        ),
        max_leaves=20,
    )
)
def test_whatever_a_schema_is_it_is_shown(schema: Json) -> None:
    tool = json.dumps({"inputSchema": schema}).encode()

    for detail in Detail:
        assert format_tool("t", Raw(tool), detail, group="g").startswith('{"group":"g",')


# --- the text for a model ------------------------------------------------------------------------------


def _text(*tools: bytes) -> str:
    return format_tools(format_tool(str(n), Raw(each), Detail.FULL) for n, each in enumerate(tools))


def test_tools_are_one_compact_object_with_the_members_that_a_model_can_use() -> None:
    text = _text(
        b'{"name":"b", "description":"d", "_meta":{}, "icons":[], "inputSchema":{"type": "object", "$schema":"x"},'
        b' "outputSchema":{"type":"object"}, "title":"T", "annotations":{"readOnlyHint": true}, "execution":{}}',
        b'{"name":"a","inputSchema":{"type":"object"}}',
    )

    first, second = json.loads(text)["tools"]
    assert first == {
        "name": "b",
        "title": "T",
        "description": "d",
        "inputSchema": {"type": "object", "$schema": "x"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    assert second == {"name": "a", "inputSchema": {"type": "object"}}
    assert text == json.dumps({"tools": [first, second]}, separators=(",", ":"))


def test_the_text_changes_no_number_no_order_and_no_escape() -> None:
    text = _text(rb'{"inputSchema":{"maximum":1' + b"0" * 40 + rb',"b":1.50,"a":"\u00e9\/"},"name":"x"}')

    assert text == r'{"tools":[{"name":"x","inputSchema":{"maximum":1' + "0" * 40 + r',"b":1.50,"a":"\u00e9\/"}}]}'


@pytest.mark.parametrize("schema", [b"", b',"inputSchema":null', b',"inputSchema":"object"', b',"inputSchema":[]'])
def test_a_tool_without_a_schema_gets_the_least_that_one_must_have(schema: bytes) -> None:
    assert json.loads(_text(b'{"name":"x"' + schema + b"}")) == {
        "tools": [{"name": "x", "inputSchema": {"type": "object"}}]
    }


def test_no_tools_are_an_empty_list() -> None:
    assert _text() == '{"tools":[]}'
