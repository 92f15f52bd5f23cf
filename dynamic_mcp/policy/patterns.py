"""Regular expressions of configs. RE2 matches them in time that is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

# A set is faster than a pattern for a short text, and slower for a long one.
_SHORT = 200
_ONLY_FIRST = [0]
# Syntax that changes meaning in a union: the ends of a text, unclosed quotes, unset flags.
_ALONE = re.compile(r"\\[AzQ]|\(\?[A-Za-z]*-")


class PatternMatch(Protocol):
    """The place of a match."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Return the start and end of a group; -1 if it did not take part in the match."""
        ...


class Pattern(Protocol):
    """A compiled pattern. Matching bytes of UTF-8 is the fast way."""

    def search(self, text: str | bytes) -> PatternMatch | None: ...

    def fullmatch(self, text: str | bytes) -> PatternMatch | None: ...

    def finditer(self, text: str | bytes) -> Iterator[PatternMatch]: ...


class BadPattern(ValueError):
    """The pattern is not a regular expression of RE2."""


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
    """Return a function that checks that none of the patterns matches in any line of a text.

    Its False means unknown. Returns None if such a function cannot be compiled.
    """
    if any(map(_ALONE.search, patterns)):
        return None
    together = "(?m:" + "|".join(f"(?:{each})" for each in patterns) + ")"
    try:
        pattern = compile_pattern(together, dot_nl=True)
    except BadPattern:  # the union is too large
        return None
    find = compile_set([("", False), (together, False)])  # the empty pattern is always found, unless the search fails

    def is_absent(text: bytes) -> bool:
        if find is not None and len(text) <= _SHORT:
            return find(text) == _ONLY_FIRST
        return pattern.search(text) is None

    return is_absent


def compile_set(patterns: Iterable[tuple[str, bool]]) -> Callable[[bytes], list[int] | None] | None:
    """Return a function that finds which patterns match in a text, by their numbers from 0.

    A pattern with the flag must match the whole text, and its `.` does not match a line break. It returns None
    if no pattern matches, and also if the search takes too much memory. Returns None if there is no such function.
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
