"""A JSON Schema as the fields of a form, and what a person typed as the arguments of a call.

What has no field of its own is typed as JSON. Nothing is validated that the proxy validates when it calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.mcp import strict_json, wire
from dynamic_mcp.ui.byte_budget import ByteBudget

FieldType = Literal["text", "lines", "number", "integer", "boolean", "choice", "json"]
Schema = Mapping[str, object]

MOST_FIELDS = 60
_LONGEST_NAME = 200
_LONGEST_DESCRIPTION = 500
_LONGEST_DEFAULT = 200
_MOST_CHOICES = 100
_LONGEST_CHOICE = 100
_MOST_REFERENCES = 20
_KEY_BYTES = 8
# The HTML of a field without its texts, in bytes.
_FRAME = 420
_SCALARS = ("string", "number", "integer", "boolean")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONG_FORMATS = ("textarea", "markdown", "multiline")
# Names of arguments that are often several lines.
_LONG_NAMES = re.compile(r"(?:^|_)(?:content|contents|text|body|message|code|query|sql|prompt|script|description)$")


class FormError(ValueError):
    """What was typed is no value of a field; `key` is that of the field."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class AllowedValue(Struct, frozen=True):
    """An allowed value: its key in the form, the text that shows it, and the value as JSON."""

    key: str
    text: str
    value: bytes


class Field(Struct, frozen=True):
    """An argument in a form. `key` stands for its name there. `item` is the type of each line of `lines`."""

    name: str
    key: str
    type: FieldType
    is_required: bool = False
    shown_name: str = ""
    description: str = ""
    default: str = ""
    bounds: str = ""
    choices: tuple[AllowedValue, ...] = ()
    item: FieldType = "text"
    is_long: bool = False


class ArgumentForm(Struct, frozen=True):
    """The fields of a tool's arguments, the required ones first. `left_out` is how many there was no space for."""

    fields: tuple[Field, ...] = ()
    left_out: int = 0
    is_open: bool = True
    """Whether it takes arguments that its schema does not name."""

    def parse(self, typed: Mapping[str, str]) -> Raw:
        """Return the arguments as JSON. Raises FormError."""
        arguments: dict[str, Raw] = {}
        for field in self.fields:
            value = _parse_field(field, _read_text(typed, field))
            if value is not None:
                arguments[field.name] = value
            elif field.is_required:
                raise FormError(field.key, f"“{field.shown_name}” is required")
        return Raw(wire.encode(arguments))

    def parse_draft(self, typed: Mapping[str, str]) -> Raw:
        """Return the arguments as far as they are typed; what is no value of its field is a text."""
        arguments: dict[str, Raw] = {}
        for field in self.fields:
            text = _read_text(typed, field)
            try:
                value = _parse_field(field, text)
            except FormError:
                value = Raw(wire.encode(text))
            if value is not None and text:
                arguments[field.name] = value
        return Raw(wire.encode(arguments))

    def fill(self, arguments: Mapping[str, Raw]) -> dict[str, str]:
        """Return what would have been typed for these arguments, as far as there are fields for them."""
        fields = {field.name: field for field in self.fields}
        return {
            fields[name].key: _type_value(fields[name], each) for name, each in arguments.items() if name in fields
        }

    def can_show(self, arguments: Mapping[str, Raw]) -> bool:
        """Return whether the form says the same as these arguments."""
        again = wire.members(self.parse_draft(self.fill(arguments)))
        return {name: wire.value(each) for name, each in again.items()} == {
            name: wire.value(each) for name, each in arguments.items()
        }


def parse_object(text: str) -> Raw:
    """Return a JSON object as it was typed; nothing is an empty one. Raises FormError."""
    text = text.strip()
    if not text:
        return wire.EMPTY_OBJECT
    value = _check_json(text, "json", "The arguments")
    if not isinstance(value, dict):
        raise FormError("json", 'The arguments are not a JSON object: write {"name": "value"}')
    return Raw(text.encode())


def build_form(schema: object, space: ByteBudget) -> ArgumentForm:
    """Return the fields for an input schema, as many as there is space for."""
    root: Schema = schema if isinstance(schema, dict) else {}
    properties = _find_properties(root)
    required = root.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
    fields: list[Field] = []
    for name in sorted(properties, key=lambda name: name not in needed):
        if len(fields) >= MOST_FIELDS or not space.spend(_FRAME):
            break
        fields.append(_build_field(name, properties[name], root, is_required=name in needed, space=space))
    is_open = root.get("additionalProperties", False) is not False or (not properties and _has_alternatives(root))
    return ArgumentForm(tuple(fields), len(properties) - len(fields), is_open)


