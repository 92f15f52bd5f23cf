"""Finds names that a user or a model may confuse: `READ` with `read`, or one with a Cyrillic letter.

Case, compatibility forms (Unicode NFKD) and accents do not count. What else looks alike is a part of the Unicode data
of confusable characters (UTS #39, `confusables.txt`): the letters of Cyrillic, Greek, Armenian and phonetic
alphabets that look like those of ASCII, and digits that look like letters. Some small letters are there because of
their capitals.
"""

# ruff: noqa: RUF001 - letters that look alike are what this is about
from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_DRAWN_ALIKE = (
    ("АВЕЅІЈКМНОРСТУХЬѴҮԌԜ", "ABESIJKMHOPCTYXbVYGW"),  # Cyrillic
    ("авгекмнорстухѕіјѡѵүһҽӀӏԁԛԝꙇ", "abrekmhopctyxsijwvyhelldqwi"),  # Cyrillic
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϜϹϺͿ", "ABEZHIKMNOPTYXFCMJ"),  # Greek
    ("αβγεηικνορστυχωϲϳ", "abyenikvopotuxwcj"),  # Greek
    ("ՍՏՕագզհոռսցքօ", "USOwqqhnnugfo"),  # Armenian
    ("ɑᴄɡıɪɩƖǀᴏꜱᴜʋᴠɯᴡɣʏᴢ", "acgiiillosuuvwwyyz"),  # phonetic
    ("01\u2010\u2012\u2013\u2014\u2212", "ol-----"),
)
_LETTERS = str.maketrans({alike: letter for pair in _DRAWN_ALIKE for alike, letter in zip(*pair, strict=True)})


class LookAlikes:
    """Names by their appearance."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_form = {form: name for name in names for form in _forms(name)}

    def find(self, name: str) -> str | None:
        """Return a name that another name looks like; None if there is none."""
        found = (self._by_form.get(form) for form in _forms(name))
        return next((each for each in found if each is not None and each != name), None)


def _forms(name: str) -> frozenset[str]:
    """Return the forms of a name by appearance; a capital `I` may be a small one, and looks like an `l`."""
    letters = name if name.isascii() else _without_accents(name)
    drawn = letters.translate(_LETTERS)
    return frozenset((drawn.casefold(), drawn.replace("I", "l").casefold()))


def _without_accents(name: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
