"""Finds characters that a model reads and nobody sees, and lets those pass that a language or an emoji needs.

A variation selector, a joiner or a mark of direction is no secret where a writing system has it; two in a row are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Tags, marks of direction, what has no width, fillers, control characters, selectors, and halves of characters.
_SUSPICIOUS = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Flags of England, Scotland and Wales: the only tags that have a meaning.
_TAGGED_FLAG = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_MOST = 100_000
_DIRECTIONS = "\u061c\u200e\u200f"
_WITH_VARIANTS = frozenset(("Sm", "So", "Sk", "Lo", "Po", "Pd"))
# The colours of the skin, and arrows that are emoji with a selector.
_OTHER_EMOJI = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff\u2194\u2195"
_KEYCAPS = frozenset("0123456789#*")
# Scripts whose letters join: Arabic and its kin, Syriac, N'Ko, Mandaic, those of India, Tibetan, Mongolian, others.
_JOINING = re.compile(
    "[\u0600-\u07ff\u0840-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\u1900-\u1cff\ua800-\uabff\ufb1d-\ufdff"
    "\ufe70-\ufefc\U00010a00-\U00010eff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
# Scripts that have no spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf]"
)
_RIGHT_TO_LEFT = frozenset(("R", "AL"))


def find_hidden(text: str) -> Iterator[str]:
    """Yield each character that is hidden in a text."""
    if text.isascii() and text.isprintable():
        return
    if "\U000e007f" in text:
        text = _TAGGED_FLAG.sub("\U0001f3f4", text)
    is_right_to_left: bool | None = None
    for number, match in enumerate(_SUSPICIOUS.finditer(text)):
        at, character = match.start(), match[0]
        if character in _DIRECTIONS:
            if is_right_to_left is None:
                is_right_to_left = _is_right_to_left(text)
            belongs = is_right_to_left and not (at and _SUSPICIOUS.match(text, at - 1))
        else:
            belongs = _belongs(text, at, character)
        if not belongs or number >= _MOST:  # no text has so many
            yield character


def format_character(character: str) -> str:
    """Return a character as the standard writes it: `U+200B`."""
    return f"U+{ord(character):04X}"


def _belongs(text: str, at: int, character: str) -> bool:
    """Tell whether a writing system, or an emoji, has this character where it is."""
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    match character:
        case "\u200d":
            return bool(_JOINING.match(before)) or _joins_emoji(text, at)
        case "\u200c":
            return bool(_JOINING.match(before))
        case "\u200b":
            return bool(_UNSPACED.match(before) and _UNSPACED.match(after))
        case "\ufeff":
            return at == 0
        case "\xad":
            return before.isalpha() and after.isalpha()
        case "\u115f" | "\u1160":
            return any("\u1100" <= each <= "\u11ff" for each in (before, after))
    return _has_variants(before, character)


def _joins_emoji(text: str, at: int) -> bool:
    """Tell whether a joiner is between two emoji; the first may have a selector, or a colour of the skin."""
    end = at - 1 if text[at - 1 : at] == "\ufe0f" else at
    return end > 0 and _is_emoji(text[end - 1]) and _is_emoji(text[at + 1 : at + 2])


def _is_emoji(character: str) -> bool:
    if not character:
        return False
    return unicodedata.category(character) == "So" or character in _OTHER_EMOJI


def _has_variants(base: str, selector: str) -> bool:
    """Tell whether a character has variants that a selector chooses from."""
    if not base:
        return False
    if "\u180b" <= selector <= "\u180f":
        return "\u1820" <= base <= "\u18aa"
    if "\ufe00" <= selector <= "\ufe0f":
        if base in _KEYCAPS:
            return selector in "\ufe0e\ufe0f"
        return ord(base) >= 0x80 and (unicodedata.category(base) in _WITH_VARIANTS or base == "\u2139")
    return "\U000e0100" <= selector <= "\U000e01ef" and unicodedata.category(base) == "Lo"


def _is_right_to_left(text: str) -> bool:
    return any(
        each.isalpha() and unicodedata.bidirectional(each) in _RIGHT_TO_LEFT for each in text if each > "\u0590"
    )
