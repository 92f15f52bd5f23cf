"""Finds invisible characters in a definition: they may carry words that only a model reads."""

from __future__ import annotations

import re

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.blank import INVISIBLE

_MAX_CHARACTERS = 4
_HIDDEN = re.compile(f"[{INVISIBLE}]")
# Emoji and many scripts need these: one directly after a visible character beyond ASCII, and keycaps.
_JOINED = re.compile(
    f"(?<=[^\\x00-\\x7f{INVISIBLE}])(?:\ufe0f\u200d?|[\u200c-\u200f\ufe0e])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)


def describe_hidden(form: Raw) -> str:
    """Return a description of the hidden characters in a canonical definition; empty if there are none."""
    found = sorted({each for text in _texts(form) for each in find_hidden(text)})
    if not found:
        return ""
    named = ", ".join(f"U+{ord(each):04X}" for each in found[:_MAX_CHARACTERS])
    return f"it has hidden characters: {named}{' and others' if len(found) > _MAX_CHARACTERS else ''}"


def find_hidden(text: str) -> list[str]:
    """Return the hidden characters in a text."""
    return _HIDDEN.findall(_JOINED.sub("", text))


def _texts(form: Raw) -> list[str]:
    """Return all strings of a definition, including member names."""
    value = wire.value(form)
    if value is None and bytes(form) != b"null":  # nested too deeply to decode
        return [bytes(form).decode("utf-8", "replace")]
    texts: list[str] = []
    left: list[object] = [value]
    while left:
        match left.pop():
            case str() as text:
                texts.append(text)
            case dict() as members:
                left += (*members, *members.values())
            case list() as elements:
                left += elements
    return texts
