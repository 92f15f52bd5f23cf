r"""Values that come from a file, written as in HTTPie: `key=@FILE`. A text that begins with `@` is `key=\@text`."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.system.file_reader import read_bytes


def is_file(text: str) -> bool:
    """Tell whether a value names a file."""
    return text.startswith("@")


def literal(text: str) -> str:
    r"""Return a value that is typed in full: `\@` at its start is a plain `@`."""
    return text[1:] if text.startswith("\\@") else text


def content(text: str, word: str) -> str:
    """Return the text of the file that `@FILE` names. Raises InvalidArguments."""
    try:
        return read_bytes(Path(text[1:]).expanduser(), may_be_piped=True).decode()
    except UnicodeDecodeError as exc:
        raise InvalidArguments(f"`{word}`: the file is not UTF-8 text") from exc
    except (OSError, RuntimeError, ValueError) as exc:  # no such home, or a name that no file can have
        why = getattr(exc, "strerror", None) or str(exc)
        hint = rf"a text that begins with `@` is written `\{text}`"
        raise InvalidArguments(f"`{word}`: the file cannot be read: {why.lower()}", hint=hint) from exc
