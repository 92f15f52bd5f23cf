"""Globs of names and URIs: `*` is any text, `?` any character; all other characters are literal.

Matching takes time proportional to the text, for any number of globs and any text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

# A split pattern: literals at even places, wildcards between them.
_Tokens = Sequence[str]
_WILDCARD = re.compile(r"([*?])")
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Stands for an expression of a template. It is no character of a text, so a `?` need not match it.
_ANY_TEXT = "\U0010ffff"
# RE2 needs about 300 bytes for a character of a glob.
_MAX_MEMORY = 1 << 28

# Invisible characters, besides those of the categories Cc, Cf and Cs (Unicode, Default_Ignorable_Code_Point)
_INVISIBLE_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)


class _Regex(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class Globs:
    """Names and globs, any of which may match."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(dict.fromkeys(patterns))
        self._matches = _build_matcher([_WILDCARD.split(pattern) for pattern in self._patterns])

    def matches(self, name: str) -> bool:
        """Return whether the exact name matches."""
        return self._matches(name)

    def matches_variant(self, name: str) -> bool:
        """Return whether a name matches, or another name that a reader or a server may confuse with it.

        Case, width, composition, surrounding white space and invisible characters make no difference.
        """
        return self._matches(name) or self._matches_folded(fold(name).strip())

    def may_match(self, template: str) -> bool:
        """Return whether an expansion of a URI template (RFC 6570) may match; an expression stands for any text."""
        literals = _EXPRESSION.split(template)
        if len(literals) == 1:
            return self._matches(template)
        return any(_may_meet(pattern, literals) for pattern in self._patterns)

    def covers(self, template: str) -> bool:
        """Return whether every expansion of a URI template matches. A True is certain, a False is not."""
        return self._covers(_EXPRESSION.sub(_ANY_TEXT, template))

    @cached_property
    def _matches_folded(self) -> Callable[[str], bool]:
        return _build_matcher([_fold_pattern(pattern) for pattern in self._patterns])

    @cached_property
    def _covers(self) -> Callable[[str], bool]:
        return _build_matcher(
            [_WILDCARD.split(pattern) for pattern in self._patterns if _ANY_TEXT not in pattern],
            any_character=f"[^{_ANY_TEXT}]",
        )


# --- matching --------------------------------------------------------------------------------------------


def _build_matcher(patterns: Sequence[_Tokens], *, any_character: str = ".") -> Callable[[str], bool]:
    """Return a function that matches texts. Names and prefixes need no regular expressions."""
    names = frozenset(tokens[0] for tokens in patterns if len(tokens) == 1)
    prefixes = tuple(tokens[0] for tokens in patterns if _is_prefix(tokens))
    others = [tokens for tokens in patterns if len(tokens) > 1 and not _is_prefix(tokens)]
    if not others:
        return lambda text: text in names or text.startswith(prefixes)
    regex = _compile(others, any_character)
    return lambda text: (
        text in names or text.startswith(prefixes) or regex.fullmatch(_SURROGATE.sub("\ufffd", text)) is not None
    )


def _is_prefix(tokens: _Tokens) -> bool:
    return len(tokens) == 3 and tokens[1] == "*" and not tokens[2]


def _compile(patterns: Iterable[_Tokens], any_character: str) -> _Regex:
    import re2

    options = re2.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    wildcards = {"*": ".*", "?": any_character}
    compiled: _Regex = re2.compile(
        "|".join(
            "".join(
                wildcards[token] if place % 2 else re2.escape(_SURROGATE.sub("\ufffd", token))
                for place, token in enumerate(tokens)
            )
            for tokens in patterns
        ),
        options,
    )
    return compiled


# --- variants of a name ----------------------------------------------------------------------------------


def fold(text: str) -> str:
    """Return a text that is equal for texts that look the same, or that a server may treat as equal."""
    if text.isascii() and text.isprintable():
        return text.lower()
    normal = unicodedata.normalize("NFKC", _drop_invisible(text)).casefold()
    return _drop_invisible(unicodedata.normalize("NFKC", normal))


def _drop_invisible(text: str) -> str:
    return "".join(character for character in text if not _is_invisible(character))


def _is_invisible(character: str) -> bool:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs"):
        return not character.isspace()  # a tab or a line break is white space
    return any(first <= ord(character) <= last for first, last in _INVISIBLE_RANGES)


def _fold_pattern(pattern: str) -> _Tokens:
    tokens = [token if place % 2 else fold(token) for place, token in enumerate(_WILDCARD.split(pattern))]
    tokens[0] = tokens[0].lstrip()
    tokens[-1] = tokens[-1].rstrip()
    return tokens


# --- templates -------------------------------------------------------------------------------------------


def _may_meet(glob: str, literals: Sequence[str]) -> bool:
    """Return whether a glob and a template may have a common text; `literals` surround the template's expressions."""
    start, star, rest = glob.partition("*")
    if not star:
        return _may_hold(glob, literals)
    # each has a wildcard, whose text can include all between the start and the end of the other
    end = rest.rpartition("*")[2]
    return _agree(start, literals[0]) and _agree(end[::-1], literals[-1][::-1])


def _agree(glob: str, text: str) -> bool:
    """Return whether a glob without `*` and a text agree on their common length."""
    return all(expected in ("?", character) for expected, character in zip(glob, text, strict=False))


def _may_hold(glob: str, literals: Sequence[str]) -> bool:
    """Return whether a glob without `*` can match a text with these literals in order, the outer ones at its ends."""
    first, *middle, last = literals
    if sum(map(len, literals)) > len(glob) or not _agree(glob, first) or not _agree(glob[::-1], last[::-1]):
        return False
    places: defaultdict[str, int] = defaultdict(int)  # of each character, as bits
    for place, expected in enumerate(glob):
        places[expected] |= 1 << place
    start = len(first)
    for literal in middle:
        starts = -1 << start
        for offset, character in enumerate(literal):
            starts &= (places[character] | places["?"]) >> offset
        if not starts:
            return False
        start = (starts & -starts).bit_length() - 1 + len(literal)
    return start <= len(glob) - len(last)
