"""What fits the schema that is shown is what fits the server's, once the config's own part is put in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.schema import InputSchema
from tests.examples import examples
from tests.features.overrides.overridden import Json, overrides_of

NAMES = ("a", "b", "c")
VALUES = (0, 1, "x")
VALUE = st.sampled_from(VALUES)
NAME = st.sampled_from(NAMES)

OF_VALUES: st.SearchStrategy[Json] = st.one_of(
    st.just({}),
    st.just({"$ref": "#/$defs/text"}),
    st.sampled_from(
        [{"type": "string"}, {"type": "integer"}, {"const": 1}, {"enum": [0, "x"]}, {"not": {"const": 0}}]
    ),
)
REQUIRED = st.lists(NAME, min_size=1, max_size=2, unique=True)


def _parts(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    branches = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(NAME, OF_VALUES, max_size=3),
            "required": REQUIRED,
            "additionalProperties": st.one_of(st.just(False), OF_VALUES),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "[ab]"]), OF_VALUES, min_size=1, max_size=1),
            "allOf": branches,
            "anyOf": branches,
            "oneOf": branches,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentRequired": st.dictionaries(NAME, REQUIRED, min_size=1, max_size=2),
            "dependencies": st.dictionaries(NAME, st.one_of(REQUIRED, inner), min_size=1, max_size=1),
            "dependentSchemas": st.dictionaries(NAME, inner, min_size=1, max_size=1),
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
        },
    )


PART: st.SearchStrategy[Json] = st.recursive(_parts(st.nothing()) | st.booleans(), _parts, max_leaves=6)
PLAIN = st.fixed_dictionaries({}, optional={"properties": st.dictionaries(NAME, OF_VALUES), "required": REQUIRED})


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    root = draw(PART)
    assume(isinstance(root, dict))
    definitions = {"text": {"type": "string"}, "one": draw(PLAIN), "two": draw(PLAIN)}
    draft = draw(st.sampled_from([{}, {}, {"$schema": "http://json-schema.org/draft-07/schema#"}]))
    return {**draft, **root, "type": "object", "$defs": definitions}


ARGUMENT = st.one_of(
    st.builds(lambda value: {"fixed": value}, VALUE),
    st.builds(lambda value: {"default": value}, VALUE),
    st.just({"hide": True}),
    st.builds(lambda value: {"hide": True, "default": value}, VALUE),
    st.just({"description": "other words"}),
    st.sampled_from(["renamed", "new"]).map(lambda name: {"rename": name}),
    st.builds(lambda value: {"rename": "late", "default": value}, VALUE),
)
OVERRIDES = st.dictionaries(NAME, ARGUMENT, min_size=1, max_size=3)
GIVEN = st.dictionaries(st.sampled_from([*NAMES, "renamed", "new", "late"]), VALUE, max_size=4)


@examples(600)
@given(schemas(), OVERRIDES, st.lists(GIVEN, min_size=1, max_size=8))
def test_what_fits_the_shown_schema_is_what_fits_the_servers_once_restored(
    schema: Json, arguments: Json, calls: list[Json]
) -> None:
    entry = Raw(msgspec.json.encode({"name": "t", "inputSchema": schema}))
    tools = overrides_of(t={"arguments": arguments}).show({"t": entry})
    if not tools.by_name:
        assert tools.complaints
        return
    shown = InputSchema(wire.member(tools.entries["t"], "inputSchema"))
    own = InputSchema(wire.member(entry, "inputSchema"))
    unshown = {name for name, each in arguments.items() if "fixed" in each or "hide" in each}
    for call in calls:
        given_arguments = Raw(msgspec.json.encode(call))
        try:
            sent = tools.by_name["t"].restore(given_arguments)
        except InvalidArguments:
            continue  # of names that are not shown
        assert sent is not None
        if unshown.isdisjoint(call):  # a fixed one that is given is replaced, which no schema says
            assert shown.accepts(given_arguments) == own.accepts(sent), (call, sent, tools.entries)


@examples(100)
@given(schemas(), st.lists(GIVEN, min_size=1, max_size=3))
def test_a_tool_that_no_override_is_about_stays_the_same_object(schema: Json, calls: list[Json]) -> None:
    tools = {"t": Raw(msgspec.json.encode({"name": "t", "inputSchema": schema}))}
    found = overrides_of(u={"arguments": {"a": {"fixed": 1}}}).show(tools)
    assert found.entries is tools
    for call in calls:
        given_arguments = Raw(msgspec.json.encode(call))
        assert found.by_name["t"].restore(given_arguments) is given_arguments


def _shown(schema: Json, **arguments: Json) -> Json:
    entry = Raw(msgspec.json.encode({"name": "t", "inputSchema": schema}))
    found = overrides_of(t={"arguments": arguments}).show({"t": entry})
    assert not found.complaints
    return msgspec.json.decode(wire.member(found.entries["t"], "inputSchema"))


ACTIONS: Json = {
    "type": "object",
    "properties": {"action": {"enum": ["get", "set"]}, "id": {"type": "string"}, "value": {}},
    "required": ["action", "id"],
    "if": {"properties": {"action": {"const": "set"}}},
    "then": {"required": ["value"]},
    "else": {"properties": {"value": False}},
}


def test_a_condition_that_a_fixed_argument_settles_goes() -> None:
    properties = {"id": {"type": "string"}, "value": {}}
    assert _shown(ACTIONS, action={"fixed": "set"}) == {
        "type": "object",
        "properties": properties,
        "required": ["id", "value"],
    }
    assert _shown(ACTIONS, action={"fixed": "get"}) == {
        "type": "object",
        "properties": properties,
        "required": ["id"],
        "allOf": [{"properties": {"value": False}}],
    }


def test_branches_that_a_fixed_argument_excludes_go() -> None:
    circle = {"properties": {"kind": {"const": "circle"}, "radius": {}}, "required": ["kind", "radius"]}
    square = {"properties": {"kind": {"const": "square"}, "side": {}}, "required": ["kind", "side"]}
    schema = {"type": "object", "oneOf": [circle, square]}
    assert _shown(schema, kind={"fixed": "circle"}) == {
        "type": "object",
        "properties": {"radius": {}},
        "required": ["radius"],
    }


def test_a_definition_that_only_the_arguments_use_is_written_in_their_place() -> None:
    schema = {
        "$ref": "#/$defs/Args",
        "$defs": {
            "Args": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/Text"}, "b": {}},
                "required": ["a", "b"],
            },
            "Text": {"type": "string"},
        },
    }
    assert _shown(schema, b={"fixed": 1}) == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Text"}},
        "required": ["a"],
        "$defs": {"Text": {"type": "string"}},
    }


def test_a_title_that_only_repeats_the_name_goes_with_it() -> None:
    properties = {"due_date": {"title": "Due Date"}, "id": {"title": "The number"}}
    schema = {"type": "object", "properties": properties}
    shown = _shown(schema, due_date={"rename": "until"}, id={"rename": "number"})
    assert shown["properties"] == {"until": {}, "number": {"title": "The number"}}
    assert _shown(schema, due_date={"description": "D"})["properties"]["due_date"]["title"] == "Due Date"


def test_examples_of_whole_arguments_would_show_what_is_not_there() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "examples": [{"a": "secret"}], "default": {"a": "secret"}}
    assert "secret" not in str(_shown(schema, a={"hide": True}))
    assert _shown(schema, a={"description": "A"})["examples"] == [{"a": "secret"}]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"unevaluatedProperties": False}, "has `unevaluatedProperties`"),
        ({"minProperties": 2}, "has `minProperties`"),
        ({"propertyNames": {"pattern": "^a"}}, "has `propertyNames`"),
        ({"enum": [{"a": 1}]}, "has `enum`"),
        ({"$ref": "https://elsewhere.example/schema"}, "cannot be followed"),
        ({"allOf": [{"$ref": "#"}]}, "cannot be followed"),
        ({"properties": {"a": {}, "b": {"$ref": "#"}}}, "would be another one"),
        ({"properties": {"a": {"$id": "x"}, "b": {"$ref": "#/$defs/c"}}}, "depend on where they are"),
        ({"patternProperties": {"(?=x)": {}}}, "cannot be understood"),
        ({"properties": []}, "is malformed"),
        ({"not": {"required": ["a"]}}, "no call of it would fit"),
    ],
)
def test_a_tool_whose_schema_cannot_be_shown_rightly_is_left_out(schema: Json, why: str) -> None:
    entry = Raw(msgspec.json.encode({"name": "t", "inputSchema": {"type": "object", **schema}}))
    found = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show({"t": entry})
    assert not found.entries
    assert why in found.complaints[0]


def test_a_hostile_schema_is_given_up_within_bounds() -> None:
    wide = {"anyOf": [{"properties": {"a": {"type": "string"}}}] * 20_000}
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    deep = b'{"allOf":[' * 5000 + b"{}" + b"]}" * 5000
    deep_value = b'{"properties":{"a":{"$ref":"#/$defs/x","items":' + b'{"items":' * 400 + b"{}" + b"}" * 400 + b"}}}"
    written = [wide, {"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {}}}]
    for schema in (*map(msgspec.json.encode, written), deep, deep_value):
        entry = Raw(b'{"name":"t","inputSchema":%s}' % schema)
        found = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show({"t": entry})
        assert found.complaints or schema is deep_value
