"""Reads from the text of a script which tools it calls by names that are written in it."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

# What is longer is not read: the parser holds up the whole program. It takes as long as there are words and signs.
_LONGEST = 64_000
_MOST_TOKENS = 8_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
# Some versions of Python count the depth of all trees that are being made as one, and raise SystemError if another
# thread has made one meanwhile: https://github.com/python/cpython/issues/106905. So one is made after the other, and
# the tree of a traceback, which a log makes, may still come in between.
_TURN = threading.Lock()
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
_CALL = "call"
_REPEATING = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_EVALUATING = ("eval", "exec", "globals")


class NamedCall(Struct, frozen=True):
    """A call of a tool whose group and name are written as texts, at a `line` of the script, counted from 1.

    `arguments` is what is written as them; None if the tool is called without. `repeats` if it may be made more than
    once: in a loop, or a function.
    """

    group: str
    name: str
    line: int
    arguments: ast.expr | None
    repeats: bool = False


class ScriptNames(Struct, frozen=True):
    """The named calls of a script, in its order.

    `has_others` if it may call further tools, or cannot be read. `redefines` if `call` may be something else in it.
    """

    calls: tuple[NamedCall, ...] = ()
    has_others: bool = False
    redefines: bool = False


_UNKNOWN = ScriptNames(has_others=True, redefines=True)


def read_names(code: str) -> ScriptNames:
    """Return the calls whose names are in a script: it takes some ms, and a tenth of a second at most."""
    if len(code) > _LONGEST or next(islice(_TOKEN.finditer(code), _MOST_TOKENS, None), None) is not None:
        return _UNKNOWN
    try:
        with _TURN, warnings.catch_warnings(action="ignore"):  # of strange escapes, for the log of dynamic-mcp
            tree = ast.parse(code)
    except _UNREADABLE:
        return _UNKNOWN
    repeating = dict(_walk(tree))
    nodes = list(repeating)
    found = ((node, repeats) for node, repeats in repeating.items() if isinstance(node, ast.Call))
    calls = [call for node, repeats in found if (call := _read_call(node, repeats=repeats)) is not None]
    uses = sum(isinstance(node, ast.Name) and node.id == _CALL for node in nodes)
    redefines = any(map(_may_redefine, nodes))
    in_order = tuple(call for _, call in sorted(calls, key=lambda each: each[0]))
    return ScriptNames(in_order, redefines or uses > len(calls), redefines)


def _walk(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield each node, and whether it may run more than once."""
    rest = [(tree, False)]
    while rest:
        node, repeats = rest.pop()
        yield node, repeats
        repeats = repeats or isinstance(node, _REPEATING)
        rest += [(child, repeats) for child in ast.iter_child_nodes(node)]


def _read_call(node: ast.Call, *, repeats: bool) -> tuple[tuple[int, int], NamedCall] | None:
    """Return a call and its place, if both names are texts."""
    if not (isinstance(node.func, ast.Name) and node.func.id == _CALL):
        return None
    values = dict(zip(("group", "name", "args"), node.args, strict=False))
    values |= {each.arg: each.value for each in node.keywords if each.arg is not None}
    if any(each.arg is None for each in node.keywords):
        values["args"] = node  # which is as unknown as they are
    match values.get("group"), values.get("name"):
        case ast.Constant(value=str(group)), ast.Constant(value=str(tool)):
            call = NamedCall(group, tool, node.lineno, values.get("args"), repeats)
            return (node.lineno, node.col_offset), call
    return None


def _may_redefine(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name, ctx=context):
            return name in _EVALUATING or (name == _CALL and not isinstance(context, ast.Load))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name == _CALL
        case ast.arg(arg=name) | ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name == _CALL
        case ast.MatchMapping(rest=name):
            return name == _CALL
        case ast.alias(name=name, asname=other):
            return (other or name) in (_CALL, "*")
    return False
