r"""Argument values from files, written as in HTTPie: `key=@FILE`. A text that begins with `@` is `key=\@text`."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason


def is_file_value(text: str) -> bool:
    """Tell whether a value has the form `@FILE`."""
    return text.startswith("@")


def unescape(text: str) -> str:
    r"""Return a literal value, in which a leading `\@` stands for `@`."""
    return text[1:] if text.startswith("\\@") else text


def read_file_value(text: str, word: str) -> str:
    """Return the text of the file that `@FILE` names. Raises InvalidArguments."""
    try:
        return read_bytes(Path(text[1:]).expanduser(), may_be_piped=True).decode()
    except UnicodeDecodeError as exc:
        raise InvalidArguments(f"`{word}`: the file is not UTF-8 text") from exc
    except (OSError, RuntimeError, ValueError) as exc:  # no such home directory, or an impossible file name
        hint = rf"write a text that begins with `@` as `\{text}`"
        raise InvalidArguments(f"`{word}`: the file cannot be read: {os_reason(exc)}", hint=hint) from exc
