"""A tool's input schema, compiled once, to check the arguments of calls.

A parameter with a default is never missing, even if `required` names it: the server fills it in. Libraries such as
zod generate such schemas. A schema that is invalid or could take too long is not enforced, since the upstream
validates anyway. References are never fetched, and patterns are matched with limited backtracking.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.tools.plain_schema import ANNOTATIONS, compile_plain

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

log = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 1 << 20
# The maximum number of parts after expanding all references; a few hundred bytes can expand to 2^30.
MAX_EXPANDED_PARTS = 100_000
# For longer arguments, only the first flaw is reported: listing all can take minutes.
_MAX_LISTED_BYTES = 64 << 10
_MAX_FLAWS = 50
_MAX_DESCRIBED = 5
_MAX_NAMES = 10
_MAX_MESSAGE = 200
_BACKTRACKS = 10_000
_MAX_DEPTH = 5
# The maximum depth of the search for defaults.
_MAX_RELAXED = 50
_MAX_NESTED = 300
_LATEST_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_decode = msgspec.json.Decoder().decode
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Path = tuple[str | int, ...]


class Flaw(Struct, frozen=True):
    """One error in the arguments: its path, a message, and the names of unknown parameters.

    `keyword` of the schema refuses them; `keywords` is the way to it through the schema and its references.
    """

    path: Path
    message: str
    unknown: tuple[str, ...] = ()
    keyword: str = ""
    keywords: Path = ()

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).removeprefix(".")
        return f"`{where}`: {self.message}" if where else self.message


class InputSchema:
    """The input schema of one tool, as the upstream wrote it."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._document = _decode_schema(raw)
        self._lenient = _without_defaulted(self._document, raw)
        self._accepts_any_object = all(
            key in ANNOTATIONS or key == "type" or (key == "properties" and not value)
            for key, value in self._document.items()
        )
        self._fits = None if self._accepts_any_object else compile_plain(self._lenient)

    @cached_property
    def _validator(self) -> Validator | None:
        return None if self._accepts_any_object else _compile(self._lenient, len(self.raw))

    @cached_property
    def _literal_validator(self) -> Validator | None:
        """The validator of the original schema, if it differs."""
        return None if self._lenient is self._document else _compile(self._document, len(self.raw))

    @property
    def accepts_any_object(self) -> bool:
        """Return whether every object is valid, so that decoding is unnecessary."""
        return self._accepts_any_object

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that the schema declares, in any of its branches."""
        return tuple(dict.fromkeys(_declared_names(self._document, self._document, _MAX_DEPTH)))

    @cached_property
    def _is_open(self) -> bool:
        """Return whether undeclared names are valid parameters too."""
        rest = self._document.get("additionalProperties")
        return rest not in (None, False) or "patternProperties" in self._document or not self.parameters

    def allows_parameter(self, name: str) -> bool:
        """Return whether the tool can have a parameter with this name."""
        return name in self.parameters or self._is_open

    def accepts_plain(self, args: Raw) -> bool:
        """Return cheaply whether these arguments are an object that is certainly valid, with no name twice.

        False means unknown.
        """
        if self._fits is None:
            return False
        try:
            value = _decode(args)
            return self._fits(value) and bytes(args).count(b":") == len(value)
        except (*_DECODE_ERRORS, ValueError):
            return False

    def accepts(self, args: Raw) -> bool:
        """Return whether these arguments are valid. Arguments that cannot be decoded count as valid."""
        if self._fits is None and self._validator is None:
            return True
        try:
            value = _decode(args)
            if self._fits is not None and self._fits(value):
                return True
            if self._validator is None or self._validator.is_valid(value := _normalize_integers(value)):
                return True
            # of several alternatives, more than one may fit now
            return self._literal_validator is not None and self._literal_validator.is_valid(value)
        except (*_DECODE_ERRORS, ValueError):
            return True

    def find_flaws(self, args: Raw) -> list[Flaw]:
        """Return the errors in the arguments, up to a limit."""
        if self._validator is None:
            return []
        try:
            value = _normalize_integers(_decode(args))
            if len(args) <= _MAX_LISTED_BYTES:
                return [*map(_to_flaw, islice(self._validator.iter_errors(value), _MAX_FLAWS))]
            return [] if (error := _first_error(self._validator, value)) is None else [_to_flaw(error)]
        except (*_DECODE_ERRORS, ValueError):
            return []

    def describe_flaws(self, args: Raw) -> str:
        """Return the first errors in the arguments, in one line; empty if there are none, or the search fails."""
        return "; ".join(map(str, self.find_flaws(args)[:_MAX_DESCRIBED]))


def _normalize_integers(value: object) -> object:
    """Replace 1.0 by 1: both are integers in JSON Schema, but not to every validator."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_normalize_integers(each) for each in value]
        case dict():
            return {name: _normalize_integers(each) for name, each in value.items()}
    return value


