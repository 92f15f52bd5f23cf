"""Schemas of documents become JSON Schema that is valid, finite and closed."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dynamic_mcp.openapi.document import BadReference, Document
from dynamic_mcp.openapi.json_schema import SchemaWriter
from tests.fakes import Json


def write(schema: Json, *, version: str = "3.1.0", **schemas: Any) -> Any:  # Any: JSON
    """Return a schema with its definitions."""
    tree = {"openapi": version, "components": {"schemas": schemas}}
    writer = SchemaWriter(Document(tree))
    written = writer.write(schema)
    assert isinstance(written, dict)
    return {**written, **({"$defs": writer.definitions} if writer.definitions else {})}


def accepts(schema: Json, value: Json) -> bool:
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema).is_valid(value)


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


PET = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CAT = {"allOf": [ref("Pet"), {"type": "object", "properties": {"lives": {"type": "integer"}}}]}


def test_an_object_with_properties_is_closed_and_a_free_one_is_not() -> None:
    assert not accepts(write(PET), {"name": "a", "other": 1})
    assert accepts(write({"type": "object"}), {"other": 1})
    assert accepts(write({**PET, "additionalProperties": {"type": "integer"}}), {"name": "a", "other": 1})
    assert not accepts(write({"type": "array", "items": PET}), [{"name": "a", "other": 1}])


def test_parts_of_one_object_are_closed_together() -> None:
    schema = write(CAT, Pet=PET)
    assert accepts(schema, {"name": "Tom", "lives": 9})
    assert not accepts(schema, {"name": "Tom", "lives": 9, "other": 1})
    assert not accepts(schema, {"lives": 9})
    both = write({"type": "array", "items": {"anyOf": [ref("Pet"), ref("Cat")]}}, Pet=PET, Cat=CAT)
    assert accepts(both, [{"name": "a"}, {"name": "b", "lives": 1}])
    assert not accepts(both, [{"name": "a", "other": 1}])


def test_a_choice_beside_properties_may_name_more_of_them() -> None:
    schema = write(
        {**PET, "oneOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}, "required": ["b"]}]}
    )
    assert accepts(schema, {"name": "x", "a": 1})
    assert not accepts(schema, {"name": "x", "a": 1, "c": 1})


def test_a_free_object_among_parts_stays_free() -> None:
    assert accepts(write({"allOf": [PET, {"type": "object"}]}), {"name": "a", "other": 1})
    assert accepts(write({"description": "x", "allOf": [ref("Free")]}, Free={"type": "object"}), {"other": 1})


def test_circles_are_finite() -> None:
    tree = {"type": "object", "properties": {"value": {}, "children": {"type": "array", "items": ref("Tree")}}}
    schema = write(ref("Tree"), Tree=tree)
    assert [*schema["$defs"]] == ["Tree"]
    assert accepts(schema, {"children": [{"value": 1, "children": []}]})
    assert not accepts(schema, {"children": [{"other": 1}]})
    assert write(ref("A"), A=ref("B"), B=ref("A")) == {}
    first: Json = {"allOf": [ref("B"), {"type": "object"}]}
    circle: Json = {"A": first, "B": {"type": "object", "properties": {"a": ref("A")}}}
    assert accepts(write(ref("A"), **circle), {"a": {}})


def test_nullable_of_3_0_accepts_null_and_no_more() -> None:
    for schema in (
        {"type": "string", "nullable": True},
        {"type": "string", "nullable": True, "enum": ["a"]},
        {"allOf": [ref("Pet")], "nullable": True, "description": "x"},
        {"nullable": True, "oneOf": [PET]},
    ):
        written = write(schema, version="3.0.3", Pet=PET)
        assert accepts(written, None)
        assert not accepts(written, 1)
        assert not accepts(write({**schema, "nullable": False}, version="3.0.3", Pet=PET), None)


def test_exclusive_bounds_of_both_versions_are_kept() -> None:
    old = write({"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 5}, version="3.0.3")
    assert [accepts(old, value) for value in (1, 2, 5, 6)] == [False, True, True, False]
    new = write({"type": "integer", "exclusiveMinimum": 1, "maximum": 5})
    assert [accepts(new, value) for value in (1, 2, 5, 6)] == [False, True, True, False]


def test_members_that_only_the_service_sets_cannot_be_sent() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string", "readOnly": True}, "a": {}},
        "required": ["id"],
    }
    written = write(schema)
    assert accepts(written, {"a": 1})
    assert not accepts(written, {"id": "1", "a": 1})


def test_bytes_are_given_as_base64() -> None:
    for schema in ({"type": "string", "format": "binary"}, {"contentMediaType": "image/png"}):
        assert write(schema) | {"contentMediaType": 1} == {
            "type": "string",
            "contentEncoding": "base64",
            "description": "The content as base64.",
            "contentMediaType": 1,
        }


def test_keywords_of_a_wrong_type_and_extensions_are_left_out() -> None:
    schema = {
        "type": "file",
        "required": True,
        "enum": [],
        "minLength": "3",
        "multipleOf": 0,
        "pattern": 1,
        "properties": [],
        "items": "x",
        "allOf": {},
        "x-internal": {},
        "xml": {},
        "example": 1,
        "discriminator": {},
    }
    assert write(schema) == {}


def test_a_reference_of_3_1_keeps_what_stands_beside_it() -> None:
    assert write({**ref("Pet"), "description": "Mine."}, Pet=PET)["description"] == "Mine."
    more = write({**ref("Pet"), "properties": {"age": {"type": "integer"}}}, Pet=PET)
    assert accepts(more, {"name": "a", "age": 1})
    assert not accepts(more, {"name": "a", "other": 1})
    assert "minLength" not in write({**ref("Text"), "minLength": 3}, version="3.0.0", Text={"type": "string"})


def test_true_and_false_are_schemas() -> None:
    schema = write({"type": "object", "properties": {"any": True, "none": False}})
    assert accepts(schema, {"any": 1})
    assert not accepts(schema, {"none": 1})


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$id"])
def test_what_depends_on_its_place_is_refused(keyword: str) -> None:
    with pytest.raises(BadReference, match="is not supported"):
        write({"type": "object", "properties": {"a": {keyword: "#x"}}})


def test_deep_nesting_is_refused() -> None:
    schema: Json = {"type": "string"}
    for _ in range(500):
        schema = {"type": "array", "items": schema}
    with pytest.raises(BadReference, match="nested too deeply"):
        write(schema)


def test_names_of_definitions_are_plain_and_apart() -> None:
    schemas: Json = {"a/b": {"properties": {"a b": PET}}, "a b": PET}
    inner = {"$ref": "#/components/schemas/a~1b/properties/a b"}
    schema = write({"anyOf": [ref("a~1b"), ref("a b"), inner]}, **schemas)
    assert [*schema["$defs"]] == ["a_b", "a_b_2", "a_b_3"]
