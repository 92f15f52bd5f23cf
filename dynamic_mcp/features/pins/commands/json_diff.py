"""Compares two JSON values as indented lines. Objects are compared name by name, and long strings word by word."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynamic_mcp.features.pins.commands.text_diff import DiffLine, Sign, compare, diff_text, reveal

# Unchanged lines that are shown on each side of a change.
_AROUND = 3
# Strings that are longer are compared word by word.
_LONG = 80
# What is nested deeper is shown whole, as old and as new.
_DEEPEST = 30
_INDENT = "  "


@dataclass(frozen=True)
class _Line:
    """A line of JSON; one that opens what has changed inside is never left out."""

    sign: Sign
    depth: int
    text: str
    is_open: bool = False


def diff_json(before: object, after: object) -> Iterator[DiffLine]:
    """Yield how two values differ, with their surroundings."""
    return _shorten(list(_diff_value("", before, after, 0)))


def format_json(value: object) -> list[str]:
    """Return a value as indented lines, with all that cannot be seen written out."""
    return [reveal(line) for line in _dump(value).split("\n")]


def is_same(before: object, after: object) -> bool:
    """Tell whether two values are written alike: `true` is another one than `1`."""
    return _encode(before) == _encode(after)


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _dump(value: object) -> str:
    return json.dumps(value, indent=len(_INDENT), ensure_ascii=False, sort_keys=True)


def _diff_value(name: str, before: object, after: object, depth: int) -> Iterator[_Line]:
    """Yield the lines of two values that have the same name, or none."""
    if is_same(before, after):
        yield from _whole(Sign.SAME, name, after, depth)
        return
    match before, after:
        case (dict(), dict()) if depth < _DEEPEST:
            yield _Line(Sign.SAME, depth, f"{name}{{", is_open=True)
            yield from _diff_object(before, after, depth + 1)
            yield _Line(Sign.SAME, depth, "}")
        case (list(), list()) if depth < _DEEPEST:
            yield _Line(Sign.SAME, depth, f"{name}[", is_open=True)
            yield from _diff_list(before, after, depth + 1)
            yield _Line(Sign.SAME, depth, "]")
        case (str(), str()) if min(len(before), len(after)) > _LONG:
            yield _Line(Sign.SAME, depth, name.rstrip() or "…", is_open=True)
            yield from (_Line(line.sign, depth + 1, line.text) for line in diff_text(before, after))
        case _:
            yield from _whole(Sign.OLD, name, before, depth)
            yield from _whole(Sign.NEW, name, after, depth)


def _diff_object(before: Mapping[str, object], after: Mapping[str, object], depth: int) -> Iterator[_Line]:
    for key in sorted({*before, *after}):
        name = f"{json.dumps(key, ensure_ascii=False)}: "
        if key in before and key in after:
            yield from _diff_value(name, before[key], after[key], depth)
        elif key in before:
            yield from _whole(Sign.OLD, name, before[key], depth)
        else:
            yield from _whole(Sign.NEW, name, after[key], depth)


def _diff_list(before: Sequence[object], after: Sequence[object], depth: int) -> Iterator[_Line]:
    for run in compare([_encode(each) for each in before], [_encode(each) for each in after]):
        old, new = before[run.start : run.end], after[run.new_start : run.new_end]
        if run.is_same or len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                yield from _diff_value("", one, other, depth)
            continue
        for sign, values in ((Sign.OLD, old), (Sign.NEW, new)):
            for each in values:
                yield from _whole(sign, "", each, depth)


def _whole(sign: Sign, name: str, value: object, depth: int) -> Iterator[_Line]:
    for number, line in enumerate(_dump(value).split("\n")):
        text = line.lstrip(" ")
        inner = (len(line) - len(text)) // len(_INDENT)
        yield _Line(sign, depth + inner, text.removesuffix(",") if number else name + text.removesuffix(","))


def _shorten(lines: Sequence[_Line]) -> Iterator[DiffLine]:
    """Leave out unchanged lines that are far from a change, and say how many."""
    changed = {number for number, line in enumerate(lines) if line.sign is not Sign.SAME}
    near = {each + offset for each in changed for offset in range(-_AROUND, _AROUND + 1)}
    left_out = 0
    for number, line in enumerate([*lines, None]):
        is_shown = line is None or number in near or line.is_open
        if not is_shown:
            left_out += 1
            continue
        if left_out:
            yield DiffLine(Sign.REMARK, "1 line is the same" if left_out == 1 else f"{left_out} lines are the same")
            left_out = 0
        if line is not None:
            yield DiffLine(line.sign, _INDENT * line.depth + reveal(line.text))
