"""The schemas of most tools ask for types alone. Those are told here whether arguments fit, without a validator.

It only ever says yes: where it cannot, whoever knows all of JSON Schema is asked.
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
# Members that ask for nothing.
ANNOTATIONS = frozenset({"title", "description", "$schema", "$id", "$comment", "examples", "default"})
_OF_OBJECT = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_OF_PARAMETER = ANNOTATIONS | {"type"}

Predicate = Callable[[object], bool]


def compile_plain(schema: Mapping[str, Any]) -> Predicate | None:  # Any: JSON
    """Return what tells that a value certainly fits; None for a schema that asks for more than types."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_open = schema.get("additionalProperties", True)
    if not schema.keys() <= _OF_OBJECT or schema.get("type", "object") != "object" or not isinstance(is_open, bool):
        return None
    if not isinstance(properties, dict) or not isinstance(required, list) or not all(map(_is_text, required)):
        return None
    types = {name: _parse_types(each) for name, each in properties.items()}
    if None in types.values():
        return None
    names, wanted = (None if is_open else types.keys()), frozenset(required)

    def fits(value: object) -> bool:
        if type(value) is not dict or not wanted <= value.keys() or (names is not None and not value.keys() <= names):
            return False
        for name, each in value.items():
            asked = types.get(name)
            if asked and type(each) not in asked and not (int in asked and _is_whole(each)):
                return False
        return True

    return fits


def _parse_types(parameter: object) -> tuple[type, ...] | None:
    """Return the types that a parameter may have, none for any; None where more is asked of it than a type."""
    if not isinstance(parameter, dict) or not parameter.keys() <= _OF_PARAMETER:
        return None
    if "type" not in parameter:
        return ()
    named = parameter["type"]
    found = [_TYPES.get(each) if _is_text(each) else None for each in (named if isinstance(named, list) else [named])]
    return None if None in found or not found else tuple(each for types in found if types for each in types)


def _is_whole(value: object) -> bool:
    return type(value) is float and value.is_integer()


def _is_text(value: object) -> bool:
    return isinstance(value, str)
