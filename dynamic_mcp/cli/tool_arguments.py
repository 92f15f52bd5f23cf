"""Parses `key=value` arguments into the types of a tool's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynamic_mcp.errors import InvalidArguments, closest
from dynamic_mcp.system.file_reader import decode, read_bytes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.tools import typed_json

Schema = Mapping[str, Any]  # Any: JSON schemas from servers

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MOST_REFERENCES = 20
_MOST_SHOWN = 60
_LONGEST_SHOWN = 200
_DEEPEST = 3


def parse_arguments(words: Sequence[str], schema: Schema) -> dict[str, object]:
    """Parse words into arguments. Raises InvalidArguments.

    A repeated key adds to a list, `a.b=1` sets a member of an object, `key:=JSON` takes any JSON, and
    `key=@FILE` and `key:=@FILE` take the value from a file.
    """
    found: dict[str, object] = {}
    for word in words:
        key, is_json, text = _split_word(word, schema)
        word = word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}…"  # used only in messages below
        path = _split_key(key, schema)
        inner, place = schema, found
        for name in path[:-1]:
            inner = _find_property(name, inner, schema, word)
            member = place.setdefault(name, {})
            if not isinstance(member, dict):
                raise InvalidArguments(f"`{word}`: `{name}` already has a value")
            place = member
        member = _find_property(path[-1], inner, schema, word)
        value = _parse_json(text, word) if is_json else _parse_value(text, member, schema, word)
        _assign(place, path[-1], value, word)
    return found


@dataclass(frozen=True)
class Key:
    """A key for `key=value`, with its allowed values if the schema lists them."""

    name: str
    values: tuple[str, ...]
    is_list: bool
    description: str


def argument_keys(schema: Schema) -> list[Key]:
    """Return the keys of a tool's arguments, members of objects as `a.b`."""
    return list(_keys("", schema, schema, _DEEPEST))


def _keys(prefix: str, schema: Schema, root: Schema, depth: int) -> Iterator[Key]:
    for name, member in _properties(schema, root).items():
        inner: Schema = member if isinstance(member, Mapping) else {}
        if depth and _properties(inner, root):
            yield from _keys(f"{prefix}{name}.", inner, root, depth - 1)
            continue
        types = _types(inner, root)
        items: Schema = next(
            (each["items"] for each in _variants(inner, root) if isinstance(each.get("items"), Mapping)), {}
        )
        values = [*_choices(inner, root), *_choices(items, root)]
        if "boolean" in types and not values:
            values = ["true", "false"]
        description = inner.get("description")
        text = description if isinstance(description, str) else ""
        yield Key(prefix + name, tuple(map(_text, values)), "array" in types, text)


def _list_names(schema: Schema, root: Schema) -> str:
    return ", ".join(f"`{each}`" for each in _properties(schema, root))


def _choices(schema: Schema, root: Schema) -> list[object]:
    listed = (each.get("enum") for each in _variants(schema, root))
    return [choice for choices in listed if isinstance(choices, list) for choice in choices]


def _text(choice: object) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def _split_word(word: str, schema: Schema) -> tuple[str, bool, str]:
    key, equals, text = word.partition("=")
    if not equals or not key.rstrip(":"):
        names = _list_names(schema, schema)
        if names and "{" not in word:
            raise InvalidArguments(f"`{word}` is not key=value", hint=f"the keys are the arguments {names}")
        raise InvalidArguments(f"`{word}` is not key=value", hint="quote a JSON object to make it one argument")
    return key.removesuffix(":"), key.endswith(":"), text


def _split_key(key: str, schema: Schema) -> list[str]:
    """Split `a.b` if `a` is an argument and `a.b` is not."""
    names = _properties(schema, schema)
    head, dot, _ = key.partition(".")
    return key.split(".") if dot and key not in names and head in names else [key]


def _find_property(name: str, schema: Schema, root: Schema, word: str) -> Schema:
    names = _properties(schema, root)
    if name in names:
        member = names[name]
        return member if isinstance(member, Mapping) else {}
    if names and not _is_open(schema, root):
        near = closest(name, names, most=2)
        guess = f"did you mean {' or '.join(f'`{each}`' for each in near)}? " if near else ""
        listed = _list_names(schema, root)
        raise InvalidArguments(
            f"`{word}`: the tool has no argument `{name}`", hint=f"{guess}its arguments are {listed}"
        )
    extra = _resolve(schema, root).get("additionalProperties")
    return extra if isinstance(extra, Mapping) else {}


def _properties(schema: Schema, root: Schema) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for each in _variants(schema, root):
        properties = each.get("properties")
        found |= properties if isinstance(properties, dict) else {}
    return found


