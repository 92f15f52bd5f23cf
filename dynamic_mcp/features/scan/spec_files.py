"""Reads specs of a program's command line: usage specs as JSON, and carapace specs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dynamic_mcp.features.scan.carapace import read_carapace
from dynamic_mcp.features.scan.facts import CommandFact
from dynamic_mcp.features.scan.usage_spec import read_usage_spec
from dynamic_mcp.system.file_reader import read_bytes

MAX_BYTES = 16 << 20


class BadSpec(ValueError):
    """Why a spec cannot be used; `hint` says how to go on."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def read_spec_file(file: Path) -> Sequence[CommandFact]:
    """Return what a spec says of each command. Raises BadSpec and OSError."""
    data = read_bytes(file, most=MAX_BYTES)
    if file.suffix == ".kdl":
        hint = f"`usage generate json --file {file}` prints it as JSON"
        raise BadSpec(f"`{file}` is KDL, which is not read here", hint=hint)
    try:
        if data.lstrip()[:1] == b"{":
            return read_usage_spec(data)
        return read_carapace(_parse_yaml(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadSpec(f"`{file}` is not a usage spec as JSON, nor a carapace spec: {exc}") from exc


def _parse_yaml(data: bytes) -> object:
    """Parse YAML that holds plain data. Raises msgspec.DecodeError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(io.BytesIO(data))
    except (YAMLError, ValueError, RecursionError) as exc:
        raise msgspec.DecodeError(str(exc).partition("\n")[0]) from exc
