"""Compiles conditions in CEL (Common Expression Language), with the types of their variables.

The package is an extra. It is imported with the first condition.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from dynamic_mcp.config.flaws import FlawError

if TYPE_CHECKING:
    from cel_expr_python.cel import Env, Expression

_TEXTS = "list<string>"
# The variables of a condition, and their types.
VARIABLES = {
    "subject": "string",
    "issuer": "string",
    "provider": "string",
    "roles": _TEXTS,
    "scopes": _TEXTS,
    "claims": f"map<string, {_TEXTS}>",
    "server": "string",
    "kind": "string",
    "name": "string",
    "access": "string",
    "arguments": "map<string, dyn>",
}
# The compiler reports `ERROR: <input>:1:4: message (in container '')`, and then shows the line.
_REPORT = re.compile(r"ERROR: <input>:(\d+):(\d+): (.+?)(?: \(in container ''\))?$", re.MULTILINE)


def check_expression(text: str) -> str:
    """Check a condition in CEL."""
    try:
        compiled = compile_expression(text)
    except ImportError:
        from dynamic_mcp.system.extras import install_hint

        raise FlawError("needs a package that is not installed", hint=install_hint("cel")) from None
    except RuntimeError as exc:
        raise FlawError(f"is not a condition in CEL: {_describe(str(exc))}", hint=_list_variables()) from exc
    # `arguments.x` may be true or false; its type is only known at run time
    if compiled.return_type().name() not in ("BOOL", "DYN"):
        raise FlawError("must be true or false", hint='compare it: `subject == "alice"`')
    return text


def compile_expression(text: str, *, without: Collection[str] = ()) -> Expression:
    """Compile a condition that may use all variables except those in `without`.

    Raises ImportError if the extra is not installed, and RuntimeError if the condition is invalid.
    """
    return _environment(frozenset(without)).compile(text)


def names_any(text: str, variables: Collection[str]) -> bool:
    """Return whether a valid condition uses one of these variables."""
    try:
        compile_expression(text, without=variables)
    except RuntimeError:
        return True
    return False


@cache
def _environment(without: frozenset[str]) -> Env:
    from cel_expr_python import cel

    return cel.NewEnv(variables={name: cel.Type(kind) for name, kind in VARIABLES.items() if name not in without})


def _describe(report: str) -> str:
    found = _REPORT.search(report)
    if found is None:
        return "it is nested too deeply, or too long" if "recursion" in report else " ".join(report.split())[:200]
    line, column, what = found.groups()
    return f"{what.strip()[:200]} (line {line}, column {column})"


def _list_variables() -> str:
    return "it can name " + ", ".join(f"`{name}`" for name in VARIABLES)
