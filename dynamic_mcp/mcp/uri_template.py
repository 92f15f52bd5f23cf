"""Tell whether a URI can come from a URI template (RFC 6570), to find the group that owns it.

Matching is permissive: a template that might have made the URI matches, since its upstream has the last word.
It takes time in proportion to the two lengths, whatever a hostile template looks like.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_LONGEST = 2000


class _Form(Struct, frozen=True):
    """What an operator's expansion looks like: what it begins with, and what it cannot hold."""

    lead: str
    never: frozenset[str]


_GEN_DELIMS = ":/?#[]@"
_SUB_DELIMS = "!$&'()*+;"  # without the comma and the equals sign, which join values and, exploded, pairs
_SIMPLE = frozenset(_GEN_DELIMS + _SUB_DELIMS)
# RFC 6570, section 3.2 and appendix A; an exploded list repeats the lead between its items
_FORMS = {
    "": _Form("", _SIMPLE),
    "+": _Form("", frozenset()),
    "#": _Form("#", frozenset()),
    ".": _Form(".", _SIMPLE),
    "/": _Form("/", _SIMPLE - {"/"}),
    ";": _Form(";", frozenset("/?#")),
    "?": _Form("?", frozenset("#")),
    "&": _Form("&", frozenset("#")),
}


def matches(template: str, uri: str) -> bool:
    """Tell whether `uri` may be an expansion of `template`. What is no template matches nothing."""
    parts = _parts(template)
    if not parts or len(uri) > _LONGEST:
        return False
    if isinstance(parts[0], str) and not uri.startswith(parts[0]):
        return False
    reached = {0}
    for part in parts:
        reached = _literal(part, uri, reached) if isinstance(part, str) else _expanded(part, uri, reached)
        if not reached:
            return False
    return len(uri) in reached


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[str | _Form, ...]:
    """Cut a template into literals and expressions; nothing when it is too long or its braces do not pair."""
    if len(template) > _LONGEST:
        return ()
    parts: list[str | _Form] = []
    end = 0
    for expression in _EXPRESSION.finditer(template):
        parts += [template[end : expression.start()], _FORMS[expression[1]]]
        end = expression.end()
    parts.append(template[end:])
    if any("{" in part or "}" in part for part in parts if isinstance(part, str)):
        return ()
    return tuple(part for part in parts if part != "")


def _literal(text: str, uri: str, reached: set[int]) -> set[int]:
    return {at + len(text) for at in reached if uri.startswith(text, at)}


def _expanded(form: _Form, uri: str, reached: set[int]) -> set[int]:
    """Return every position that an expansion can end at: none of it, or its lead and then what it may hold."""
    ends = set(reached)
    inside = False
    starts = {at + len(form.lead) for at in reached if uri.startswith(form.lead, at)}
    for at in range(min(starts, default=len(uri) + 1), len(uri) + 1):
        inside = inside or at in starts
        if inside:
            ends.add(at)
        if at < len(uri) and uri[at] in form.never:
            inside = False
    return ends
