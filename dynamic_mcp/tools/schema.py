"""What a tool takes: its input schema, compiled once, asked about the bytes of a call's arguments.

A schema that cannot be used is not enforced, and neither is one that could take long: the upstream has the last
word anyway. Nothing is ever fetched, and a pattern of whatever shape costs time in proportion to the text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.tools.plain_schema import ANNOTATIONS, plain

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

log = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 1 << 20
# A schema's parts, counted once for each way that references lead to them. A few hundred bytes can ask for 2^30.
MAX_UNFOLDED = 100_000
# Longer arguments are told their first flaw only: to list them all takes minutes.
_MAX_LISTED_BYTES = 64 << 10
_MAX_FLAWS = 50
_MAX_NAMED = 10
_MAX_WORDS = 200
_BACKTRACKS = 10_000
_MAX_DEPTH = 5
_MAX_NESTED = 300

_decode = msgspec.json.Decoder().decode
_NOT_TAKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Path = tuple[str | int, ...]


class Flaw(Struct, frozen=True):
    """One thing that is wrong: where in the arguments, in words, and the names of parameters that are unknown."""

    path: Path
    words: str
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).removeprefix(".")
        return f"`{where}`: {self.words}" if where else self.words


class InputSchema:
    """The input schema of one tool, as the upstream wrote it."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._document = _document(raw)
        self._is_silent = all(
            key in ANNOTATIONS or key == "type" or (key == "properties" and not value)
            for key, value in self._document.items()
        )
        self._fits = None if self._is_silent else plain(self._document)

    @cached_property
    def _validator(self) -> Validator | None:
        return None if self._is_silent else _compiled(self._document, len(self.raw))

    @property
    def asks_nothing(self) -> bool:
        """Tell whether every object fits, so that nothing has to be decoded."""
        return self._is_silent

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that the schema declares, wherever a branch does."""
        return tuple(dict.fromkeys(_declared(self._document, self._document, _MAX_DEPTH)))

    @cached_property
    def _is_open(self) -> bool:
        """Whether names that are not declared mean something too."""
        rest = self._document.get("additionalProperties")
        return rest not in (None, False) or "patternProperties" in self._document or not self.parameters

    def knows(self, name: str) -> bool:
        """Tell whether a parameter of this name can be meant."""
        return name in self.parameters or self._is_open

    def takes(self, args: Raw) -> bool:
        """Tell whether these arguments fit. What the decoder cannot represent is not judged."""
        if self._fits is None and self._validator is None:
            return True
        try:
            value = _decode(args)
            if self._fits is not None and self._fits(value):
                return True
            return self._validator is None or self._validator.is_valid(_whole(value))
        except (*_NOT_TAKEN, ValueError):
            return True

    def flaws(self, args: Raw) -> list[Flaw]:
        """Return what is wrong with arguments, a bounded number of things."""
        if self._validator is None:
            return []
        try:
            value = _whole(_decode(args))
            if len(args) <= _MAX_LISTED_BYTES:
                return [*map(_flaw, islice(self._validator.iter_errors(value), _MAX_FLAWS))]
            return [] if (error := _first(self._validator, value)) is None else [_flaw(error)]
        except (*_NOT_TAKEN, ValueError):
            return []


def _whole(value: object) -> object:
    """Return JSON with 1 for 1.0, which is an integer, though not to every validator."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {name: _whole(each) for name, each in value.items()}
    return value


def _document(raw: Raw) -> Mapping[str, Any]:  # Any: JSON
    try:
        found = _decode(raw) if len(raw) <= MAX_SCHEMA_BYTES else None
    except _NOT_TAKEN:
        return {}
    return found if isinstance(found, dict) else {}


def _compiled(schema: Mapping[str, Any], size: int) -> Validator | None:
    """Compile a schema, or return None for one that cannot be used or would take too long."""
    if _is_boundless(schema):
        log.debug("an input schema of %d bytes is not enforced: its references unfold to too much", size)
        return None
    import jsonschema_rs  # 10 ms and 7 MB, for the first arguments that types alone do not judge

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    try:
        return jsonschema_rs.validator_for(
            dict(schema), validate_formats=False, offline=True, pattern_options=patterns
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        log.debug("an input schema cannot be compiled and is not enforced: %.200s", exc)
        return None


def _first(validator: Validator, value: object) -> ValidationError | None:
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as exc:
        return exc
    return None


def _flaw(error: ValidationError) -> Flaw:
    path = tuple(error.instance_path)
    if error.kind.name == "required":
        return Flaw(path, f"`{_short(str(error.kind.as_dict().get('property', '?')))}` is missing")
    if error.kind.name == "additionalProperties":
        unknown = tuple(str(name) for name in error.kind.as_dict().get("unexpected", ()))
        named = ", ".join(f"`{_short(name)}`" for name in unknown[:_MAX_NAMED])
        return Flaw(
            path, f"{named} is not a parameter" if len(unknown) == 1 else f"{named} are not parameters", unknown
        )
    return Flaw(path, _short(error.message))


def _short(text: str) -> str:
    if len(text) > _MAX_WORDS:
        text = f"{text[: _MAX_WORDS // 2]} … {text[-_MAX_WORDS // 2 :]}"
    return replace_unprintable(text, " ")


# --- the shape of a schema -------------------------------------------------------------------------------


def _declared(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth == 0:
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from properties
    branches = [schema.get(key) for key in ("allOf", "anyOf", "oneOf")]
    for branch in (one for many in branches if isinstance(many, list) for one in many):
        yield from _declared(branch, root, depth - 1)
    if isinstance(schema.get("$ref"), str):
        yield from _declared(_pointed(root, schema["$ref"]), root, depth - 1)


def _pointed(root: object, ref: str) -> object:
    """Return what a reference within the document points at, or None (RFC 6901)."""
    found = root
    for step in ref.removeprefix("#").split("/")[1:] if ref.startswith("#") else ["?"]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _is_boundless(schema: Mapping[str, Any]) -> bool:
    """Tell whether references multiply the schema beyond a bound; a part that refers to itself counts once."""
    return _Unfolding(schema).count(schema, 0) > MAX_UNFOLDED


class _Unfolding:
    """Counts the parts of a schema, each as often as references lead to it, in time linear in its size."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counts: dict[int, int] = {}

    def count(self, part: object, depth: int) -> int:
        if not isinstance(part, dict | list) or not part:
            return 0
        if depth > _MAX_NESTED:
            return MAX_UNFOLDED + 1
        known = self._counts.get(id(part))
        if known is not None:
            return known
        self._counts[id(part)] = total = 1  # while it is being counted: a cycle ends here
        for inner in part.values() if isinstance(part, dict) else part:
            total += self.count(inner, depth + 1)
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            total += self.count(_pointed(self._root, part["$ref"]), depth + 1)
        self._counts[id(part)] = min(total, MAX_UNFOLDED + 1)
        return self._counts[id(part)]
