"""Selects a part of JSON with a JSONPath, in a bounded number of matches and a bounded time.

The library parses the path and matches one step at a time. The loop over the steps is here, so that it can be
stopped. Anything that could run forever in one step (regular expressions, arithmetic, nested searches) is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

if TYPE_CHECKING:
    from jsonpath_ng import JSONPath

MAX_PATH = 1000
MAX_MATCHES = 100_000
MAX_S = 2.0
_MAX_SHOWN = 1500
_MAX_SHOWN_KEYS = 20
_CHUNK = 1000
_MAX_SHOWN_DEPTH = 4


class BadPath(ValueError):
    """An invalid path, or one that could run forever."""


class _Step(Struct, frozen=True):
    """One step of a path; `is_deep` if it searches all descendants, `is_each` if it checks each item separately."""

    find: JSONPath
    is_deep: bool
    is_each: bool


class _Path(Struct, frozen=True):
    """A path; `names` are its steps where each is the name of a member, as in most paths of a config."""

    steps: tuple[_Step, ...]
    is_definite: bool
    names: tuple[str, ...] | None = None


class _Number(float):
    """A number that is encoded with its original text."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


_decode = msgspec.json.Decoder(float_hook=_Number).decode


def parse_json(data: bytes | str) -> object:
    """Parse JSON with exact numbers. Raises ValueError."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data, parse_float=_Number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_json(value: object) -> str:
    """Encode as compact JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=_encode_number).decode()
    except UnicodeEncodeError:  # a lone surrogate escape
        return json.dumps(value, separators=(",", ":"))


def select_value(path: str, data: object) -> object:
    """Return the one value that a path matches, or a list if it can match several.

    Raises BadPath, or LookupError if nothing matches.
    """
    values = select(path, data)
    if not values:
        raise LookupError(f"nothing matches `{path}`")
    return values[0] if is_definite(path) else values


def select(path: str, data: object, *, clock: Callable[[], float] = time.monotonic) -> list[object]:
    """Return the values that a JSONPath matches, in order. Raises BadPath."""
    return Selector(path, clock=clock).select(data)


def is_definite(path: str) -> bool:
    """Return whether a path can match at most one value. Raises BadPath."""
    return _compile(path).is_definite


class Selector:
    """A parsed JSONPath that takes at most `max_s` for each selection."""

    def __init__(self, path: str, *, max_s: float = MAX_S, clock: Callable[[], float] = time.monotonic) -> None:
        """Raise BadPath if the path is invalid."""
        self._path = _compile(path)
        self._max_s = max_s
        self._clock = clock

    @property
    def names(self) -> tuple[str, ...] | None:
        """The member names of a path without other steps; None for any other path."""
        return self._path.names

    def select(self, data: object) -> list[object]:
        """Return the values that the path matches, in order. Raises BadPath."""
        if self._path.names is not None:
            return _follow(self._path.names, data)
        ends_at = self._clock() + self._max_s
        values = [data]
        for step in self._path.steps:
            values = self._apply_step(step, values, ends_at)
        return values

    def _apply_step(self, step: _Step, values: Sequence[object], ends_at: float) -> list[object]:
        matches: list[object] = []
        try:
            for piece in _pieces(step, values):
                matches += [match.value for match in step.find.find(piece)]
                if len(matches) > MAX_MATCHES:
                    raise BadPath(f"it matches more than {MAX_MATCHES} values; select less at once")
                if self._clock() > ends_at:
                    raise BadPath(f"it takes longer than {self._max_s:g} s; select less at once")
        except RecursionError:
            raise BadPath("the data is nested too deeply") from None
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as exc:
            if isinstance(exc, BadPath):
                raise
            raise BadPath(f"it cannot be applied to the data: {exc}") from exc
        return matches


def _pieces(step: _Step, values: Iterable[object]) -> Iterator[object]:
    """Yield the inputs of a step, one at a time."""
    for value in values:
        for node in _descend(value) if step.is_deep else (value,):
            yield from _split_list(step, node)


def _descend(value: object) -> Iterator[object]:
    """Yield a value and all its descendants, in document order."""
    stack = [value]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, dict):
            stack += reversed(node.values())
        elif isinstance(node, list):
            stack += reversed(node)


def _split_list(step: _Step, node: object) -> Iterator[object]:
    """Yield a long list in chunks if the step checks each item separately, so that it can be stopped."""
    if not step.is_each or not isinstance(node, list) or len(node) <= _CHUNK:
        yield node
        return
    for start in range(0, len(node), _CHUNK):
        yield node[start : start + _CHUNK]