def build_text_form(names: Iterable[tuple[str, str, bool]], space: ByteBudget) -> ArgumentForm:
    """Return a form of texts: the name of each, its description, and whether it is required."""
    fields: list[Field] = []
    every = list(names)
    for name, description, is_required in every:
        if len(fields) >= MOST_FIELDS or not space.spend(_FRAME):
            break
        schema = {"type": "string", "description": description}
        fields.append(_build_field(name, schema, {}, is_required=is_required, space=space))
    return ArgumentForm(tuple(fields), len(every) - len(fields), is_open=False)


def key_of(name: str) -> str:
    """Return what stands for a name in a form: a name may be any text, and none of it reaches the form."""
    return "a" + sha256(name.encode("utf-8", "replace")).hexdigest()[: 2 * _KEY_BYTES]


def _find_properties(root: Schema) -> Mapping[str, object]:
    found = _resolve(root, root).get("properties")
    return found if isinstance(found, dict) else {}


def _build_field(name: str, schema: object, root: Schema, *, is_required: bool, space: ByteBudget) -> Field:
    resolved = _unwrap(_resolve(schema, root), root)
    whole: Schema = {**resolved, **(schema if isinstance(schema, dict) else {})}  # a reference may have a description
    choices = _read_choices(resolved)
    type_ = _choose_type(resolved, choices)
    item: FieldType = "text"
    if type_ == "json" and (item_type := _find_item(resolved, root)) is not None:
        type_, item = "lines", item_type
    if type_ == "choice" and not all(space.spend(len(each.text) + 80) for each in choices):
        type_, choices = "json", ()
    shown_name, _ = space.take(name, _LONGEST_NAME)
    description = whole.get("description")
    text, _ = space.take(description if isinstance(description, str) else "", _LONGEST_DESCRIPTION)
    default, _ = space.take(_text_of(whole["default"]) if "default" in whole else "", _LONGEST_DEFAULT)
    return Field(
        name,
        key_of(name),
        type_,
        is_required,
        shown_name or "(without a name)",
        text,
        default,
        _describe_bounds(resolved, space),
        choices if type_ == "choice" else (),
        item,
        type_ == "text" and _is_long(name, resolved),
    )


def _choose_type(schema: Schema, choices: Sequence[AllowedValue]) -> FieldType:
    if choices:
        return "choice"
    match _single_type(schema):
        case "string" if not _has_alternatives(schema):
            return "text"
        case "number" if not _has_alternatives(schema):
            return "number"
        case "integer" if not _has_alternatives(schema):
            return "integer"
        case "boolean" if not _has_alternatives(schema):
            return "boolean"
        case _:
            return "json"


def _single_type(schema: Schema) -> str:
    """Return the one type of a value, null aside; empty if there is no such."""
    declared = schema.get("type")
    types = [each for each in (declared if isinstance(declared, list) else [declared]) if each != "null"]
    return types[0] if len(types) == 1 and isinstance(types[0], str) else ""


def _has_alternatives(schema: Schema) -> bool:
    return any(name in schema for name in ("anyOf", "oneOf", "allOf", "not", "if"))


def _read_choices(schema: Schema) -> tuple[AllowedValue, ...]:
    """Return the allowed values that a list can show; none if there are too many, or values that are no scalars."""
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(allowed, list) or not 0 < len(allowed) <= _MOST_CHOICES:
        return ()
    if not all(isinstance(each, str | int | float | bool | None) for each in allowed):
        return ()
    encoded = list(dict.fromkeys(wire.encode(each) for each in allowed))
    return tuple(
        AllowedValue(key_of(each.decode()), _text_of(json.loads(each))[:_LONGEST_CHOICE], each) for each in encoded
    )


def _find_item(schema: Schema, root: Schema) -> FieldType | None:
    """Return the type of the items of a list of scalars; None for anything else."""
    if _single_type(schema) != "array" or _has_alternatives(schema) or "prefixItems" in schema:
        return None
    items = schema.get("items")
    inner = _unwrap(_resolve(items, root), root) if isinstance(items, dict) else {}
    kind = _single_type(inner)
    if _has_alternatives(inner) or kind not in _SCALARS:
        return None
    allowed = inner.get("enum")
    if isinstance(allowed, list) and not all(isinstance(each, str) for each in allowed):
        return None
    kinds: Mapping[str, FieldType] = {"number": "number", "integer": "integer", "boolean": "boolean"}
    return kinds.get(kind, "text")


