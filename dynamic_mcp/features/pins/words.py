"""What a change of words does: nothing, where only white space is another, or a title says what was said before."""

from __future__ import annotations

import re
from enum import Enum


class ChangeClass(Enum):
    """What a change does: to words, to what a tool takes, and to what it says that it does."""

    COSMETIC = "cosmetic"
    TEXT = "text"
    NARROWING = "narrowing"
    WIDENING = "widening"
    EFFECTS = "effects"


Classes = set[ChangeClass]

_WHITE_SPACE = re.compile(r"[ \t\r\n]+")
_WORD = re.compile(r"[^\W_]+")
# Words as they are joined in names: `createIssue`.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def compare_texts(before: object, after: object) -> Classes:
    """Say what it does that a text is another one."""
    if before == after:
        return set()
    both_are_texts = isinstance(before, str) and isinstance(after, str)
    is_same = both_are_texts and squeeze(str(before)) == squeeze(str(after))
    return {ChangeClass.COSMETIC if is_same else ChangeClass.TEXT}


def compare_titles(before: object, after: object, said: str) -> Classes:
    """Say what it does that a title is another one, where `said` is what was said before."""
    if before == after:
        return set()
    if after is None or (isinstance(after, str) and words_of(after) <= words_of(f"{before} {said}")):
        return {ChangeClass.COSMETIC}
    return compare_texts(before, after)


def squeeze(text: str) -> str:
    """Return a text with one space for all white space."""
    return _WHITE_SPACE.sub(" ", text).strip()


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, those included that a name joins."""
    return frozenset(word.casefold() for word in _WORD.findall(_HUMP.sub(" ", text)))
