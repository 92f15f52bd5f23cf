"""Tokens that `dynamic-mcp token` has made: their hashes, in a private file for each config, written atomically.

A token itself is nowhere but with whom it was made for. It has 256 random bits, so a plain hash gives nothing away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.location import identify
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_store import CorruptFile, FileStore, JsonCodec, NewerFile
from dynamic_mcp.system.text import os_reason

PREFIX = "dmcp_"
_RANDOM_BYTES = 32
_FORMAT = 1
_MAX_BYTES = 4 << 20
_MAX_TOKENS = 5000
_ID_LENGTH = 8
# A command holds the lock while it reads and writes the file; one that holds it for longer is stuck.
_LOCK_S = 10.0


class StoredToken(Struct, frozen=True):
    """What is kept of a token. `hash` is its SHA-256 in hex; times are in seconds since 1970, None is never."""

    hash: str
    subject: str
    roles: tuple[str, ...]
    created_at: int
    expires_at: int | None

    @property
    def id(self) -> str:
        """What it is called: the first characters of its hash."""
        return self.hash[:_ID_LENGTH]

    def has_expired(self, now: float) -> bool:
        """Tell whether it has expired."""
        return self.expires_at is not None and now >= self.expires_at


class _Content(Struct, frozen=True):
    config: str
    tokens: tuple[StoredToken, ...]


_CODEC = JsonCodec(_Content, _FORMAT, member="format")


class TokenStore:
    """The file with the tokens of one config."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._config = identify(config)
        name = sha256(os.fsencode(self._config)).hexdigest()[:40]
        self.file = folder / f"{name}.json"
        self._store = FileStore(self.file, _CODEC, most_bytes=_MAX_BYTES)

    def load(self) -> tuple[StoredToken, ...]:
        """Return all tokens, the expired ones too. Raises DynamicMcpError if they cannot be read."""
        try:
            content = self._store.load()
        except NewerFile as exc:
            hint = "update dynamic-mcp"
            raise DynamicMcpError(f"the tokens in `{self.file}` cannot be read: {exc}", hint=hint) from exc
        except CorruptFile as exc:
            hint = "move it away and make new tokens; those that are in it do not count any more"
            raise DynamicMcpError(f"the tokens in `{self.file}` cannot be read: {exc}", hint=hint) from exc
        except OSError as exc:
            raise DynamicMcpError(f"the tokens in `{self.file}` cannot be read: {os_reason(exc)}") from exc
        return () if content is None else content.tokens

    def create(
        self, subject: str, roles: tuple[str, ...], *, lifetime_s: float | None, now: float
    ) -> tuple[str, StoredToken]:
        """Make a token for somebody, and return it with what is kept of it. Raises DynamicMcpError."""
        expires_at = None if lifetime_s is None else int(now + lifetime_s)
        with self._locked():
            tokens = self.load()
            if len(tokens) >= _MAX_TOKENS:
                hint = "`dynamic-mcp token list` shows them, `dynamic-mcp token revoke ID` removes one"
                raise DynamicMcpError(f"there are {_MAX_TOKENS} tokens already", hint=hint)
            while True:
                token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
                made = StoredToken(hash_of(token), subject, roles, int(now), expires_at)
                if all(made.id != each.id for each in tokens):
                    break
            self._save((*tokens, made))
        return token, made

    def revoke(self, id: str) -> StoredToken:
        """Remove a token, which is refused from now on, and return it.

        `id` may be the beginning of one id alone. Raises NotFound, InvalidArguments if several ids begin so, and
        DynamicMcpError.
        """
        with self._locked():
            tokens = self.load()
            several = [each for each in tokens if id and each.id.startswith(id)]
            exact = [each for each in several if each.id == id]
            hint = "`dynamic-mcp token list` shows the tokens of a config"
            if not several:
                raise NotFound("token", id, [each.id for each in tokens], hint=hint)
            if len(several) > 1 and not exact:
                raise InvalidArguments(f"several tokens begin with `{id}`", hint=hint)
            found = (exact or several)[0]
            self._save(tuple(each for each in tokens if each is not found))
        return found

    def _save(self, tokens: tuple[StoredToken, ...]) -> None:
        self._store.save(_Content(self._config.encode("utf-8", "replace").decode(), tokens))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only one that changes the file."""
        try:
            with self._store.locked(_LOCK_S):
                yield
        except TimeoutError as exc:
            raise DynamicMcpError(f"`{self.file}` has been locked by another process for {_LOCK_S:g} s") from exc
        except OSError as exc:
            raise DynamicMcpError(f"the tokens in `{self.file}` cannot be changed: {os_reason(exc)}") from exc


def hash_of(token: str) -> str:
    """Return what is kept of a token."""
    return sha256(token.encode()).hexdigest()


def token_store(config: Path) -> TokenStore:
    """Return the tokens of a config, among the state of this user."""
    return TokenStore(paths.state_dir() / "tokens", config)
