"""What a change of a JSON schema does: to what is taken, and to the words that a model reads in it.

Narrowing is only what takes less without a new word. What is not understood counts as widening.
"""

from __future__ import annotations

import re

import msgspec

from dynamic_mcp.features.pins.words import ChangeClass, Classes, compare_texts, compare_titles

_MAX_DEPTH = 30
_TEXTS = frozenset(("description", "$comment"))
# Bounds, and whether a higher one takes less.
_BOUNDS = {
    "minimum": True,
    "exclusiveMinimum": True,
    "minLength": True,
    "minItems": True,
    "minProperties": True,
    "maximum": False,
    "exclusiveMaximum": False,
    "maxLength": False,
    "maxItems": False,
    "maxProperties": False,
}
_SCHEMAS = frozenset(("items", "contains", "propertyNames", "additionalProperties", "unevaluatedProperties"))
_SCHEMAS_BY_NAME = frozenset(("$defs", "definitions", "patternProperties", "dependentSchemas", "properties"))
_LISTS_OF_SCHEMAS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
# What says something of values to a model, and is not checked, or brings words of its own.
_SAYINGS = frozenset(("default", "examples", "format", "pattern", "deprecated", "readOnly", "writeOnly"))

_TYPES = frozenset(("null", "boolean", "object", "array", "number", "integer", "string"))
_DIALECT = re.compile(r"https?://json-schema\.org/[a-z0-9/.-]{0,40}#?")

_Object = dict[str, object]


def compare_schemas(before: object, after: object, said: str, *, depth: int = 0) -> Classes:
    """Say what it does that a schema is another one, where `said` is what was said before of what it is of."""
    if is_same(before, after):
        return set()
    if depth > _MAX_DEPTH:
        return {ChangeClass.WIDENING}
    if isinstance(before, dict) and isinstance(after, dict):
        found: Classes = set()
        for name in before.keys() | after.keys():
            if not is_same(before.get(name), after.get(name)):
                found |= _compare_members(name, before, after, said, depth=depth)
        return found
    if after is False:
        return {ChangeClass.NARROWING}
    takes_all: tuple[object, ...] = (None, True, {})
    return {ChangeClass.COSMETIC if before in takes_all and after in takes_all else ChangeClass.WIDENING}


def is_same(before: object, after: object) -> bool:
    """Tell whether two values are one in JSON, where `1` is neither `true` nor `1.0`."""
    return before is after or _canonical(before) == _canonical(after)


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _compare_members(name: str, before: _Object, after: _Object, said: str, *, depth: int) -> Classes:
    one, other = before.get(name), after.get(name)
    if name in _TEXTS:
        return compare_texts(one, other)
    if name in _SCHEMAS:
        return compare_schemas(one, other, said, depth=depth + 1)
    if name in _SCHEMAS_BY_NAME:
        return _compare_by_name(name, before, after, said, depth=depth)
    if name in _LISTS_OF_SCHEMAS:
        return _compare_lists(name, one, other, said, depth=depth)
    if name in _BOUNDS:
        return _compare_bounds(one, other, is_lower=_BOUNDS[name])
    match name:
        case "title":
            return compare_titles(one, other, said)
        case "$schema":
            return {ChangeClass.COSMETIC if _is_dialect(other) else ChangeClass.TEXT}
        case "type":
            return _compare_types(one, other)
        case "required":
            return _compare_required(before, one, other)
        case "enum":
            return _compare_enums(one, other)
        case "const":
            return {ChangeClass.NARROWING if one is None and _is_among(other, before) else ChangeClass.WIDENING}
        case "uniqueItems":
            return {ChangeClass.NARROWING if other is True else ChangeClass.WIDENING}
    return {ChangeClass.TEXT if name in _SAYINGS else ChangeClass.WIDENING}


