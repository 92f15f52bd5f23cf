"""Substitutes variables: `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, and `$${` for a literal `${`.

The values of variables are never expanded again. Any other text with a `$` stays as it is, and no shell is involved.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

_DEFAULT = r"(?:\$\{[^{}]*\}|[^}])*"
_REFERENCE = rf"\$\$\{{|\$\{{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<sign>[-?])(?P<rest>{_DEFAULT}))?\}}"


class Expansion(Struct, frozen=True):
    """A text with its variables substituted, the undefined names, and the failures of `${VAR:?message}`.

    `required` are the names in those failures, `empty` the names with an empty value.
    """

    text: str
    undefined: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


def expand(text: str, environment: Mapping[str, str]) -> Expansion:
    """Substitute the variables of `text`; a reference to an undefined name stays as it is and is reported.

    A default may contain references itself, one level deep: `${A:-${B}}`.
    """
    if "${" not in text:
        return Expansion(text)
    expansions: list[Expansion] = []

    def fill(match: re.Match[str]) -> str:
        expansions.append(_expand_reference(match, environment))
        return expansions[-1].text

    # a reference ends with a brace, so what follows the last one needs no search
    end = text.rfind("}") + 1
    return Expansion(
        text=re.sub(_REFERENCE, fill, text[:end]) + text[end:].replace("$${", "${"),
        undefined=_unique(name for each in expansions for name in each.undefined),
        failures=_unique(failure for each in expansions for failure in each.failures),
        required=_unique(name for each in expansions for name in each.required),
        empty=_unique(name for each in expansions for name in each.empty),
    )


def references(text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that `text` refers to; one with a default only if it is set."""
    for match in re.finditer(_REFERENCE, text) if "${" in text else ():
        name, sign, rest = match["name"], match["sign"], match["rest"]
        if name and sign == "-" and not environment.get(name):
            yield from references(rest, environment)
        elif name:
            yield name


def _expand_reference(reference: re.Match[str], environment: Mapping[str, str]) -> Expansion:
    name, sign, rest = reference["name"], reference["sign"], reference["rest"]
    if name is None:
        return Expansion("${")
    value = environment.get(name)
    if value in (
        f"${{{name}}}",
        f"${name}",
        f"${{env:{name}}}",
    ):  # some tools pass on a variable that they lack like this
        value = None
    if value or (value is not None and sign is None):
        return Expansion(value, empty=() if value else (name,))
    if sign == "-":
        return expand(rest, environment)
    if sign == "?":
        return Expansion(
            reference[0], failures=(f"`${{{name}}}` is not set" + (f": {rest}" if rest else ""),), required=(name,)
        )
    return Expansion(reference[0], undefined=(name,))


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
