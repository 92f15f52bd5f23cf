"""Vectors on disk, each by a hash of its text, in one file for a model. What cannot be read is made anew."""

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
from dynamic_mcp.system.file_reader import read_bytes

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
_KEY = 16


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of the file: the numbers of a vector, and how they are written."""

    numbers: int
    order: str
    form: int = 1


class VectorStore:
    """The vectors of one model, on disk in a folder."""

    def __init__(self, folder: Path, model: str) -> None:
        self._file = folder / f"{sha256(model.encode()).hexdigest()[:40]}.vectors"

    def load(self) -> dict[bytes, Vector]:
        """Return all that are kept; none where the file is not there or is not one of ours."""
        try:
            if self._file.stat().st_size > MAX_FILE_BYTES:
                return {}
            return _read(read_bytes(self._file, most=MAX_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            log.warning("the cached vectors %s cannot be read and are rebuilt: %s", self._file.name, exc)
            return {}

    def save(self, found: Mapping[bytes, Vector]) -> None:
        """Keep these beside what another program has kept, as far as there is room. Never raises OSError."""
        if not found:
            return
        numbers = len(next(iter(found.values())))
        others = {key: vector for key, vector in self.load().items() if len(vector) == numbers}
        room = MAX_FILE_BYTES // 2 // (_KEY + 4 * numbers)
        kept = list({**found, **{key: vector for key, vector in others.items() if key not in found}}.items())[:room]
        head = msgspec.json.encode(_Head(numbers, sys.byteorder))
        try:
            paths.write_private(
                self._file, b"\n".join([head, b"".join(key + vector.tobytes() for key, vector in kept)])
            )
        except OSError as exc:
            log.warning("vectors are not cached: `%s` cannot be written: %s", self._file.parent, exc.strerror or exc)


def text_key(text: str) -> bytes:
    """Return what a text is known by."""
    return sha256(text.encode("utf-8", "replace")).digest()[:_KEY]


def _read(data: bytes) -> dict[bytes, Vector]:
    """Read a file again. Raises ValueError for what `save` did not write."""
    line, _, body = data.partition(b"\n")
    head = msgspec.json.decode(line, type=_Head)
    size = _KEY + 4 * head.numbers
    if head.form != 1 or head.order != sys.byteorder or head.numbers < 1 or len(body) % size:
        raise ValueError("written by another version")
    found: dict[bytes, Vector] = {}
    for at in range(0, len(body), size):
        vector = array("f")
        vector.frombytes(body[at + _KEY : at + size])
        found[body[at : at + _KEY]] = vector
    return found
