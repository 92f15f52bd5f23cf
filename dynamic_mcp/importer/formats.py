"""From a file of any kind to plain values, or a sentence about why not.

Only regular files are opened, nothing blocks, and what is read is bounded. What tools let pass is let
pass here: comments, trailing commas, byte order marks, UTF-16, keys that are there twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path

from dynamic_mcp.system import file_reader

LARGEST = file_reader.LARGEST_BYTES
_LARGEST_JSON5 = 256 * 1024
_DOUBLED = "is there twice; the last one is used"
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class UnreadableError(Exception):
    """Why a file gives nothing, with line and column where it has a fault."""


@dataclass(frozen=True)
class Document:
    """The values in a file, and what is to be said about places in it: the place, and what."""

    value: object
    remarks: tuple[tuple[str, str], ...] = ()


def load(file: Path) -> Document:
    """The values in `file`. Raises UnreadableError."""
    text = decoded(contents(file))
    if not text.strip():
        raise UnreadableError("is empty")
    return parsed(text, file.name)


def contents(file: Path) -> bytes:
    """The bytes of a regular file, through links, up to 64 MiB. Raises UnreadableError, and never waits."""
    try:
        return file_reader.read_bytes(file)
    except FileNotFoundError as exc:
        raise UnreadableError("is a link to nothing" if file.is_symlink() else "does not exist") from exc
    except IsADirectoryError as exc:
        raise UnreadableError("is a directory") from exc
    except file_reader.UnsuitableFileError as exc:
        raise UnreadableError(f"is {exc.strerror}") from exc
    except OSError as exc:
        raise UnreadableError(f"cannot be read: {(exc.strerror or str(exc)).lower()}") from exc


def decoded(data: bytes) -> str:
    """The text in `data`: UTF-8, or UTF-16 with or without a mark. Raises UnreadableError."""
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), None)
    if encoding is None and b"\0" in data[:2]:
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        return data.decode(encoding or "utf-8")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode(encoding or "utf-8", errors="replace")
        name = "UTF-16" if encoding and "16" in encoding else "UTF-8"
        raise UnreadableError(f"{_position(before, len(before))}: is not {name}") from exc


def parsed(text: str, name: str) -> Document:
    """The values in `text`, in the format that the file's name says, or that fits. Raises UnreadableError."""
    suffix = name.lower().rpartition(".")[2]
    if suffix.endswith("crushrc"):
        from dynamic_mcp.importer import crushrc

        return Document(*crushrc.loads(text))
    if parse := _BY_SUFFIX.get(suffix):
        return parse(text)
    return _sniffed(text)


def _json(text: str) -> Document:
    from dynamic_mcp.config import jsonc
    from dynamic_mcp.config.keys import format_path

    try:
        value, doubled = jsonc.parse(text)
    except JSONDecodeError as exc:
        raise UnreadableError(f"line {exc.lineno}, column {exc.colno}: is not JSON: {_in_words(exc.msg)}") from exc
    return Document(value, tuple((format_path(keys), _DOUBLED) for keys in doubled))


def _json5(text: str) -> Document:
    try:
        return _json(text)
    except UnreadableError as strict:
        if len(text) > _LARGEST_JSON5 or re.search(r"\\u[dD][89a-fA-F]", text):
            raise  # it would take minutes, or take half of a surrogate pair
        try:
            return Document(_as_json5(text))
        except ValueError:
            raise strict from None


def _as_json5(text: str) -> object:
    import json5

    try:
        value: object = json5.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _toml(text: str) -> Document:
    import tomllib

    try:
        return Document(tomllib.loads(text))
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    except ValueError as exc:  # a TOMLDecodeError, or a number of thousands of digits
        found = re.search(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(exc), re.DOTALL)
        message = found[1] if found else str(exc)
        where = f"line {found[2]}, column {found[3]}" if found and found[2] else _position(text, len(text))
        raise UnreadableError(f"{where}: is not TOML: {_in_words(message)}") from exc


def _yaml(text: str) -> Document:
    from dynamic_mcp.importer import yaml_text

    try:
        return Document(yaml_text.loads(text))
    except yaml_text.YamlError as exc:
        raise UnreadableError(f"line {exc.line}, column {exc.column}: is not YAML: {_in_words(str(exc))}") from exc


def _sniffed(text: str) -> Document:
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "/"):
        return _json5(text)
    for parse in (_toml, _yaml):
        try:
            document = parse(text)
        except UnreadableError:
            continue
        if isinstance(document.value, dict):
            return document
    return _json5(text)


_BY_SUFFIX: dict[str, Callable[[str], Document]] = {
    "json": _json5,
    "jsonc": _json5,
    "json5": _json5,
    "code-workspace": _json5,
    "toml": _toml,
    "yaml": _yaml,
    "yml": _yaml,
}


def _position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _in_words(message: str) -> str:
    words = message.removesuffix(" at").removesuffix(" starting").replace("'", "`")
    return f"{words[:1].lower()}{words[1:]}"
