"""Names of packages that look like those of known servers, from `known.json`.

A name looks like a known one if only letters that are drawn alike, separators, or the `@` and `/` of a scope differ;
if it is the known name without its scope, or in a scope that looks like the known scope; if one long word of it
differs by one letter; or if two letters of a word have changed places. A name that is known itself looks like none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from dynamic_mcp.features.provenance.packages import PackageKind
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.look_alikes import LookAlikes

_SEPARATORS = re.compile(r"[-_.@/]+")
# Of shorter words, too many differ by one letter: `git` and `gist`.
_SHORTEST_MISTYPED = 5
_WORDS_OF_MANY = {"mcp", "server", "dev"}
_LONGEST = 214  # of npm's names


def find_look_alike(kind: PackageKind, name: str) -> str | None:
    """Return the known server that a name looks like and is not; None if there is none, or if it is known."""
    own = _fold(kind, name)
    if own in known_names(kind) or len(name) > _LONGEST:
        return None
    last = own.rpartition("/")[2]
    nearest = sorted(known_names(kind), key=lambda known: known.rpartition("/")[2] != last)
    return next((known for matches in _RULES[kind] for known in nearest if matches(own, known)), None)


@cache
def known_names(kind: PackageKind) -> tuple[str, ...]:
    """Return the names of known servers of a registry."""
    data = files(__package__).joinpath("known.json").read_bytes()
    names: Mapping[str, Sequence[str]] = decode_as(data, dict[str, tuple[str, ...]])
    return tuple(_fold(kind, each) for each in names[kind])


def _fold(kind: PackageKind, name: str) -> str:
    """Return a name as its registry compares it."""
    if kind == "pypi":
        return re.sub(r"[-_.]+", "-", name).lower()
    return name.removeprefix("docker.io/") if kind == "oci" else name


def _is_drawn_alike(name: str, known: str) -> bool:
    return LookAlikes((known,)).find(name) is not None or _letters(name) == _letters(known)


def _letters(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def _lacks_scope(name: str, known: str) -> bool:
    """Return whether a name is all of a known one but for the scope: `server-filesystem`."""
    _, slash, last = known.partition("/")
    return bool(slash) and known.startswith("@") and name == last and not {*_words(last)} <= _WORDS_OF_MANY


def _is_mistyped(name: str, known: str) -> bool:
    """Return whether one word of a name differs by a letter, or has two letters in each other's place."""
    words, known_words = [*_words(name)], [*_words(known)]
    if len(words) != len(known_words):
        return False
    pairs = [(word, other) for word, other in zip(words, known_words, strict=True) if word != other]
    return len(pairs) == 1 and _is_near(*pairs[0])


def _has_near_scope(name: str, known: str) -> bool:
    """Return whether a name is in a scope that looks like a known one, whatever the rest of it."""
    if not (name.startswith("@") and known.startswith("@")):
        return False
    scope, known_scope = name.partition("/")[0][1:], known.partition("/")[0][1:]
    if scope == known_scope or len(known_scope) < 2 * _SHORTEST_MISTYPED:
        return False
    return _is_drawn_alike(scope, known_scope) or _is_near(_letters(scope), _letters(known_scope))


def _words(name: str) -> Iterator[str]:
    yield from filter(None, _SEPARATORS.split(name.casefold()))


def _is_near(word: str, other: str) -> bool:
    if sorted(word) == sorted(other) and _is_swapped(word, other):
        return True
    return min(len(word), len(other)) >= _SHORTEST_MISTYPED and _differs_by_one(word, other)


def _is_swapped(word: str, other: str) -> bool:
    """Return whether two neighbouring letters have changed places."""
    places = [number for number, pair in enumerate(zip(word, other, strict=True)) if pair[0] != pair[1]]
    return len(places) == 2 and places[1] == places[0] + 1


def _differs_by_one(word: str, other: str) -> bool:
    """Return whether a letter was added, left out or exchanged."""
    short, long = sorted((word, other), key=len)
    if len(long) - len(short) > 1:
        return False
    at = next(
        (number for number, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short)
    )
    return short[at + (len(short) == len(long)) :] == long[at + 1 :]


_RULES = {
    "npm": (_is_drawn_alike, _lacks_scope, _is_mistyped, _has_near_scope),
    "pypi": (_is_drawn_alike, _is_mistyped),
    "oci": (_is_drawn_alike, _is_mistyped),
}
