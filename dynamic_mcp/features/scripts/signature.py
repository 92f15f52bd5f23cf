"""Shows how a tool is called in a script: a line with the types of its arguments and its result.

It is short whatever the schemas are, and never more than text: names are quoted, and descriptions left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import replace_unprintable

_MOST_MEMBERS = 30
_MOST_PARTS = 200
_MOST_CHOICES = 8
_DEEPEST = 4
_LONGEST_NAME = 80
_LONGEST = 2000
_LARGEST_INTEGER = 10**18
_ANY = "Any"
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_Schema = Mapping[str, Any]  # Any: JSON


def sign(group: str, name: str, definition: Raw) -> str:
    """Return how a tool with this definition is called, and what it returns if it says so."""
    arguments = _Writer(_schema(definition, "inputSchema")).write_arguments()
    result = _Writer(_schema(definition, "outputSchema")).write_result()
    line = f"call({_quote(group)}, {_quote(name)}, {arguments}){f' -> {result}' if result != _ANY else ''}"
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _schema(definition: Raw, member: str) -> _Schema:
    try:
        schema = wire.value(wire.member(definition, member) or wire.EMPTY_OBJECT)
    except wire.Malformed:
        return {}
    return schema if isinstance(schema, dict) else {}


class _Writer:
    """Writes the types of one schema, with as many names as it may."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self._members_left = _MOST_MEMBERS
        self._parts_left = _MOST_PARTS

    def write_arguments(self) -> str:
        return self._write_object(self._root, 0) if "properties" in self._root else self._write(self._root, 0)

    def write_result(self) -> str:
        """Return the type that a script gets: of `{"result": value}`, the value's."""
        properties = self._root.get("properties")
        if isinstance(properties, dict) and properties.keys() == {"result"}:
            return self._write(properties["result"], 0)
        return self._write(self._root, 0)

    def _write(self, schema: object, depth: int) -> str:
        self._parts_left -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._parts_left < 0:
            return _ANY
        if isinstance(ref := schema.get("$ref"), str):
            return self._write(self._find(ref), depth + 1)
        if "const" in schema:
            return _write_constants([schema["const"]])
        if isinstance(choices := schema.get("enum"), list) and choices:
            return _write_constants(choices)
        for key in ("anyOf", "oneOf"):
            if isinstance(parts := schema.get(key), list) and parts:
                return _join(self._write(part, depth + 1) for part in parts[:_MOST_CHOICES])
        kind = schema.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        return _join(self._write_type(each, schema, depth) for each in kinds[:_MOST_CHOICES])

    def _write_type(self, kind: object, schema: _Schema, depth: int) -> str:
        if kind == "array":
            return f"list[{self._write(schema.get('items'), depth + 1)}]"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._write_object(schema, depth)
        return _TYPES.get(kind, _ANY) if isinstance(kind, str) else _ANY

    def _write_object(self, schema: _Schema, depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return "dict"
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        members = []
        for name, each in properties.items():
            self._members_left -= 1
            if self._members_left < 0:
                members.append("…")
                break
            is_needed = name in required and not (isinstance(each, dict) and "default" in each)
            members.append(f"{_quote(name)}{'' if is_needed else '?'}: {self._write(each, depth + 1)}")
        return f"{{{', '.join(members)}}}"

    def _find(self, ref: str) -> object:
        target: object = self._root
        for step in ref.split("/")[1:] if ref.startswith("#/") else [""]:
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target


def _write_constants(values: list[object]) -> str:
    shown = [_quote_value(each) for each in values[:_MOST_CHOICES]]
    return " | ".join([*shown, "…"] if len(values) > _MOST_CHOICES else shown)


def _join(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(types))
    return _ANY if _ANY in found or not found else " | ".join(found)


def _quote(name: str) -> str:
    return replace_unprintable(json.dumps(name[:_LONGEST_NAME], ensure_ascii=False), " ")


def _quote_value(value: object) -> str:
    match value:
        case str():
            return _quote(value)
        case None | bool() | float():
            return str(value)
        case int() if abs(value) < _LARGEST_INTEGER:
            return str(value)
    return _ANY
