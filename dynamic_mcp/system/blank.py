r"""Invisible and control characters, and their replacement by escapes: `\u200b`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

# A class for `re`: control characters but for white space, halves of characters, format characters such as marks of
# direction and tags, and the fillers and variation selectors that `str.isprintable` lets pass (UAX #44).
INVISIBLE = (
    "\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def reveal(text: str) -> str:
    r"""Return text on one line, with escapes such as `\u200b` for invisible and control characters."""
    return _escape(text, lambda each: each.encode("unicode_escape").decode())


def format_json(value: object) -> list[str]:
    """Return indented JSON in lines, with escapes for invisible characters; it is still valid JSON."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return [_escape(line, lambda each: json.dumps(each)[1:-1]) for line in lines]


def _escape(text: str, write: Callable[[str], str]) -> str:
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(each if each.isprintable() and not _INVISIBLE.match(each) else write(each) for each in text)