@lru_cache(maxsize=64)
def _compile(path: str) -> _Path:
    if len(path) > MAX_PATH:
        raise BadPath(f"it is longer than {MAX_PATH} characters")
    from jsonpath_ng.ext.parser import parse

    try:
        tree = parse(path)
    except Exception as exc:  # the parser raises many exceptions, custom and built-in ones
        raise BadPath(" ".join(str(exc).split())[:200] or "it cannot be parsed") from exc
    steps = _split_path(tree)
    is_definite = all(not step.is_deep and _is_single(step.find) for step in steps)
    names = [_name_of(step) for step in steps]
    return _Path(steps, is_definite, None if None in names else tuple(filter(None, names)))


def _name_of(step: _Step) -> str | None:
    """Return the member name of a step; None if it does anything else."""
    from jsonpath_ng import Fields

    fields = step.find.fields if type(step.find) is Fields and not step.is_deep else ()
    return fields[0] if len(fields) == 1 and fields[0] not in ("", "*") else None


def _follow(names: Iterable[str], data: object) -> list[object]:
    for name in names:
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    return [data]


def _split_path(tree: JSONPath) -> tuple[_Step, ...]:
    """Split a path into its steps. Raises BadPath for an unbounded step."""
    from jsonpath_ng import Child, Descendants, Root, This

    steps: list[_Step] = []
    while isinstance(tree, Child | Descendants):
        steps.append(_build_step(tree.right, is_deep=isinstance(tree, Descendants)))
        tree = tree.left
    first = _build_step(tree, is_deep=False)
    return tuple(reversed([*steps, first] if not isinstance(tree, Root | This) else steps))


def _build_step(find: JSONPath, *, is_deep: bool) -> _Step:
    from jsonpath_ng.ext.filter import Filter
    from jsonpath_ng.jsonpath import Wildcard

    _refuse_unbounded(find)
    return _Step(find, is_deep, is_each=isinstance(find, Filter | Wildcard))


def _is_single(step: JSONPath) -> bool:
    from jsonpath_ng import Fields, Index, Root, This
    from jsonpath_ng.ext.iterable import Len

    match step:
        case Fields(fields=fields):
            return len(fields) == 1 and fields[0] != "*"
        case Index(indices=indices):
            return len(indices) == 1
    return isinstance(step, Root | This | Len)


def _refuse_unbounded(step: object) -> None:
    from jsonpath_ng import Child, Fields, Index, JSONPath, Root, Slice, This
    from jsonpath_ng.ext.filter import And, Expression, Filter, Or
    from jsonpath_ng.ext.iterable import Keys, Len
    from jsonpath_ng.jsonpath import Wildcard

    if type(step) in (
        Fields,
        Index,
        Slice,
        Wildcard,
        Root,
        This,
        Len,
        Keys,
    ):  # exact types, since a subclass may be a regular expression
        return
    match step:
        case Filter(expressions=parts) | And(operands=parts) | Or(operands=parts):
            for part in parts:
                _refuse_unbounded(part)
        case Expression(op="=~"):
            raise BadPath("`=~` is not supported, since a pattern can run forever")
        case Expression(value=JSONPath()):
            raise BadPath("a filter can compare only with a number, a string, true, false or null")
        case Expression(target=target):
            _refuse_unbounded(target)
        case Child(left=left, right=right):
            _refuse_unbounded(left)
            _refuse_unbounded(right)
        case _:
            raise BadPath(f"`{step}`"[:100] + " is not supported; names, indices, slices, `*`, `..` and filters are")


def _encode_number(value: object) -> Raw:
    if isinstance(value, _Number):
        return Raw(value.text.encode())
    raise NotImplementedError


# --- the shape of data -----------------------------------------------------------------------------------


def describe_shape(data: object) -> str:
    """Describe data on one line: names, types and the lengths of lists."""
    text = _describe(data, _MAX_SHOWN_DEPTH)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _describe(value: object, depth: int) -> str:
    match value:
        case dict():
            if not depth:
                return "{…}"
            members = [
                f"{json.dumps(str(key)[:100], ensure_ascii=False)}: {_describe(value[key], depth - 1)}"
                for key in list(value)[:_MAX_SHOWN_KEYS]
            ]
            more = [f"and {len(value) - _MAX_SHOWN_KEYS} more"] if len(value) > _MAX_SHOWN_KEYS else []
            return "{" + ", ".join(members + more) + "}"
        case list():
            first = f" of {_describe(value[0], depth - 1)}" if value and depth else ""
            return f"[{len(value)}{first}]"
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
    return "number"