def _decode_schema(raw: Raw) -> Mapping[str, Any]:  # Any: JSON
    try:
        document = _decode(raw) if len(raw) <= MAX_SCHEMA_BYTES else None
    except _DECODE_ERRORS:
        return {}
    return document if isinstance(document, dict) else {}


def _compile(schema: Mapping[str, Any], size: int) -> Validator | None:
    """Compile a schema; return None if it is invalid or would take too long."""
    if _is_boundless(schema):
        log.debug("an input schema of %d bytes is not enforced: its references expand too far", size)
        return None
    import jsonschema_rs  # costs 10 ms and 7 MB, so only when types alone do not decide

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    try:
        return jsonschema_rs.validator_for(
            dict(schema), validate_formats=False, offline=True, pattern_options=patterns
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        log.debug("an input schema cannot be compiled and is not enforced: %.200s", exc)
        return None


def find_schema_error(schema: Mapping[str, Any]) -> str:
    """Return why this is not valid JSON Schema; empty if it is valid. An unknown dialect is treated as 2020-12."""
    dialect = schema.get("$schema")
    error = _first_error(_metaschema(dialect if isinstance(dialect, str) else _LATEST_DIALECT), schema)
    if error is None:
        return ""
    where = "/".join(map(str, error.instance_path))
    return f"at `{where}`: {error.message}" if where else error.message


@lru_cache(16)
def _metaschema(dialect: str) -> Validator:
    import jsonschema_rs

    try:
        metaschema = {"$schema": dialect, "$ref": dialect}
        return jsonschema_rs.validator_for(metaschema, validate_formats=True, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        if dialect == _LATEST_DIALECT:
            raise
        return _metaschema(_LATEST_DIALECT)


def _first_error(validator: Validator, value: object) -> ValidationError | None:
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as exc:
        return exc
    return None


def _to_flaw(error: ValidationError) -> Flaw:
    path, unknown = tuple(error.instance_path), tuple[str, ...]()
    keyword, keywords = error.kind.name, tuple(error.evaluation_path)
    if keyword == "required":
        message = f"`{_shorten(str(error.kind.as_dict().get('property', '?')))}` is missing"
    elif keyword == "additionalProperties":
        unknown = tuple(str(name) for name in error.kind.as_dict().get("unexpected", ()))
        names = ", ".join(f"`{_shorten(name)}`" for name in unknown[:_MAX_NAMES])
        message = f"{names} is not a parameter" if len(unknown) == 1 else f"{names} are not parameters"
    else:
        message = _shorten(error.message)
    return Flaw(path, message, unknown, keyword, keywords)


def _shorten(text: str) -> str:
    if len(text) > _MAX_MESSAGE:
        text = f"{text[: _MAX_MESSAGE // 2]} … {text[-_MAX_MESSAGE // 2 :]}"
    return replace_unprintable(text, " ")


# --- defaults --------------------------------------------------------------------------------------------

# Keywords whose parts apply to the same object, and those whose parts apply to its members.
_SAME_OBJECT = ("allOf", "anyOf", "oneOf")
_SAME_OBJECT_IF = ("then", "else")
_INNER = ("items", "additionalItems", "additionalProperties", "contains", "unevaluatedItems", "unevaluatedProperties")
_INNER_LISTS = ("prefixItems", "items")
_INNER_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def _without_defaulted(schema: Mapping[str, Any], raw: Raw) -> Mapping[str, Any]:
    """Return a schema that requires no parameter that has a default; the same object if it requires none."""
    data = bytes(raw)
    if b'"default"' not in data or b'"required"' not in data:
        return schema
    relaxed = _relax(schema, schema, _MAX_RELAXED)
    return schema if relaxed == schema else relaxed


def _relax(
    schema: Any,  # JSON
    root: Mapping[str, Any],
    depth: int,
    defaulted: frozenset[str] = frozenset(),
) -> Any:
    """Return a part of a schema that does not require names in `defaulted`, or names with a default in the part.

    `not` and `if` stay unchanged: weakening them would tighten the whole.
    """
    if not isinstance(schema, dict) or depth == 0:
        return schema
    relaxed = dict(schema)
    if isinstance(properties := schema.get("properties"), dict):
        defaulted |= {name for name, each in properties.items() if _has_default(each, root)}
    if isinstance(required := schema.get("required"), list):
        relaxed["required"] = [name for name in required if not isinstance(name, str) or name not in defaulted]
    for key in schema.keys() & {*_INNER, *_SAME_OBJECT_IF}:
        relaxed[key] = _relax(schema[key], root, depth - 1, defaulted if key in _SAME_OBJECT_IF else frozenset())
    for key in schema.keys() & {*_INNER_LISTS, *_SAME_OBJECT}:
        if isinstance(parts := schema[key], list):
            names = defaulted if key in _SAME_OBJECT else frozenset[str]()
            relaxed[key] = [_relax(part, root, depth - 1, names) for part in parts]
    for key in schema.keys() & {*_INNER_MAPS}:
        if isinstance(parts := schema[key], dict):
            relaxed[key] = {name: _relax(part, root, depth - 1) for name, part in parts.items()}
    return relaxed


def _has_default(schema: object, root: Mapping[str, Any], depth: int = _MAX_DEPTH) -> bool:
    """Return whether a parameter has a default: itself, in one of its branches, or in its reference."""
    if not isinstance(schema, dict) or depth == 0:
        return False
    if "default" in schema:
        return True
    if isinstance(ref := schema.get("$ref"), str):  # followed once only, because references can multiply each other
        target = _resolve_ref(root, ref)
        return isinstance(target, dict) and "default" in target
    parts = (part for key in _SAME_OBJECT if isinstance(schema.get(key), list) for part in schema[key])
    return any(_has_default(part, root, depth - 1) for part in parts)


# --- the shape of a schema -------------------------------------------------------------------------------


def _declared_names(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth == 0:
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from properties
    branches = [schema.get(key) for key in ("allOf", "anyOf", "oneOf")]
    for branch in (one for many in branches if isinstance(many, list) for one in many):
        yield from _declared_names(branch, root, depth - 1)
    if isinstance(schema.get("$ref"), str):
        yield from _declared_names(_resolve_ref(root, schema["$ref"]), root, depth - 1)


def _resolve_ref(root: object, ref: str) -> object:
    """Return the target of a reference within the document, or None (RFC 6901)."""
    target = root
    for step in ref.removeprefix("#").split("/")[1:] if ref.startswith("#") else ["?"]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target


def _is_boundless(schema: Mapping[str, Any]) -> bool:
    """Return whether references expand the schema beyond the limit; a recursive part counts once."""
    return _PartCounter(schema).count(schema, 0) > MAX_EXPANDED_PARTS


class _PartCounter:
    """Counts the parts of a schema with all references expanded, in time linear in its size."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counts: dict[int, int] = {}

    def count(self, part: object, depth: int) -> int:
        if not isinstance(part, dict | list) or not part:
            return 0
        if depth > _MAX_NESTED:
            return MAX_EXPANDED_PARTS + 1
        count = self._counts.get(id(part))
        if count is not None:
            return count
        self._counts[id(part)] = total = 1  # during the count, so that a cycle ends here
        for inner in part.values() if isinstance(part, dict) else part:
            total += self.count(inner, depth + 1)
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            total += self.count(_resolve_ref(self._root, part["$ref"]), depth + 1)
        self._counts[id(part)] = min(total, MAX_EXPANDED_PARTS + 1)
        return self._counts[id(part)]
