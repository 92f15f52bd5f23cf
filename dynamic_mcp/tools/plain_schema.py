"""A fast check for schemas that only restrict types, as most tools have; it needs no validator.

A True is certain. After a False, a full JSON Schema validator must decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),  # 1.0 is one as well
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
# Keywords that do not restrict values.
ANNOTATIONS = frozenset({"title", "description", "$schema", "$id", "$comment", "examples", "default"})
_OF_OBJECT = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_OF_PARAMETER = ANNOTATIONS | {"type"}

Predicate = Callable[[object], bool]


def compile_plain(schema: Mapping[str, Any]) -> Predicate | None:  # Any: JSON
    """Return a predicate that is true for values that certainly fit; None if the schema restricts more than types."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_open = schema.get("additionalProperties", True)
    if not schema.keys() <= _OF_OBJECT or schema.get("type", "object") != "object" or not isinstance(is_open, bool):
        return None
    if not isinstance(properties, dict) or not isinstance(required, list) or not all(map(_is_text, required)):
        return None
    types = {name: _parse_types(each) for name, each in properties.items()}
    if None in types.values():
        return None
    names, needed = (None if is_open else types.keys()), tuple(dict.fromkeys(required))

    def fits(value: object) -> bool:
        if type(value) is not dict or (names is not None and not value.keys() <= names):
            return False
        for name in needed:
            if name not in value:
                return False
        for name, each in value.items():
            allowed = types.get(name)
            if allowed and type(each) not in allowed and not (int in allowed and _is_whole(each)):
                return False
        return True

    return fits


def _parse_types(parameter: object) -> tuple[type, ...] | None:
    """Return the types that a parameter may have, empty for any type; None if its schema restricts more."""
    if not isinstance(parameter, dict) or not parameter.keys() <= _OF_PARAMETER:
        return None
    if "type" not in parameter:
        return ()
    declared = parameter["type"]
    names = declared if isinstance(declared, list) else [declared]
    types = [_TYPES.get(each) if _is_text(each) else None for each in names]
    return None if None in types or not types else tuple(each for several in types if several for each in several)


def _is_whole(value: object) -> bool:
    return type(value) is float and value.is_integer()


def _is_text(value: object) -> bool:
    return isinstance(value, str)