def _is_open(schema: Schema, root: Schema) -> bool:
    return any(each.get("additionalProperties") not in (None, False) for each in _variants(schema, root))


def _variants(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield a schema and its alternatives and parts, with references resolved."""
    schema = _resolve(schema, root)
    yield schema
    for name in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                yield _resolve(part, root)


def _resolve(schema: Schema, root: Schema) -> Schema:
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        target: Any = root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        schema = target if isinstance(target, Mapping) else {}
    return schema


def _types(schema: Schema, root: Schema) -> list[str]:
    """Return the types that a value may have, strictest first; none if any type is allowed."""
    found: list[str] = []
    for each in _variants(schema, root):
        kind = each.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        found += [each for each in kinds if isinstance(each, str)]
    order = ["null", "boolean", "integer", "number", "array", "object", "string"]
    return sorted({kind for kind in found if kind in order}, key=order.index)


def _parse_value(text: str, schema: Schema, root: Schema, word: str) -> object:
    if not is_file_value(text):
        return _convert(unescape(text), schema, root, word)
    read = read_file_value(text, word)
    types = _types(schema, root)
    if _choices(schema, root) or (types and "string" not in types):
        return _convert(read.strip(), schema, root, word)
    return read  # with its last newline; `:=` would parse it as JSON


def _convert(text: str, schema: Schema, root: Schema, word: str) -> object:
    choices = _choices(schema, root)
    for choice in choices:
        if text == _text(choice):
            return choice
    types = _types(schema, root)
    if not types:
        return text if choices else _guess(text)
    for kind in types:
        matches, value = _convert_to(kind, text, schema, root, word)
        if matches:
            return value
    got = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    key = _split_word(word, schema)[0]
    raise InvalidArguments(f"`{key}` must be {_with_article(' or '.join(types))}; got `{got}`")


def _convert_to(kind: str, text: str, schema: Schema, root: Schema, word: str) -> tuple[bool, object]:
    """Return whether a text is a value of this type, and the parsed value."""
    match kind:
        case "string":
            return True, text
        case "null":
            return text == "null", None
        case "boolean":
            return text.lower() in _WORDS, _WORDS.get(text.lower())
        case "array":
            return True, _convert_list(text, schema, root, word)
        case "object":
            found = _parse_json_or_none(text)
            return isinstance(found, dict), found
    found = _parse_json_or_none(text)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    # 1.0 is an integer to JSON Schema
    return is_number and (kind == "number" or isinstance(found, int) or found.is_integer()), found


def _convert_list(text: str, schema: Schema, root: Schema, word: str) -> list[object]:
    if text.startswith("[") and isinstance(found := _parse_json_or_none(text), list):
        return found
    found_items = (each["items"] for each in _variants(schema, root) if isinstance(each.get("items"), Mapping))
    items: Schema = next(found_items, {})
    return [_convert(text, items, root, word)]


def _guess(text: str) -> object:
    """Parse a text without a type in the schema: as JSON if possible."""
    found = _parse_json_or_none(text)
    return text if found is None and text != "null" else found


def _parse_json_or_none(text: str) -> Any:  # Any: JSON
    try:
        return typed_json.loads(text)
    except ValueError:
        return None


def _parse_json(text: str, word: str) -> object:
    source = read_file_value(text, word) if is_file_value(text) else text
    try:
        return typed_json.loads(source)
    except ValueError as exc:
        raise InvalidArguments(f"`{word}`: not JSON: {exc}") from exc


def _assign(place: dict[str, object], name: str, value: object, word: str) -> None:
    before = place.get(name)
    if name not in place:
        place[name] = value
    elif isinstance(before, list) and isinstance(value, list):
        place[name] = before + value
    elif isinstance(before, dict) and isinstance(value, dict):
        place[name] = before | value
    else:
        raise InvalidArguments(f"`{word}`: `{name}` is given twice")


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def is_file_value(text: str) -> bool:
    """Return whether a value has the form `@FILE`."""
    return text.startswith("@")


def unescape(text: str) -> str:
    r"""Return a literal value, in which a leading `\@` stands for `@`."""
    return text[1:] if text.startswith("\\@") else text


def read_file_value(text: str, word: str) -> str:
    """Return the text of the file that `@FILE` names. Raises InvalidArguments."""
    try:
        return decode(read_bytes(Path(text[1:]).expanduser(), may_be_piped=True))
    except UnicodeDecodeError as exc:
        raise InvalidArguments(f"`{word}`: the file is not UTF-8 text") from exc
    except (OSError, RuntimeError, ValueError) as exc:  # no such home directory, or an impossible file name
        hint = rf"write a text that begins with `@` as `\{text}`"
        raise InvalidArguments(f"`{word}`: the file cannot be read: {os_reason(exc)}", hint=hint) from exc
