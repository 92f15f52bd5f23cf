"""Compares two texts word by word, for a person at a terminal, in bounded time.

Every line begins with a sign of ours, so that nothing in a foreign text can pass for an old or an unchanged one, and
what shows nothing on a screen, or would act on it, is written as `<U+200B>`.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from dynamic_mcp.system.blank import BLANK

# Unchanged words that are shown on each side of a change.
_AROUND = 12
# Fewer unchanged words between two changes are shown as a part of one change.
_FEWEST_SAME = 3
# What is compared one by one; of more, all is shown as old and as new.
_MOST_PARTS = 4000
# Scripts that have no spaces between words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# White space and what follows it: a line break, a character of such a script, or a word.
_WORD = re.compile(f"([ \t\r]*)(\n|[{_UNSPACED}]|[^ \t\r\n{_UNSPACED}]+|$)")
_EMOJI_STYLE = "\ufe0f"
_LINE_BREAKS = "<line breaks>"


class Sign(Enum):
    """What became of a line: it was taken out, it was put in, it stayed, or it is a remark of ours."""

    OLD = "-"
    NEW = "+"
    SAME = " "
    REMARK = "@"


@dataclass(frozen=True)
class DiffLine:
    """One line of a comparison; its text has no line breaks and nothing that cannot be seen."""

    sign: Sign
    text: str


@dataclass(frozen=True)
class Run:
    """Parts of two lists that are the same, or that took each other's place."""

    start: int
    end: int
    new_start: int
    new_end: int
    is_same: bool = False


def diff_text(before: str, after: str) -> Iterator[DiffLine]:
    """Yield how two texts differ; white space counts as one space."""
    old, new = _split(before), _split(after)
    runs = _merge(compare([word for _, word in old], [word for _, word in new]))
    if all(run.is_same for run in runs):
        yield DiffLine(Sign.REMARK, "only white space differs")
        return
    for run in runs:
        if run.is_same:
            yield from _shorten(new[run.new_start : run.new_end], is_first=run is runs[0], is_last=run is runs[-1])
        else:
            yield from _to_lines(Sign.OLD, old[run.start : run.end])
            yield from _to_lines(Sign.NEW, new[run.new_start : run.new_end])


def compare(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    """Return the runs of two lists, in bounded time whatever is in them."""
    head = _count_same(old, new)
    tail = _count_same(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    runs = [Run(0, head, 0, head, is_same=True)] if head else []
    if max(len(middle_old), len(middle_new)) > _MOST_PARTS:
        runs.append(Run(head, len(old) - tail, head, len(new) - tail))
    else:
        codes = difflib.SequenceMatcher(None, middle_old, middle_new).get_opcodes()
        runs += [Run(a + head, b + head, c + head, d + head, kind == "equal") for kind, a, b, c, d in codes]
    if tail:
        runs.append(Run(len(old) - tail, len(old), len(new) - tail, len(new), is_same=True))
    return runs


def reveal(text: str) -> str:
    """Return text in which all that shows nothing, or acts on a terminal, is written as `<U+200B>`."""
    if text.isprintable() and BLANK.isdisjoint(text):
        return text
    return "".join(
        character if _is_seen(text, index) else f"<U+{ord(character):04X}>" for index, character in enumerate(text)
    )


def _is_seen(text: str, index: int) -> bool:
    character = text[index]
    if character == _EMOJI_STYLE:  # on its own after a symbol, it shows that in colour
        follows_symbol = index > 0 and unicodedata.category(text[index - 1]) == "So"
        return follows_symbol and text[index + 1 : index + 2] not in BLANK
    return character.isprintable() and character not in BLANK


def _split(text: str) -> list[tuple[str, str]]:
    """Return the words, each with the white space before it."""
    return [(space, word) for space, word in _WORD.findall(text) if word]


def _count_same(old: Sequence[str], new: Sequence[str]) -> int:
    differing = (index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    return next(differing, min(len(old), len(new)))


def _merge(runs: Sequence[Run]) -> list[Run]:
    """Make one change of those that only a few words keep apart."""
    merged: list[Run] = []
    for run in runs:
        is_inner = run is not runs[0] and run is not runs[-1]
        is_change = not run.is_same or (is_inner and run.end - run.start < _FEWEST_SAME)
        if merged and is_change and not merged[-1].is_same:
            first = merged.pop()
            run = Run(first.start, run.end, first.new_start, run.new_end)
        merged.append(run)
    return merged


def _shorten(words: Sequence[tuple[str, str]], *, is_first: bool, is_last: bool) -> Iterator[DiffLine]:
    """Yield the unchanged words that are close to a change, and how many the others are."""
    head, tail = (0 if is_first else _AROUND), (0 if is_last else _AROUND)
    left_out = len(words) - head - tail
    if left_out <= _AROUND:
        yield from _to_lines(Sign.SAME, words)
        return
    yield from _to_lines(Sign.SAME, words[:head])
    yield DiffLine(Sign.REMARK, f"{left_out} words are the same")
    yield from _to_lines(Sign.SAME, words[len(words) - tail :])


def _to_lines(sign: Sign, words: Sequence[tuple[str, str]]) -> list[DiffLine]:
    """Return words as lines; empty ones are left out, as many of them would move the rest out of sight."""
    text = "".join(f"{' ' if space else ''}{word}" for space, word in words)
    lines = [DiffLine(sign, reveal(line.strip(" "))) for line in text.split("\n") if line.strip(" ")]
    if words and not lines and sign is not Sign.SAME:
        return [DiffLine(sign, _LINE_BREAKS)]
    return lines
