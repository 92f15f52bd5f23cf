"""How a definition has changed, and how much that matters.

What only rearranges what was there is cosmetic. All that adds words for a model is a change of its text, wherever
they are: also in a title, and in the values of a schema. A schema is narrowed only by what takes less without a new
word. What is not understood counts as the worse.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.features.pins.definition import PinKind, has_duplicates
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.mcp import wire

_MEMBERS_WITH_SCHEMAS = frozenset(("inputSchema", "outputSchema"))
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

_WHITE_SPACE = re.compile(r"[ \t\r\n]+")
_WORD = re.compile(r"[^\W_]+")
# Words as they are joined in names: `createIssue`.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_Object = dict[str, object]


class ChangeClass(Enum):
    """What a change does: to words, to what a tool takes, and to what it says that it does."""

    COSMETIC = "cosmetic"
    TEXT = "text"
    NARROWING = "narrowing"
    WIDENING = "widening"
    EFFECTS = "effects"


Classes = set[ChangeClass]


class Change(Struct, frozen=True):
    """A definition that is another one than the pinned. `after` is its canonical form, `hash` its fingerprint."""

    kind: PinKind
    name: str
    before: Pin
    after: Raw
    hash: str
    classes: frozenset[ChangeClass]

    @property
    def is_cosmetic(self) -> bool:
        """Whether it says the same as before."""
        return self.classes <= {ChangeClass.COSMETIC}


def classify(kind: PinKind, before: Raw, after: Raw) -> frozenset[ChangeClass]:
    """Say what a change does; `before` and `after` are canonical forms that differ."""
    one, other = wire.value(before), wire.value(after)
    if kind is PinKind.INSTRUCTIONS:
        one, other = (each if isinstance(each, dict) else {"instructions": each} for each in (one, other))
    if not isinstance(one, dict) or not isinstance(other, dict) or has_duplicates(before) or has_duplicates(after):
        return frozenset((ChangeClass.TEXT, ChangeClass.WIDENING))
    said = " ".join(each for each in map(one.get, ("name", "title", "description")) if isinstance(each, str))
    found: Classes = set()
    for name in one.keys() | other.keys():
        if not _is_same(one.get(name), other.get(name)):
            found |= _compare_members(name, one.get(name), other.get(name), said)
    return frozenset(found or (ChangeClass.TEXT,))


def _compare_members(name: str, before: object, after: object, said: str) -> Classes:
    if name in _MEMBERS_WITH_SCHEMAS:
        return _compare_schemas(before, after, said)
    match name:
        case "annotations":
            return _compare_annotations(before, after, said)
        case "arguments":
            return _compare_arguments(before, after, said)
        case "title":
            return _compare_titles(before, after, said)
        case "description" | "instructions":
            return _compare_texts(before, after)
    return {ChangeClass.TEXT}


# --- what a tool says that it does -------------------------------------------------------------------------


def _compare_annotations(before: object, after: object, said: str) -> Classes:
    """Say what other annotations do; a hint that keeps people safe and is taken back is the worst."""
    one, other = (each if isinstance(each, dict) else {} for each in (before, after))
    found: Classes = set() if after is None or isinstance(after, dict) else {ChangeClass.TEXT}
    for name in one.keys() | other.keys():
        old, new = one.get(name), other.get(name)
        if _is_same(old, new):
            continue
        match name:
            case "readOnlyHint":
                found.add(_compare_read_only(old, new))
            case "destructiveHint":
                found.add(_compare_destructive(old, new))
            case "title":
                found |= _compare_titles(old, new, said)
            case _:
                found.add(ChangeClass.WIDENING)
    return found or {ChangeClass.COSMETIC}


def _compare_read_only(before: object, after: object) -> ChangeClass:
    if before is True:
        return ChangeClass.EFFECTS
    return ChangeClass.COSMETIC if after in (None, False) else ChangeClass.WIDENING


def _compare_destructive(before: object, after: object) -> ChangeClass:
    """Compare hints of which `false` is a promise, and `true` a warning: neither is taken back unseen."""
    if isinstance(before, bool):
        return ChangeClass.EFFECTS
    return ChangeClass.NARROWING if after is True else ChangeClass.WIDENING


# --- what a prompt takes -----------------------------------------------------------------------------------


def _compare_arguments(before: object, after: object, said: str) -> Classes:
    one, other = (_by_name(each) for each in (before, after))
    if one is None or other is None or one.keys() != other.keys():
        return {ChangeClass.WIDENING}
    found: Classes = set()
    for argument, old in one.items():
        for name in old.keys() | other[argument].keys():
            found |= _compare_argument(name, old.get(name), other[argument].get(name), f"{said} {argument}")
    return found or {ChangeClass.COSMETIC}


def _compare_argument(name: str, before: object, after: object, said: str) -> Classes:
    if _is_same(before, after):
        return set()
    match name:
        case "required":
            return {ChangeClass.NARROWING if after is True else ChangeClass.WIDENING}
        case "title":
            return _compare_titles(before, after, said)
    return _compare_texts(before, after)


def _by_name(arguments: object) -> dict[str, dict[str, object]] | None:
    """Return the arguments of a prompt by name; None where they are not what they have to be."""
    if not isinstance(arguments, list | None):
        return None
    found: dict[str, dict[str, object]] = {}
    for each in arguments or ():
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = each
    return found


# --- what a tool takes --------------------------------------------------------------------------------------


def _compare_schemas(before: object, after: object, said: str, *, depth: int = 0) -> Classes:
    """Say what it does that a schema is another one, where `said` is what was said before of what it is of."""
    if _is_same(before, after):
        return set()
    if depth > _MAX_DEPTH:
        return {ChangeClass.WIDENING}
    if isinstance(before, dict) and isinstance(after, dict):
        found: Classes = set()
        for name in before.keys() | after.keys():
            if not _is_same(before.get(name), after.get(name)):
                found |= _compare_keywords(name, before, after, said, depth=depth)
        return found
    if after is False:
        return {ChangeClass.NARROWING}
    takes_all: tuple[object, ...] = (None, True, {})
    return {ChangeClass.COSMETIC if before in takes_all and after in takes_all else ChangeClass.WIDENING}


def _is_same(before: object, after: object) -> bool:
    """Tell whether two values are one in JSON, where `1` is neither `true` nor `1.0`."""
    return before is after or _canonical(before) == _canonical(after)


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _compare_keywords(name: str, before: _Object, after: _Object, said: str, *, depth: int) -> Classes:
    one, other = before.get(name), after.get(name)
    if name in _TEXTS:
        return _compare_texts(one, other)
    if name in _SCHEMAS:
        return _compare_schemas(one, other, said, depth=depth + 1)
    if name in _SCHEMAS_BY_NAME:
        return _compare_by_name(name, before, after, said, depth=depth)
    if name in _LISTS_OF_SCHEMAS:
        return _compare_lists(name, one, other, said, depth=depth)
    if name in _BOUNDS:
        return _compare_bounds(one, other, is_lower=_BOUNDS[name])
    match name:
        case "title":
            return _compare_titles(one, other, said)
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
        found |= _compare_schemas(one[name], other[name], f"{said} {name}", depth=depth + 1)
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
        found |= _compare_schemas(old, new, said, depth=depth + 1)
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


# --- what words do ------------------------------------------------------------------------------------------


def _compare_texts(before: object, after: object) -> Classes:
    """Say what it does that a text is another one."""
    if before == after:
        return set()
    both_are_texts = isinstance(before, str) and isinstance(after, str)
    is_same = both_are_texts and _squeeze(str(before)) == _squeeze(str(after))
    return {ChangeClass.COSMETIC if is_same else ChangeClass.TEXT}


def _compare_titles(before: object, after: object, said: str) -> Classes:
    """Say what it does that a title is another one, where `said` is what was said before."""
    if before == after:
        return set()
    if after is None or (isinstance(after, str) and _words_of(after) <= _words_of(f"{before} {said}")):
        return {ChangeClass.COSMETIC}
    return _compare_texts(before, after)


def _squeeze(text: str) -> str:
    """Return a text with one space for all white space."""
    return _WHITE_SPACE.sub(" ", text).strip()


def _words_of(text: str) -> frozenset[str]:
    """Return the words of a text, those included that a name joins."""
    return frozenset(word.casefold() for word in _WORD.findall(_HUMP.sub(" ", text)))