def _unwrap(schema: Schema, root: Schema) -> Schema:
    """Return the schema of a value that may also be null, without null: that is left out."""
    for name in ("anyOf", "oneOf"):
        choices = schema.get(name)
        if isinstance(choices, list):
            others = [each for each in choices if each != {"type": "null"}]
            if len(others) == 1 and len(choices) == 2 and isinstance(others[0], dict):
                rest = {key: value for key, value in schema.items() if key != name}
                return {**rest, **_resolve(others[0], root)}
    return schema


def _resolve(schema: object, root: Schema) -> Schema:
    found: object = schema
    for _ in range(_MOST_REFERENCES):
        reference = found.get("$ref") if isinstance(found, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        found = root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _describe_bounds(schema: Schema, space: ByteBudget) -> str:
    parts = [
        f"{words} {_text_of(schema[name])}"
        for name, words in (
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("exclusiveMinimum", "more than"),
            ("exclusiveMaximum", "less than"),
            ("minLength", "length at least"),
            ("maxLength", "length at most"),
            ("minItems", "items at least"),
            ("maxItems", "items at most"),
            ("format", "format"),
            ("pattern", "pattern"),
        )
        if isinstance(schema.get(name), str | int | float)
    ]
    items = schema.get("items")
    allowed = items.get("enum") if isinstance(items, dict) else None
    if isinstance(allowed, list):
        parts.append(f"each one of {', '.join(map(_text_of, allowed[:_MOST_CHOICES]))}")
    return space.take(", ".join(parts), _LONGEST_DESCRIPTION)[0]


def _is_long(name: str, schema: Schema) -> bool:
    return schema.get("format") in _LONG_FORMATS or _LONG_NAMES.search(name.lower()) is not None


def _read_text(typed: Mapping[str, str], field: Field) -> str:
    return typed.get(field.key, "").replace("\r\n", "\n")


def _parse_field(field: Field, text: str) -> Raw | None:
    """Return the value of a field; None if it is left out. Raises FormError."""
    match field.type:
        case "text":
            return Raw(wire.encode(text)) if text else None
        case "choice":
            return _parse_choice(field, text)
        case "lines":
            lines = [line for line in text.split("\n") if line.strip()]
            if not lines and not field.is_required:
                return None
            return Raw(wire.encode([_parse_scalar(field, line, field.item) for line in lines]))
        case "json":
            if not text.strip():
                return None
            _check_json(text, field.key, f"“{field.shown_name}”")
            return Raw(text.strip().encode())
        case _:
            return _parse_scalar(field, text, field.type) if text.strip() else None


def _parse_choice(field: Field, text: str) -> Raw | None:
    if not text:
        return None
    found = next((each.value for each in field.choices if each.key == text), None)
    if found is None:
        raise FormError(field.key, f"“{field.shown_name}” has other choices now: choose again")
    return Raw(found)


def _parse_scalar(field: Field, text: str, type_: FieldType) -> Raw:
    word = text.strip()
    match type_:
        case "number" | "integer":
            if not _NUMBER.fullmatch(word):
                raise FormError(field.key, f"“{field.shown_name}” is not a number: {text[:60]}")
            if type_ == "integer" and not _is_whole(word):
                raise FormError(field.key, f"“{field.shown_name}” is not a whole number: {text[:60]}")
            return Raw(word.encode())
        case "boolean":
            if word not in ("true", "false"):
                raise FormError(field.key, f"“{field.shown_name}” is neither true nor false: {text[:60]}")
            return Raw(word.encode())
        case _:
            return Raw(wire.encode(text))


def _is_whole(word: str) -> bool:
    return word.lstrip("-").isdigit() or float(word).is_integer()


def _check_json(text: str, key: str, what: str) -> object:
    try:
        return strict_json.loads(text, parse_int=str, parse_float=str)
    except strict_json.RepeatedName as exc:
        raise FormError(key, f"{what}: “{exc.name[:60]}” is given twice in one object") from None
    except json.JSONDecodeError as exc:
        raise FormError(key, f"{what}: not JSON: {exc.msg} in line {exc.lineno}, column {exc.colno}") from None
    except ValueError as exc:
        raise FormError(key, f"{what}: not JSON: {exc}") from None


def _type_value(field: Field, value: Raw) -> str:
    if field.type == "text" and (text := wire.text(value)) is not None:
        return text
    if field.type == "choice":
        compact = wire.encode(wire.value(value))
        return next((each.key for each in field.choices if each.value == compact), "")
    if field.type == "lines" and bytes(value).lstrip().startswith(b"["):
        return "\n".join(_lines(value))
    return bytes(value).decode("utf-8", "replace")


def _lines(value: Raw) -> Iterator[str]:
    for each in wire.elements(value):
        text = wire.text(each)
        yield bytes(each).decode("utf-8", "replace") if text is None else text


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
