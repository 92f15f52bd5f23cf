"""Stores vectors on disk, one file for each model, keyed by a hash of the text. Unreadable files are set aside."""

from __future__ import annotations

import logging
import sys
from array import array
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec

from dynamic_mcp.embeddings.endpoint import Vector
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_store import FileStore
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
_KEY = 16


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of the file: the number of dimensions, and the byte order."""

    numbers: int
    order: str
    form: int = 1


class VectorStore:
    """The vectors of one model, in a file in `folder`."""

    def __init__(self, folder: Path, model: str) -> None:
        file = folder / f"{sha256(model.encode()).hexdigest()[:40]}.vectors"
        self._store = FileStore(file, _VectorCodec(), most_bytes=MAX_FILE_BYTES)

    def load(self) -> dict[bytes, Vector]:
        """Return all stored vectors; none if the file is missing or invalid."""
        try:
            return self._store.load_or_set_aside("the cached vectors in") or {}
        except OSError as exc:
            log.warning("the cached vectors `%s` cannot be read: %s", self._store.file, os_reason(exc))
            return {}

    def save(self, vectors: Mapping[bytes, Vector]) -> None:
        """Store these vectors along with those of other processes, up to the size limit. Never raises OSError."""
        if not vectors:
            return
        numbers = len(next(iter(vectors.values())))
        others = {key: vector for key, vector in self.load().items() if len(vector) == numbers}
        room = MAX_FILE_BYTES // 2 // (_KEY + 4 * numbers)
        merged = {**vectors, **{key: vector for key, vector in others.items() if key not in vectors}}
        try:
            self._store.save(dict(islice(merged.items(), room)))
        except OSError as exc:
            log.warning("vectors are not cached: `%s` cannot be written: %s", self._store.file.parent, os_reason(exc))


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    return sha256(text.encode("utf-8", "replace")).digest()[:_KEY]


class _VectorCodec:
    """A line of JSON, then keys and vectors as bytes, all of one length."""

    def encode(self, value: dict[bytes, Vector]) -> bytes:
        numbers = len(next(iter(value.values())))
        head = msgspec.json.encode(_Head(numbers, sys.byteorder))
        return b"\n".join([head, b"".join(key + vector.tobytes() for key, vector in value.items())])

    def decode(self, data: bytes) -> dict[bytes, Vector]:
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
