"""Selects operations of a document by what a config writes: names, methods with paths, tags, and globs of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from dynamic_mcp.errors import closest
from dynamic_mcp.openapi.operations import METHODS, LeftOut, Operation

_MOST_SHOWN = 8


def select_operations(
    operations: Sequence[Operation], include: Sequence[str], exclude: Sequence[str]
) -> tuple[Operation, ...]:
    """Return the operations that a config selects."""
    return tuple(each for each in operations if matches(each, include) and not matches(each, exclude))


def matches(operation: Operation, globs: Iterable[str]) -> bool:
    """Return whether one of these means an operation."""
    return any(_matches(operation, glob) for glob in globs)


def find_mistakes(operations: Sequence[Operation], left_out: Sequence[LeftOut], entries: Iterable[str]) -> list[str]:
    """Return what is wrong with each entry that means no operation."""
    return [
        _explain(operations, left_out, each) for each in entries if not any(_matches(one, each) for one in operations)
    ]


def _matches(operation: Operation, glob: str) -> bool:
    method, space, path = glob.partition(" ")
    if space and (method.lower() in METHODS or method == "*") and path.startswith(("/", "*")):
        return fnmatchcase(operation.method, method.upper()) and fnmatchcase(operation.path, path)
    names = (operation.tool, operation.id, *operation.tags)
    return any(fnmatchcase(name, glob) for name in names if name)


def _explain(operations: Sequence[Operation], left_out: Sequence[LeftOut], entry: str) -> str:
    for each in left_out:
        if each.is_whole and (each.where.lower() == entry.lower() or each.id == entry):
            return f"`{entry}` is left out: {each.why}"
    names = [name for each in operations for name in (each.tool, each.where, *each.tags)]
    near = [f"`{each}`" for each in closest(entry, list(dict.fromkeys(names)))]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {_list(operations)}"
    return f"no operation is `{entry}`; {hint}"


def _list(operations: Sequence[Operation]) -> str:
    shown = ", ".join(f"`{each.tool}`" for each in operations[:_MOST_SHOWN])
    return f"{shown} and {len(operations) - _MOST_SHOWN} more" if len(operations) > _MOST_SHOWN else shown or "none"
