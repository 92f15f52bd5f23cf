"""JSON as a tree that can be folded, bounded in depth, in nodes and in the space that it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from dynamic_mcp.ui.byte_budget import ByteBudget

_DEEPEST = 12
_MOST_NODES = 300
_LONGEST_KEY = 100
_LONGEST_TEXT = 1000
# The HTML around a key and a value, in bytes.
_FRAME = 120
# Larger trees begin folded, but for their outermost level.
_MOST_OPEN = 60


class Number(str):
    """A number as it is written, so that none loses digits."""

    __slots__ = ()


class Node(Struct, frozen=True):
    """A value. `kind` is `object`, `list`, `text`, `num` or `null`, the last for true and false as well.

    `text` is the value, or the number of parts of an object or list; `left_out` is how many of those are not shown.
    """

    key: str
    kind: str
    text: str
    children: tuple[Node, ...] = ()
    left_out: int = 0
    is_open: bool = False
    is_cut: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.left_out and not self.is_cut and all(each.is_whole for each in self.children)


def parse_json(data: bytes | str) -> object:
    """Return the value, with numbers as they are written. Raises ValueError."""
    try:
        return json.loads(data, parse_int=Number, parse_float=Number, parse_constant=Number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def build_tree(value: object, space: ByteBudget) -> Node:
    """Return a tree of as much of a value as fits."""
    return _Builder(space, opens_all=_count(value, _MOST_OPEN + 1) <= _MOST_OPEN).build("", value, 0)


class _Builder:
    def __init__(self, space: ByteBudget, *, opens_all: bool) -> None:
        self._space = space
        self._opens_all = opens_all
        self._nodes = 0

    def build(self, key: str, value: object, depth: int) -> Node:
        self._nodes += 1
        self._space.spend(_FRAME)
        key, _ = self._space.take(key, _LONGEST_KEY)
        match value:
            case dict():
                members = iter(value.items())
                return self._build_parts(key, "object", len(value), members, depth)
            case list():
                elements = ((str(number), each) for number, each in enumerate(value))
                return self._build_parts(key, "list", len(value), elements, depth)
            case Number():
                text, is_whole = self._space.take(value, _LONGEST_TEXT)
                return Node(key, "num", text, is_cut=not is_whole)
            case str():
                text, is_whole = self._space.take(value, _LONGEST_TEXT)
                return Node(key, "text", text, is_cut=not is_whole)
            case _:
                return Node(key, "null", json.dumps(value))

    def _build_parts(self, key: str, kind: str, size: int, parts: Iterator[tuple[str, object]], depth: int) -> Node:
        children: list[Node] = []
        if depth < _DEEPEST:
            for name, each in parts:
                if self._nodes >= _MOST_NODES or self._space.left < 2 * _FRAME:
                    break
                children.append(self.build(name, each, depth + 1))
        is_open = self._opens_all or depth == 0
        return Node(key, kind, f"{size:,}", tuple(children), size - len(children), is_open)


def _count(value: object, most: int) -> int:
    """Return the number of values in a value, or `most` if there are more."""
    queue, at = [value], 0
    while at < len(queue) < most:
        each = queue[at]
        at += 1
        if isinstance(each, dict):
            queue += islice(each.values(), most)
        elif isinstance(each, list):
            queue += each[:most]
    return min(len(queue), most)
