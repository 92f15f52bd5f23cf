"""The arguments of a call as far as they are written in a script, and what of them certainly does not fit a schema.

What is computed is unknown until it runs. An error is certain only if it is there whatever that will be.
"""

from __future__ import annotations

import ast
import math

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.arguments import list_readings
from dynamic_mcp.tools.schema import Flaw, InputSchema, Path

# Larger integers are not the same to every reader of JSON.
_LARGEST_INTEGER = 2**53
# Keywords whose errors depend on other values of the same arguments.
_CONDITIONAL = frozenset(("if", "then", "else", "not", "dependentSchemas", "dependencies"))


class WrittenArguments(Struct, frozen=True):
    """Arguments as JSON, with null where the script computes a value, at the paths in `unknown`.

    The objects at the paths in `open` may have further members.
    """

    args: Raw
    unknown: frozenset[Path]
    open: frozenset[Path]

    @property
    def is_known(self) -> bool:
        """Return whether they are all that the call will have."""
        return not self.unknown and not self.open


def read_arguments(node: ast.expr | None) -> WrittenArguments:
    """Return the arguments that an expression of a script writes."""
    reader = _Reader()
    value = {} if node is None or _is_none(node) else reader.read(node, ())
    return WrittenArguments(Raw(wire.encode(value)), frozenset(reader.unknown), frozenset(reader.open))


def find_certain_flaws(schema: InputSchema, written: WrittenArguments) -> tuple[Raw, list[Flaw]]:
    """Return the errors that arguments have whatever their unknown parts are, and the arguments that have them.

    What a call would have repaired is none. Raises InvalidArguments.
    """
    first: tuple[Raw, list[Flaw]] | None = None
    if () in written.unknown:
        return written.args, []
    for reading in list_readings(schema, written.args, {}):
        flaws = [] if reading.misfit is None else schema.find_flaws(reading.args)
        flaws = [flaw for flaw in flaws if _is_certain(flaw, written)]
        if not flaws:
            return reading.args, []
        first = first or (reading.args, flaws)
    return first or (written.args, [Flaw((), "`args` is not an object")])


def _is_certain(flaw: Flaw, written: WrittenArguments) -> bool:
    if written.is_known:
        return True
    if not _CONDITIONAL.isdisjoint(flaw.keywords) or flaw.path in written.unknown:
        return False
    depth = len(flaw.path)
    if all(each[:depth] != flaw.path for each in written.unknown | written.open):
        return True  # nothing in it is unknown
    return flaw.keyword == "additionalProperties" or (flaw.keyword == "required" and flaw.path not in written.open)


class _Reader:
    """Reads one expression, no deeper than the parser of Python does."""

    def __init__(self) -> None:
        self.unknown: list[Path] = []
        self.open: list[Path] = []

    def read(self, node: ast.expr, path: Path) -> object:
        """Return the value of an expression; None where it is unknown, with its path in `unknown`."""
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value) if _is_json(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if _is_json(
                value
            ) and not isinstance(value, bool):
                return -value
            case ast.List(elts=items) | ast.Tuple(elts=items) if not any(map(_is_starred, items)):
                return [self.read(item, (*path, number)) for number, item in enumerate(items)]
            case ast.Dict(keys=keys, values=values):
                return self._read_members(keys, values, path)
        self.unknown.append(path)
        return None

    def _read_members(self, keys: list[ast.expr | None], values: list[ast.expr], path: Path) -> dict[str, object]:
        """Return the members of an object; what comes before a key that is not known may be replaced by it."""
        members: dict[str, ast.expr | None] = {}
        for key, value in zip(keys, values, strict=True):
            match key:
                case ast.Constant(value=str(name)) if _is_json(name):
                    members[name] = value
                case _:
                    members = dict.fromkeys(members)
                    self.open.append(path)
        found: dict[str, object] = {}
        for name, node in members.items():
            if node is None:
                self.unknown.append((*path, name))
            found[name] = None if node is None else self.read(node, (*path, name))
        return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)


def _is_json(value: object) -> bool:
    match value:
        case str():
            return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)
        case float():
            return math.isfinite(value)
        case int():
            return abs(value) <= _LARGEST_INTEGER
    return True
