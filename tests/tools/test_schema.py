"""A schema checks arguments in bounded time, and is not enforced if that is impossible."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.tools.schema import InputSchema

Json = Any  # whatever JSON a test writes down
LEVELS = 30


def raw(value: Json) -> Raw:
    return Raw(json.dumps(value).encode())


def schema(value: Json) -> InputSchema:
    return InputSchema(raw(value))


def nested_schema(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth):
        value = {"x": value}
    return value


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


def test_arguments_that_fit_are_taken_and_others_are_not() -> None:
    person = schema(PERSON)

    assert person.accepts(raw({"name": "Ann", "age": 5}))
    assert not person.accepts(raw({"name": 5}))
    assert not person.accepts(raw({}))
    assert not person.accepts(raw({"name": "Ann", "agee": 5}))


def test_every_flaw_is_told_with_its_place() -> None:
    told = [str(flaw) for flaw in schema(PERSON).find_flaws(raw({"age": "5", "agee": 1}))]

    assert '`age`: "5" is not of type "integer"' in told
    assert "`name` is missing" in told
    assert "`agee` is not a parameter" in told


def doubling_schema(keyword: str) -> Json:
    """Return a schema of a few hundred bytes that expands to 2^LEVELS parts."""
    definitions = {}
    for n in range(LEVELS):
        ref = {"$ref": f"#/$defs/a{n + 1}"}
        twice = {
            "allOf": {"allOf": [ref, ref]},
            "properties": {"properties": {"x": ref}, "patternProperties": {"x": ref}},
        }
        definitions[f"a{n}"] = twice[keyword]
    return {"$defs": {**definitions, f"a{LEVELS}": {"type": "object"}}, "$ref": "#/$defs/a0"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("keyword", ["allOf", "properties"])
def test_a_small_schema_that_unfolds_to_billions_of_parts_is_not_enforced(keyword: str) -> None:
    found = schema(doubling_schema(keyword))

    assert not found.is_enforced
    assert found.accepts(raw(nested_schema(LEVELS)))


@pytest.mark.parametrize(
    "written",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"type": "objekt"},
        {"pattern": "("},
        {"$schema": "http://127.0.0.1:9/dialect", "required": ["a"]},
        [],
        5,
        {"properties": {f"p{n}": {"description": "d" * 1000} for n in range(2000)}},
    ],
    ids=["remote", "file", "dangling", "type", "pattern", "dialect", "list", "number", "huge"],
)
def test_a_schema_that_cannot_be_used_is_not_enforced(written: Json) -> None:
    assert not schema(written).is_enforced
    assert schema(written).accepts(raw({"any": 1}))
    assert schema(written).find_flaws(raw({"any": 1})) == []


@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_schema_nested_without_end_is_not_enforced(depth: int) -> None:
    assert not InputSchema(Raw(b'{"not":' * depth + b"{}" + b"}" * depth)).is_enforced


def test_a_schema_that_refers_to_itself_is_enforced_to_any_depth() -> None:
    tree = schema({"properties": {"x": {"$ref": "#"}, "n": {"type": "integer"}}})

    assert tree.accepts(raw(nested_schema(200)))
    assert not tree.accepts(raw({"x": {"x": {"n": "1"}}}))
    assert schema({"$ref": "#", "type": "object"}).accepts(raw({}))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(?=(a+)+b)(a|a)*\1$"], ids=["nested", "lookahead"])
def test_a_pattern_that_could_backtrack_for_ever_ends(pattern: str) -> None:
    schema({"properties": {"s": {"pattern": pattern}}}).accepts(raw({"s": "a" * 100_000 + "!"}))


@pytest.mark.timeout(30)
def test_ten_megabytes_of_wrong_arguments_are_told_their_first_flaw() -> None:
    found = schema({"properties": {"list": {"items": {"type": "integer"}}, "s": {"maxLength": 3}}})

    assert len(found.find_flaws(raw({"list": ["a"] * 2_000_000}))) == 1
    (flaw,) = found.find_flaws(raw({"s": "x" * 10_000_000}))
    assert len(str(flaw)) < 1000


@pytest.mark.parametrize("value", [b"1e400", rb'"\ud800"'], ids=["number", "surrogate"])
def test_what_cannot_be_represented_is_not_judged(value: bytes) -> None:
    assert schema({"properties": {"a": {"type": "boolean"}}}).accepts(Raw(b'{"a":' + value + b"}"))


def test_parameters_are_those_of_every_branch_and_reference() -> None:
    found = schema(
        {
            "$defs": {"more": {"properties": {"c": {}}}},
            "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/more"}],
        }
    )

    assert set(found.parameters) == {"a", "b", "c"}
    assert found.allows_parameter("a")
    assert not found.allows_parameter("d")
    assert schema({**PERSON, "additionalProperties": {"type": "string"}}).allows_parameter("d")
