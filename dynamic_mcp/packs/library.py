"""Finds packs: shipped ones by name, and others in files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from dynamic_mcp.packs.model import Pack
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason

MAX_BYTES = 8 << 20
_SUFFIX = ".json"


class BadPack(ValueError):
    """A pack cannot be used; the message is the reason."""


def is_file(use: str) -> bool:
    """Return whether `use` in the config is a path, rather than the name of a shipped pack."""
    return "/" in use or "\\" in use or use.endswith(_SUFFIX)


def shipped_names() -> list[str]:
    """Return the names of the shipped packs."""
    return sorted(each.name.removesuffix(_SUFFIX) for each in files(__package__).iterdir() if _is_pack(each.name))


@cache
def read_shipped(name: str) -> Pack:
    """Return a shipped pack. Raises BadPack if there is none with this name."""
    if name not in shipped_names():
        raise BadPack(f"there is no pack `{name}`")
    return decode(files(__package__).joinpath(name + _SUFFIX).read_bytes())


def read_file(file: Path) -> Pack:
    """Return the pack in a file. Raises BadPack."""
    try:
        return decode(read_bytes(file, most=MAX_BYTES))
    except OSError as exc:
        raise BadPack(f"cannot read `{file}`: {os_reason(exc)}") from exc


def decode(data: bytes) -> Pack:
    """Return the pack in a JSON text. Raises BadPack."""
    try:
        return decode_as(data, Pack)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadPack(f"not a valid pack: {_lower(str(exc))}") from exc


def _is_pack(name: str) -> bool:
    return name.endswith(_SUFFIX)


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
