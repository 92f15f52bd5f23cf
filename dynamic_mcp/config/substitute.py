"""Variables in texts: `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, and `$${` for a plain `${`.

One pass: what a variable holds is never expanded again. Everything else that has a `$` in it stays
as it is, and nothing is ever given to a shell.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

_DEFAULT = r"(?:\$\{[^{}]*\}|[^}])*"
_REFERENCE = rf"\$\$\{{|\$\{{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<sign>[-?])(?P<rest>{_DEFAULT}))?\}}"


class Expansion(Struct, frozen=True):
    """A text with its variables filled in, the names that are not set, and the demands that are not met.

    `demanded` are the names of those, `empty` the names that are set to nothing.
    """

    text: str
    undefined: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


def expand(text: str, environment: Mapping[str, str]) -> Expansion:
    """Fill in the variables of `text`; a name that is not set stays as it is and is reported.

    A default may hold references of its own, one level deep: `${A:-${B}}`.
    """
    if "${" not in text:
        return Expansion(text)
    found: list[Expansion] = []

    def fill(match: re.Match[str]) -> str:
        found.append(_expand_reference(match, environment))
        return found[-1].text

    # a reference ends with a brace, so what follows the last one needs no search
    end = text.rfind("}") + 1
    return Expansion(
        text=re.sub(_REFERENCE, fill, text[:end]) + text[end:].replace("$${", "${"),
        undefined=_unique(name for part in found for name in part.undefined),
        failures=_unique(failure for part in found for failure in part.failures),
        required=_unique(name for part in found for name in part.required),
        empty=_unique(name for part in found for name in part.empty),
    )


def references(text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that `text` takes, or would take if they were set; one with a default only if it is set."""
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
    if value in (f"${{{name}}}", f"${name}", f"${{env:{name}}}"):  # so a tool passes on what it does not have itself
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
