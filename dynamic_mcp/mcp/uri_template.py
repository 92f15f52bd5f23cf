"""Matches URIs against URI templates (RFC 6570), to find the group that owns a URI, and makes URIs of templates.

Matching is permissive: a template that might have produced the URI matches, since its upstream decides in the end.
The time taken is proportional to the two lengths, even for a hostile template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_LONGEST = 2000


class _Operator(Struct, frozen=True):
    """The prefix of an operator's expansion, and the characters that it cannot contain."""

    prefix: str
    forbidden: frozenset[str]


_GEN_DELIMS = ":/?#[]@"
_SUB_DELIMS = "!$&'()*+;"  # without the comma and the equals sign, which join values and, exploded, pairs
_SIMPLE = frozenset(_GEN_DELIMS + _SUB_DELIMS)
# RFC 6570, section 3.2 and appendix A; an exploded list repeats the prefix between its items
_OPERATORS = {
    "": _Operator("", _SIMPLE),
    "+": _Operator("", frozenset()),
    "#": _Operator("#", frozenset()),
    ".": _Operator(".", _SIMPLE),
    "/": _Operator("/", _SIMPLE - {"/"}),
    ";": _Operator(";", frozenset("/?#")),
    "?": _Operator("?", frozenset("#")),
    "&": _Operator("&", frozenset("#")),
}


def matches(template: str, uri: str) -> bool:
    """Return whether `uri` may be an expansion of `template`. An invalid template matches nothing."""
    parts = _split_template(template)
    if not parts or len(uri) > _LONGEST:
        return False
    if isinstance(parts[0], str) and not uri.startswith(parts[0]):
        return False
    reached = {0}
    for part in parts:
        reached = (
            _match_literal(part, uri, reached) if isinstance(part, str) else _match_expression(part, uri, reached)
        )
        if not reached:
            return False
    return len(uri) in reached


def variables(template: str) -> list[str]:
    """Return the names of the variables of a template, in order; none if it is invalid."""
    expressions = _EXPRESSION.finditer(template) if _split_template(template) else ()
    return list(dict.fromkeys(name for each in expressions for name, _ in _split_names(each[2])))


def expand(template: str, values: Mapping[str, str]) -> str:
    """Return the URI that a template makes of texts; a variable without a value expands to nothing."""
    return _EXPRESSION.sub(lambda found: _expand_expression(found[1], found[2], values), template)


def _expand_expression(operator: str, names: str, values: Mapping[str, str]) -> str:
    """Expand one expression as RFC 6570, section 3.2, says of values that are texts."""
    first, joint, safe = _EXPANSIONS[operator]
    parts: list[str] = []
    for name, longest in _split_names(names):
        if name in values:
            value = quote(values[name][:longest], safe=safe)
            empty = "" if operator == ";" else "="
            parts.append(value if operator not in tuple(";?&") else f"{name}={value}" if value else f"{name}{empty}")
    return first + joint.join(parts) if parts else ""


def _split_names(names: str) -> list[tuple[str, int | None]]:
    """Return the names in an expression, each with its longest value: `{var:3}` is a prefix, `{list*}` explodes."""
    found: list[tuple[str, int | None]] = []
    for each in names.split(","):
        name, _, longest = each.strip().removesuffix("*").partition(":")
        if name:
            found.append((name, int(longest) if longest.isdecimal() and len(longest) < 5 else None))
    return found


_ALSO_SAFE = _GEN_DELIMS + _SUB_DELIMS + ",="
# What each expression begins with, what is between its values, and which characters stay as they are.
_EXPANSIONS = {
    "": ("", ",", ""),
    "+": ("", ",", _ALSO_SAFE),
    "#": ("#", ",", _ALSO_SAFE),
    ".": (".", ".", ""),
    "/": ("/", "/", ""),
    ";": (";", ";", ""),
    "?": ("?", "&", ""),
    "&": ("&", "&", ""),
}


@lru_cache(maxsize=1024)
def _split_template(template: str) -> tuple[str | _Operator, ...]:
    """Split a template into literals and expressions; empty if it is too long or its braces are unbalanced."""
    if len(template) > _LONGEST:
        return ()
    parts: list[str | _Operator] = []
    end = 0
    for expression in _EXPRESSION.finditer(template):
        parts += [template[end : expression.start()], _OPERATORS[expression[1]]]
        end = expression.end()
    parts.append(template[end:])
    if any("{" in part or "}" in part for part in parts if isinstance(part, str)):
        return ()
    return tuple(part for part in parts if part != "")


def _match_literal(text: str, uri: str, reached: set[int]) -> set[int]:
    return {at + len(text) for at in reached if uri.startswith(text, at)}


def _match_expression(operator: _Operator, uri: str, reached: set[int]) -> set[int]:
    """Return every position where the expansion can end: an empty one ends where it starts."""
    ends = set(reached)
    inside = False
    starts = {at + len(operator.prefix) for at in reached if uri.startswith(operator.prefix, at)}
    for at in range(min(starts, default=len(uri) + 1), len(uri) + 1):
        inside = inside or at in starts
        if inside:
            ends.add(at)
        if at < len(uri) and uri[at] in operator.forbidden:
            inside = False
    return ends
