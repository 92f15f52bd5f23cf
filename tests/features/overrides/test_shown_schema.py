"""What fits the schema that is shown is what fits the server's, once the config's own part is put in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
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


# keywords for which a schema is not rewritten
CONDITIONS: st.SearchStrategy[Json] = st.sampled_from(
    [
        {"allOf": [{"properties": {"a": {"const": 1}}}]},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"oneOf": [{"properties": {"c": {}}, "required": ["c"]}, {"properties": {"a": {"type": "string"}}}]},
        {"not": {"required": ["b"]}},
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"dependentRequired": {"a": ["b"]}},
        {"dependencies": {"a": ["b"]}},
        {"$ref": "#/$defs/one"},
        {"patternProperties": {"^a": {"type": "string"}}},
        {"minProperties": 2},
    ]
)


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    root = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(NAME, OF_VALUES, max_size=3),
                "required": REQUIRED,
                "additionalProperties": st.one_of(st.just(False), OF_VALUES),
            },
        )
    )
    conditions: Json = draw(st.one_of(st.just({}), st.just({}), CONDITIONS))
    definitions = {"text": {"type": "string"}, "one": {"properties": {"b": {"type": "integer"}}}}
    draft = draw(st.sampled_from([{}, {}, {"$schema": "http://json-schema.org/draft-07/schema#"}]))
    return {**draft, **root, **conditions, "type": "object", "$defs": definitions}


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


def test_definitions_that_arguments_use_stay() -> None:
    properties: Json = {
        "a": {"$ref": "#/$defs/Text"},
        "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "c": {},
    }
    definitions = {"Text": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["a", "c"], "$defs": definitions}
    assert _shown(schema, c={"fixed": 1}, a={"rename": "text"}, b={"default": None, "description": "B"}) == {
        "type": "object",
        "properties": {"text": properties["a"], "b": {**properties["b"], "description": "B"}},
        "required": ["text"],
        "$defs": definitions,
    }


def test_a_default_that_does_not_fit_is_still_required() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Text"}}, "$defs": {"Text": {"type": "string"}}}
    assert _shown(schema, a={"default": 1})["required"] == ["a"]
    assert _shown(schema, a={"default": "x"})["properties"]["a"]["default"] == "x"


def test_other_words_for_an_argument_need_no_rewriting() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]}
    assert _shown(schema, a={"description": "A"}) == {**schema, "properties": {"a": {"description": "A"}}}


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
        ({"oneOf": [{"properties": {"a": {}}}]}, "has `oneOf`"),
        ({"if": {"required": ["a"]}, "then": {}}, "has `if`"),
        ({"dependentRequired": {"a": ["b"]}}, "has `dependentRequired`"),
        ({"patternProperties": {"(?=x)": {}}}, "has `patternProperties`"),
        ({"unevaluatedProperties": False}, "has `unevaluatedProperties`"),
        ({"minProperties": 2}, "has `minProperties`"),
        ({"propertyNames": {"pattern": "^a"}}, "has `propertyNames`"),
        ({"enum": [{"a": 1}]}, "has `enum`"),
        ({"$ref": "https://elsewhere.example/schema"}, "has `$ref`"),
        ({"properties": {"a": {}, "b": {"$ref": "#"}}}, "refers to `#`"),
        ({"properties": {"a": {}}, "$defs": {"x": {"$ref": "#/properties/a"}}}, "refers to `#/properties/a`"),
        ({"properties": {"a": {"$id": "x"}, "b": {"$ref": "x"}}}, "refers to `x`"),
        ({"properties": []}, "is malformed"),
        ({"required": {}}, "is malformed"),
    ],
)
def test_a_tool_whose_schema_cannot_be_shown_rightly_is_left_out(schema: Json, why: str) -> None:
    entry = Raw(msgspec.json.encode({"name": "t", "inputSchema": {"type": "object", **schema}}))
    found = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show({"t": entry})
    assert not found.entries
    assert why in found.complaints[0]


def test_a_glob_leaves_out_a_tool_that_describes_its_argument_in_a_condition_only() -> None:
    schema = {"type": "object", "oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    tools = {"t": Raw(msgspec.json.encode({"name": "t", "inputSchema": schema}))}
    assert "has `oneOf`" in overrides_of(**{"*": {"arguments": {"a": {"fixed": 1}}}}).show(tools).complaints[0]
    assert overrides_of(**{"*": {"arguments": {"z": {"fixed": 1}}}}).show(tools).entries is tools


def test_a_hostile_schema_is_given_up_within_bounds() -> None:
    wide = msgspec.json.encode({"anyOf": [{"properties": {"a": {"type": "string"}}}] * 20_000})
    deep = b'{"properties":{"a":{}},"x":' + b'{"x":' * 50_000 + b"{}" + b"}" * 50_001
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    huge = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**doubling, "d30": {}}}
    for schema, is_shown in ((wide, False), (deep, False), (msgspec.json.encode(huge), True)):
        entry = Raw(b'{"name":"t","inputSchema":%s}' % schema)
        found = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show({"t": entry})
        assert bool(found.entries) is is_shown
