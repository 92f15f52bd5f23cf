"""Stores vectors on disk, one file for each model, keyed by a hash of the text. Unreadable files are rebuilt."""

from __future__ import annotations

import logging
import sys
from array import array
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from dynamic_mcp.embeddings.endpoint import Vector
from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
_KEY = 16


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of the file: how many numbers a vector has, and their byte order."""

    numbers: int
    order: str
    form: int = 1


class VectorStore:
    """The vectors of one model, in a file in `folder`."""

    def __init__(self, folder: Path, model: str) -> None:
        self._file = folder / f"{sha256(model.encode()).hexdigest()[:40]}.vectors"

    def load(self) -> dict[bytes, Vector]:
        """Return all stored vectors; none if the file is missing or invalid."""
        try:
            if self._file.stat().st_size > MAX_FILE_BYTES:
                return {}
            return _read(read_bytes(self._file, most=MAX_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            log.warning("the cached vectors %s cannot be read and are rebuilt: %s", self._file.name, exc)
            return {}

    def save(self, vectors: Mapping[bytes, Vector]) -> None:
        """Store these along with what other processes have stored, up to the size limit. Never raises OSError."""
        if not vectors:
            return
        numbers = len(next(iter(vectors.values())))
        others = {key: vector for key, vector in self.load().items() if len(vector) == numbers}
        room = MAX_FILE_BYTES // 2 // (_KEY + 4 * numbers)
        merged = {**vectors, **{key: vector for key, vector in others.items() if key not in vectors}}
        entries = list(merged.items())[:room]
        head = msgspec.json.encode(_Head(numbers, sys.byteorder))
        try:
            paths.write_private(
                self._file, b"\n".join([head, b"".join(key + vector.tobytes() for key, vector in entries)])
            )
        except OSError as exc:
            log.warning("vectors are not cached: `%s` cannot be written: %s", self._file.parent, os_reason(exc))


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    return sha256(text.encode("utf-8", "replace")).digest()[:_KEY]


def _read(data: bytes) -> dict[bytes, Vector]:
    """Parse a file. Raises ValueError for anything that `save` did not write."""
    line, _, body = data.partition(b"\n")
    head = decode_as(line, _Head)
    size = _KEY + 4 * head.numbers
    if head.form != 1 or head.order != sys.byteorder or head.numbers < 1 or len(body) % size:
        raise ValueError("written by another version")
    vectors: dict[bytes, Vector] = {}
    for at in range(0, len(body), size):
        vector = array("f")
        vector.frombytes(body[at + _KEY : at + size])
        vectors[body[at : at + _KEY]] = vector
    return vectors
