"""Caches answers of registries on disk, to avoid repeated downloads and to work offline.

A file's name is a hash, so no text of a registry becomes a path. An unusable cache is not an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.system.file_store import FileStore, JsonCodec, prune_folder

MOST_FILES = 300
MOST_BYTES = 64 << 20


class CachedAnswer(Struct, frozen=True):
    """An answer: its body, its ETag, and when it was last validated, in seconds since 1970."""

    etag: str
    at: float
    body: str


_CODEC = JsonCodec(CachedAnswer, 1)


class AnswerCache:
    """Answers by URL and headers, in one private directory."""

    def __init__(self, directory: Path, *, most_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._clock = clock

    def load(self, url: str, headers: Mapping[str, str]) -> CachedAnswer | None:
        with suppress(OSError):
            return self._store(url, headers).load_or_set_aside("the cached answer of a registry in")
        return None

    def store(self, url: str, headers: Mapping[str, str], body: str, etag: str) -> None:
        """Store an answer, and remove the oldest ones if there are too many."""
        with suppress(OSError):
            self._store(url, headers).save(CachedAnswer(etag, self._clock(), body), durable=False)
            prune_folder(self._directory, most_files=MOST_FILES, most_bytes=MOST_BYTES)

    def age_s(self, answer: CachedAnswer) -> float:
        return max(0.0, self._clock() - answer.at)

    def _store(self, url: str, headers: Mapping[str, str]) -> FileStore[CachedAnswer]:
        # answers for one account are not for another
        key = json.dumps([url, sorted(headers.items())])
        file = self._directory / f"{sha256(key.encode()).hexdigest()}.json"
        return FileStore(file, _CODEC, most_bytes=2 * self._most_bytes)
