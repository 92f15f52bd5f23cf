"""One-time links by which the user of the terminal logs in to the page of any proxy of theirs.

A link is a random secret; a private file in the state directory, named by its hash, says which config it is for and
until when. Only who can write there can make one, so it stands for the local user. Whoever opens it first has it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from html import escape
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.system import paths
from dynamic_mcp.system.file_store import FileStore, JsonCodec, StoreError

VALID_S = 300.0
# In the state directory.
FOLDER = "ui"
_BYTES = 32


class _Link(Struct, frozen=True):
    config: str
    expires: float


_REDIRECT = """<!doctype html><meta charset="utf-8"><title>dynamic-mcp</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open the page</a>
"""
_CODEC = JsonCodec(_Link, 1)


class PageLinks:
    """The links in the state directory of this user."""

    def __init__(self, state_folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = state_folder / FOLDER / "links"
        self._now = now

    def create(self, config: str) -> str:
        """Return the secret of a new link to the page of this config. Raises OSError."""
        paths.claim_private_dir(self._folder)
        self._remove_expired()
        secret = secrets.token_urlsafe(_BYTES)
        self._store(secret).save(_Link(config, self._now() + VALID_S), durable=False)
        return secret

    def take(self, secret: str, config: str) -> bool:
        """Use a link up; return whether it was one for the page of this config, and valid."""
        store = self._store(secret)
        try:
            link = store.load()
            store.file.unlink()  # of two that use it at once, one fails here
        except (OSError, StoreError):
            return False
        return link is not None and link.config == config and self._now() < link.expires

    def write_redirect(self, url: str) -> Path:
        """Return a private file that leads a browser to a link, which is a secret. Raises OSError."""
        file = self._folder / f"{secrets.token_hex(8)}.html"
        paths.write_private(file, _REDIRECT.format(url=escape(url)).encode(), durable=False)
        return file

    def _store(self, secret: str) -> FileStore[_Link]:
        return FileStore(self._folder / f"{sha256(secret.encode()).hexdigest()}.json", _CODEC)

    def _remove_expired(self) -> None:
        for file in [*self._folder.glob("*.json"), *self._folder.glob("*.html")]:
            with contextlib.suppress(OSError):
                if file.stat().st_mtime < self._now() - VALID_S:
                    file.unlink()