def _compare_by_name(member: str, before: _Object, after: _Object, said: str, *, depth: int) -> Classes:
    one, other = before.get(member, {}), after.get(member, {})
    if not isinstance(one, dict) or not isinstance(other, dict):
        return {ChangeClass.WIDENING}
    found: Classes = set()
    for name in one.keys() & other.keys():
        found |= compare_schemas(one[name], other[name], f"{said} {name}", depth=depth + 1)
    if other.keys() - one.keys():
        found.add(ChangeClass.WIDENING)
    if one.keys() - other.keys():
        is_closed = before.get("additionalProperties") is False and after.get("additionalProperties") is False
        found.add(ChangeClass.NARROWING if member == "properties" and is_closed else ChangeClass.WIDENING)
    return found or {ChangeClass.COSMETIC}


def _compare_lists(name: str, before: object, after: object, said: str, *, depth: int) -> Classes:
    if not isinstance(before, list) or not isinstance(after, list):
        return {ChangeClass.WIDENING}
    one, other = (sorted(map(_canonical, each)) for each in (before, after))
    if one == other and name != "prefixItems":
        return {ChangeClass.COSMETIC}
    if name == "anyOf" and after and set(other) < set(one):
        return {ChangeClass.NARROWING}
    if len(before) != len(after):
        return {ChangeClass.WIDENING}
    found: Classes = set()
    for old, new in zip(before, after, strict=True):
        found |= compare_schemas(old, new, said, depth=depth + 1)
    # less for one of several branches may be more for another
    return found if name != "oneOf" or ChangeClass.NARROWING not in found else found | {ChangeClass.WIDENING}


def _compare_bounds(before: object, after: object, *, is_lower: bool) -> Classes:
    if not _is_number(after) or not (before is None or _is_number(before)):
        return {ChangeClass.WIDENING}
    if before == after:
        return {ChangeClass.COSMETIC}
    is_higher = before is None or (after > before) is is_lower  # type: ignore[operator]  # both are numbers
    return {ChangeClass.NARROWING if is_higher else ChangeClass.WIDENING}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_dialect(value: object) -> bool:
    """Tell whether this names a dialect of JSON schema, or nothing."""
    return value is None or (isinstance(value, str) and _DIALECT.fullmatch(value) is not None)


def _compare_types(before: object, after: object) -> Classes:
    one, other = (_types(each) for each in (before, after))
    if one is None or other is None:
        return {ChangeClass.WIDENING}
    if one == other:
        return {ChangeClass.COSMETIC}
    return {ChangeClass.NARROWING if other < one else ChangeClass.WIDENING}


def _types(value: object) -> frozenset[str] | None:
    """Return the types that a schema takes; None if it does not say so in the form that there is."""
    if value is None:
        return _TYPES
    names = value if isinstance(value, list) else [value]
    found = frozenset(name for name in names if isinstance(name, str))
    if not found or len(found) < len(names) or not found <= _TYPES:
        return None
    return found | {"integer"} if "number" in found else found


def _compare_required(schema: _Object, before: object, after: object) -> Classes:
    properties = schema.get("properties")
    one, other = ([] if each is None else each for each in (before, after))
    if not isinstance(one, list) or not isinstance(other, list):
        return {ChangeClass.WIDENING}
    old, new = (frozenset(map(_canonical, each)) for each in (one, other))
    known = frozenset(map(_canonical, properties)) if isinstance(properties, dict) else frozenset()
    if new - old - known:
        return {ChangeClass.WIDENING}
    return {ChangeClass.WIDENING if old - new else ChangeClass.NARROWING if new - old else ChangeClass.COSMETIC}


def _compare_enums(before: object, after: object) -> Classes:
    if not isinstance(after, list):
        return {ChangeClass.WIDENING}
    if before is None:
        brings_words = any(isinstance(value, str | list | dict) for value in after)
        return {ChangeClass.TEXT if brings_words else ChangeClass.NARROWING}
    if not isinstance(before, list):
        return {ChangeClass.WIDENING}
    one, other = (frozenset(map(_canonical, each)) for each in (before, after))
    if one == other:
        return {ChangeClass.COSMETIC}
    return {ChangeClass.NARROWING if other < one else ChangeClass.WIDENING}


def _is_among(value: object, schema: _Object) -> bool:
    """Tell whether a value brings no word that its schema did not have."""
    allowed = schema.get("enum")
    return _is_number(value) or isinstance(value, bool) or (isinstance(allowed, list) and value in allowed)
