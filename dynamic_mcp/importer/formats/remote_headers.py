"""How each tool writes the headers of an entry with a URL, and the variables in them, as far as that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.adapter import Adapter, Syntax

_PLACES: Mapping[str, Keys] = {
    "codex": ("http_headers",),
    "continue": ("requestOptions", "headers"),
    "copilot-jetbrains": ("requestInit", "headers"),
}
# Their pages do not say whether a server with a URL may have headers.
_UNKNOWN = frozenset(("5ire", "fx", "mastracode", "visual-studio"))
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# How to write a variable in a syntax; a tool with several gets the first of them.
_WRITTEN: Mapping[Syntax, str] = {
    Syntax.BRACES: "${NAME}",
    Syntax.DEFAULT: "${NAME}",
    Syntax.ENV: "${env:NAME}",
    Syntax.CURLY: "{env:NAME}",
    Syntax.DOLLAR: "$NAME",
    Syntax.ACTIONS: "${{ secrets.NAME }}",
}


def variables_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that headers refer to as `${NAME}`."""
    return tuple(dict.fromkeys(name for value in headers.values() for name in _VARIABLE.findall(value)))


def header_fields(adapter: Adapter, headers: Mapping[str, str]) -> Mapping[str, object] | None:
    """Return the fields of an entry that sends these headers; None if the tool is not known to do so."""
    if not headers:
        return {}
    if adapter.name in _UNKNOWN:
        return None
    if adapter.name == "codex":
        return _codex_fields(headers)
    syntax = _syntax_of(adapter)
    written: dict[str, str] = {}
    for name, value in headers.items():
        if "$" in value and (syntax is None or "$" in _VARIABLE.sub("", value)):
            return None
        written[name] = _VARIABLE.sub(lambda found: (syntax or "").replace("NAME", found[1]), value)
    return _nested(_PLACES.get(adapter.name, ("headers",)), written)


def _syntax_of(adapter: Adapter) -> str | None:
    """Return how the tool writes a variable; None if nothing is known of that."""
    if Syntax.LENIENT in adapter.variables and Syntax.ACTIONS in adapter.variables:  # any syntax at all
        return None
    return next((_WRITTEN[each] for each in _WRITTEN if each in adapter.variables), None)


def _codex_fields(headers: Mapping[str, str]) -> Mapping[str, object] | None:
    """Codex expands nothing in headers, and names the variables in fields of their own."""
    fixed: dict[str, str] = {}
    of_variables: dict[str, str] = {}
    fields: dict[str, object] = {}
    for name, value in headers.items():
        whole = _VARIABLE.fullmatch(value)
        bearer = _VARIABLE.fullmatch(value.removeprefix("Bearer "))
        if "$" not in value:
            fixed[name] = value
        elif whole is not None:
            of_variables[name] = whole[1]
        elif bearer is not None and name.lower() == "authorization":
            fields["bearer_token_env_var"] = bearer[1]
        else:
            return None
    groups = {"http_headers": fixed, "env_http_headers": of_variables}
    return {**fields, **{name: group for name, group in groups.items() if group}}


def _nested(place: Keys, value: object) -> Mapping[str, object]:
    for key in reversed(place):
        value = {str(key): value}
    assert isinstance(value, dict)
    return value
