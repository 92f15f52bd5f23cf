"""Regular expressions of configs: RE2 matches them in time that is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

# A set takes less time for a short text than a pattern does, and more for a long one.
_SHORT = 200
_ONLY_FIRST = [0]
# What means something else next to other patterns: the ends of a text, quotes without an end, flags that are unset.
_ALONE = re.compile(r"\\[AzQ]|\(\?[A-Za-z]*-")


class Match(Protocol):
    """Where a pattern was found."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Return where a group begins and ends; -1 if it took no part."""
        ...


class Pattern(Protocol):
    """A compiled pattern; matching bytes, which are UTF-8, is the fast way."""

    def search(self, text: str | bytes) -> Match | None:
        """Find the first match."""
        ...

    def fullmatch(self, text: str | bytes) -> Match | None:
        """Match the whole text."""
        ...

    def finditer(self, text: str | bytes) -> Iterator[Match]:
        """Yield all matches."""
        ...


class BadPattern(ValueError):
    """No regular expression of RE2."""


def compile_pattern(pattern: str, *, dot_nl: bool = False, captures: bool = False) -> Pattern:
    """Compile a pattern; `dot_nl` lets `.` match a line break. Raises BadPattern."""
    import re2

    options = re2.Options()
    options.dot_nl = dot_nl
    options.never_capture = not captures
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as exc:
        raise BadPattern(f"not a regular expression of RE2: {exc}") from exc
    return compiled


def compile_absence(patterns: Sequence[str]) -> Callable[[bytes], bool] | None:
    """Return a function that tells of lines of text whether none of these is in any of the lines.

    False means unknown. None where there is no such function.
    """
    if any(map(_ALONE.search, patterns)):
        return None
    together = "(?m:" + "|".join(f"(?:{each})" for each in patterns) + ")"
    try:
        pattern = compile_pattern(together, dot_nl=True)
    except BadPattern:  # together they are too large
        return None
    find = compile_set([("", False), (together, False)])  # the first is always found, unless the search has failed

    def is_absent(text: bytes) -> bool:
        if find is not None and len(text) <= _SHORT:
            return find(text) == _ONLY_FIRST
        return pattern.search(text) is None

    return is_absent


def compile_set(patterns: Iterable[tuple[str, bool]]) -> Callable[[bytes], list[int] | None] | None:
    """Return a function that tells which of these patterns are in a text, numbered from 0.

    Where the flag beside it says so, one has to match the whole text, and its `.` no line break. The function returns
    None if there are none, and also if the search takes too much memory. None where there is no such function.
    """
    import re2

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    together = re2.Set.SearchSet(options)
    try:
        for pattern, is_whole in patterns:
            together.Add(rf"\A(?:{pattern})\z" if is_whole else f"(?s:{pattern})")
        together.Compile()
    except re2.error:
        return None
    match: Callable[[bytes], list[int] | None] = together.Match
    return match
