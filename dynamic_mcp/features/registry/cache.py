"""The last answers of registries on disk, so that they need not be sent again, and are there when we are offline.

A file's name is a hash, so nothing that a registry says becomes a path. A cache that cannot be used is no error.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as

MOST_FILES = 300
MOST_BYTES = 64 << 20
_FORM = 1


class CachedAnswer(Struct, frozen=True):
    """An answer: its body, its ETag, and when it was last known to be right, in seconds since 1970."""

    form: int
    etag: str
    at: float
    body: str


class AnswerCache:
    """Answers by URL and headers, in one private directory."""

    def __init__(self, directory: Path, *, most_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._clock = clock

    def load(self, url: str, headers: Mapping[str, str]) -> CachedAnswer | None:
        """Return what was answered last."""
        try:
            data = paths.read_private(self._file_of(url, headers), 2 * self._most_bytes)
            answer = decode_as(data, CachedAnswer)
        except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            return None
        return answer if answer.form == _FORM else None

    def store(self, url: str, headers: Mapping[str, str], body: str, etag: str) -> None:
        """Keep an answer, and forget the oldest ones if there are too many."""
        data = msgspec.json.encode(CachedAnswer(_FORM, etag, self._clock(), body))
        with contextlib.suppress(OSError):
            paths.write_private(self._file_of(url, headers), data, durable=False)
            self._prune()

    def age_s(self, answer: CachedAnswer) -> float:
        """Return how old an answer is."""
        return max(0.0, self._clock() - answer.at)

    def _file_of(self, url: str, headers: Mapping[str, str]) -> Path:
        # what is shown to one account is not for another
        key = json.dumps([url, sorted(headers.items())])
        return self._directory / f"{sha256(key.encode()).hexdigest()}.json"

    def _prune(self) -> None:
        files = [(each.stat().st_mtime, each.stat().st_size, each) for each in self._directory.glob("*.json")]
        size = 0
        for number, (_, bytes_, file) in enumerate(sorted(files, reverse=True)):
            size += bytes_
            if number >= MOST_FILES or size > MOST_BYTES:
                file.unlink(missing_ok=True)
