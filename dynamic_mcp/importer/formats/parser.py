"""Parses a file of any format into plain values, or explains why that is not possible.

Only regular files are opened, nothing blocks, and the size is bounded. The parser is as tolerant as the tools:
comments, trailing commas, byte order marks, UTF-16, duplicate keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path

from dynamic_mcp.config.keys import format_path
from dynamic_mcp.system import file_reader
from dynamic_mcp.system.text import os_reason

_LARGEST_JSON5 = 256 * 1024
_DOUBLED = "is defined twice; the last one is used"


class UnreadableError(Exception):
    """The reason why a file cannot be read, with line and column if it has a syntax error."""


@dataclass(frozen=True)
class ParsedFile:
    """The values in a file, and remarks about places in it, as pairs of place and reason."""

    value: object
    remarks: tuple[tuple[str, str], ...] = ()


def load(file: Path) -> ParsedFile:
    """Return the values in a file. Raises UnreadableError."""
    text = decode(read_contents(file))
    if not text.strip():
        raise UnreadableError("is empty")
    return parse(text, file.name)


def read_contents(file: Path) -> bytes:
    """Return the bytes of a regular file or of a link to one, up to 64 MiB. Raises UnreadableError."""
    try:
        return file_reader.read_bytes(file)
    except FileNotFoundError as exc:
        raise UnreadableError("is a broken link" if file.is_symlink() else "does not exist") from exc
    except IsADirectoryError as exc:
        raise UnreadableError("is a directory") from exc
    except file_reader.UnsuitableFileError as exc:
        raise UnreadableError(f"is {exc.strerror}") from exc
    except OSError as exc:
        raise UnreadableError(f"cannot be read: {os_reason(exc)}") from exc


def decode(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with or without a byte order mark. Raises UnreadableError."""
    try:
        return file_reader.decode(data)
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode(file_reader.encoding_of(data), errors="replace")
        name = file_reader.encoding_name(data)
        raise UnreadableError(f"{_describe_position(before, len(before))}: is not {name}") from exc


def parse(text: str, name: str) -> ParsedFile:
    """Parse a text in the format that the file's name suggests, else in one that fits. Raises UnreadableError."""
    suffix = name.lower().rpartition(".")[2]
    if suffix.endswith("crushrc"):
        from dynamic_mcp.importer.formats import crushrc

        return ParsedFile(*crushrc.loads(text))
    if parse := _BY_SUFFIX.get(suffix):
        return parse(text)
    return _sniff(text)


def _parse_json(text: str) -> ParsedFile:
    from dynamic_mcp.config import jsonc

    try:
        value, doubled = jsonc.parse(text)
    except JSONDecodeError as exc:
        raise UnreadableError(f"line {exc.lineno}, column {exc.colno}: is not JSON: {_reword(exc.msg)}") from exc
    return ParsedFile(value, tuple((format_path(keys), _DOUBLED) for keys in doubled))


def _parse_json5(text: str) -> ParsedFile:
    try:
        return _parse_json(text)
    except UnreadableError as strict:
        if len(text) > _LARGEST_JSON5 or re.search(r"\\u[dD][89a-fA-F]", text):
            raise  # json5 would take minutes, or accept half of a surrogate pair
        try:
            return ParsedFile(_load_json5(text))
        except ValueError:
            raise strict from None


def _load_json5(text: str) -> object:
    import json5

    try:
        value: object = json5.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _parse_toml(text: str) -> ParsedFile:
    import tomllib

    try:
        return ParsedFile(tomllib.loads(text))
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    except ValueError as exc:  # a TOMLDecodeError, or a number of thousands of digits
        found = re.search(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(exc), re.DOTALL)
        message = found[1] if found else str(exc)
        where = f"line {found[2]}, column {found[3]}" if found and found[2] else _describe_position(text, len(text))
        raise UnreadableError(f"{where}: is not TOML: {_reword(message)}") from exc


def _parse_yaml(text: str) -> ParsedFile:
    from dynamic_mcp.importer.formats import yaml_text

    try:
        return ParsedFile(yaml_text.loads(text))
    except yaml_text.YamlError as exc:
        raise UnreadableError(f"line {exc.line}, column {exc.column}: is not YAML: {_reword(str(exc))}") from exc


def _sniff(text: str) -> ParsedFile:
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "/"):
        return _parse_json5(text)
    for parse in (_parse_toml, _parse_yaml):
        try:
            document = parse(text)
        except UnreadableError:
            continue
        if isinstance(document.value, dict):
            return document
    return _parse_json5(text)


_BY_SUFFIX: dict[str, Callable[[str], ParsedFile]] = {
    "json": _parse_json5,
    "jsonc": _parse_json5,
    "json5": _parse_json5,
    "code-workspace": _parse_json5,
    "toml": _parse_toml,
    "yaml": _parse_yaml,
    "yml": _parse_yaml,
}


def _describe_position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _reword(message: str) -> str:
    words = message.removesuffix(" at").removesuffix(" starting").replace("'", "`")
    return f"{words[:1].lower()}{words[1:]}"
