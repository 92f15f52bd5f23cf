"""The encodings of text files that users write: UTF-8, and the UTF-16 of Windows PowerShell and Notepad."""

from __future__ import annotations

import codecs


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text: UTF-16 by its byte order mark or an ASCII character at its start, or UTF-8."""
    head = data[:2]
    if head == codecs.BOM_UTF16_LE or (len(head) == 2 and head[0] and not head[1]):
        return "utf-16-le"
    if head == codecs.BOM_UTF16_BE or (len(head) == 2 and head[1] and not head[0]):
        return "utf-16-be"
    return "utf-8"


def name_of(data: bytes) -> str:
    """Return the encoding of a text as a user knows it."""
    return "UTF-16" if encoding_of(data) != "utf-8" else "UTF-8"


def decode(data: bytes) -> str:
    """Return a text without its byte order mark. Raises UnicodeDecodeError."""
    return decode_with_mark(data).removeprefix("\ufeff")


def decode_with_mark(data: bytes) -> str:
    """Return a text to edit: encoded by `encode_like`, it is the same bytes again. Raises UnicodeDecodeError."""
    return data.decode(encoding_of(data))


def encode_like(text: str, data: bytes | None) -> bytes:
    """Encode a text as the file that it replaces, if there is one."""
    return text.encode(encoding_of(data or b""))
