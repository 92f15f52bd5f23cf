"""YAML as plain values, built from libyaml's events, with bounds on depth, aliases and merges.

Scalars have the meaning of YAML 1.2's core schema; tags are ignored. The last of two equal keys counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_DEEPEST = 500
_LARGEST = 1_000_000
_LONGEST_INTEGER = 400
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {word: value == "true" for value in ("true", "false") for word in (value, value.title(), value.upper())}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o([0-7]+)")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class YamlError(ValueError):
    """A syntax error; line and column count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(eq=False)
class _Open:
    """A list or mapping that is not complete yet; `size` counts its values with all aliases expanded."""

    value: list[object] | dict[str, object]
    anchor: str | None
    size: int = 1
    key: str | None = None
    merged: list[dict[str, object]] = field(default_factory=list)


def loads(text: str) -> object:
    """Return the first document of a text. Raises YamlError."""
    return _Builder().build(_parse_events(text))


def _parse_events(text: str) -> Iterator[Any]:  # Any: ruamel's events have no types
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield from YAML(typ="safe").parse(text)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(str(exc.problem or exc.context or "is not YAML"), line, column) from exc
    except (YAMLError, ValueError) as exc:  # a character that YAML does not allow
        raise YamlError("a character that YAML does not allow", 1, 1) from exc


class _Builder:
    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._root: list[object] = []
        self._handlers: dict[str, Callable[[Any], None]] = {
            "ScalarEvent": self._add_scalar,
            "AliasEvent": self._add_alias,
            "SequenceStartEvent": lambda event: self._start(event, []),
            "MappingStartEvent": lambda event: self._start(event, {}),
            "SequenceEndEvent": self._end,
            "MappingEndEvent": self._end,
        }

    def build(self, events: Iterator[Any]) -> object:
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentEndEvent":
                break
            if handler := self._handlers.get(kind):
                handler(event)
        return self._root[0] if self._root else None

    def _add_scalar(self, event: Any) -> None:
        is_plain = bool(event.implicit and event.implicit[0])
        value = _resolve(event.value) if is_plain else event.value
        size = 1 + len(event.value) // 100
        if event.anchor:
            self._anchors[event.anchor] = (value, size)
        self._add(value, size, event)

    def _add_alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _make_error(f"`*{event.anchor}` refers to nothing before it", event)
        value, size = self._anchors[event.anchor]
        self._add(value, size, event)

    def _start(self, event: Any, value: list[object] | dict[str, object]) -> None:
        if len(self._open) >= _DEEPEST:
            raise _make_error(f"nested more than {_DEEPEST} levels deep", event)
        self._open.append(_Open(value, event.anchor))

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for mapping in done.merged:
                for key, value in mapping.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        self._add(done.value, done.size, event)

    def _add(self, value: object, size: int, event: Any) -> None:
        if not self._open:
            self._root.append(value)
            return
        parent = self._open[-1]
        parent.size += size
        if parent.size > _LARGEST:
            raise _make_error("its aliases expand to too many values", event)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            parent.key = _to_key(value, event)
        else:
            self._set(parent, parent.value, value)

    def _set(self, parent: _Open, mapping: dict[str, object], value: object) -> None:
        key, parent.key = parent.key, None
        if key == "<<" and isinstance(value, (dict, list)):
            found = value if isinstance(value, list) else [value]
            parent.merged.extend(each for each in found if isinstance(each, dict))
        elif key is not None:
            mapping[key] = value


def _to_key(value: object, event: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case None:
            return "null"
        case int() | float():
            return str(value)
    raise _make_error("a key is a list or a mapping", event)


def _resolve(text: str) -> object:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) > _LONGEST_INTEGER:  # int() takes quadratic time
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if match := _OCTAL.fullmatch(text):
        return int(match[1], 8)
    if match := _HEXADECIMAL.fullmatch(text):
        return int(match[1], 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def _make_error(message: str, event: Any) -> YamlError:
    return YamlError(message, event.start_mark.line + 1, event.start_mark.column + 1)
