"""Stores the hashes of tokens created by `dynamic-mcp token`, in one private file per config.

The tokens themselves are not stored. They have 256 random bits, so a plain hash reveals nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.location import config_key, identify
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_store import CorruptFile, FileStore, JsonCodec, NewerFile
from dynamic_mcp.system.text import os_reason

PREFIX = "dmcp_"
_RANDOM_BYTES = 32
_FORMAT = 1
_MAX_BYTES = 4 << 20
MAX_TOKENS = 5000
_ID_LENGTH = 8
# A command holds the lock only while it reads and writes the file.
_LOCK_WITHIN_S = 10.0
_DAY_S = 24 * 3600.0
_DAYS = re.compile(r"([0-9]{1,6})\s*d")
_LONGEST_S = 100 * 365 * _DAY_S
_LONGEST_NAME = 200


class StoredToken(Struct, frozen=True):
    """A stored token. `hash` is its SHA-256 in hex; times are in seconds since 1970, None means never."""

    hash: str
    subject: str
    roles: tuple[str, ...]
    created_at: int
    expires_at: int | None

    @property
    def id(self) -> str:
        """The first characters of the hash."""
        return self.hash[:_ID_LENGTH]

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class _Content(Struct, frozen=True):
    config: str
    tokens: tuple[StoredToken, ...]


_CODEC = JsonCodec(_Content, _FORMAT, member="format")


class TokenStore:
    """The token file of one config."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._config = identify(config)
        name = sha256(os.fsencode(config_key(config))).hexdigest()[:40]
        self.file = folder / f"{name}.json"
        self._store = FileStore(self.file, _CODEC, most_bytes=_MAX_BYTES)

    def load(self) -> tuple[StoredToken, ...]:
        """Return all tokens, including expired ones. Raises DynamicMcpError if the file cannot be read."""
        try:
            content = self._store.load()
        except NewerFile as exc:
            raise DynamicMcpError(
                f"`{self.file}` was written by a newer version of dynamic-mcp", hint="upgrade"
            ) from exc
        except CorruptFile as exc:
            hint = "move the file away and create new tokens; the old ones are no longer accepted"
            raise DynamicMcpError(f"could not read the tokens in `{self.file}`: {exc}", hint=hint) from exc
        except OSError as exc:
            raise DynamicMcpError(f"could not read the tokens in `{self.file}`: {os_reason(exc)}") from exc
        return () if content is None else content.tokens

    def create(
        self, subject: str, roles: tuple[str, ...], *, lifetime_s: float | None, now: float
    ) -> tuple[str, StoredToken]:
        """Create a token; return it and its stored form. Raises DynamicMcpError."""
        with self._locked():
            tokens = self.load()
            token, stored = make_token(subject, roles, tokens, lifetime_s=lifetime_s, now=now)
            self._save((*tokens, stored))
        return token, stored

    def revoke(self, id: str) -> StoredToken:
        """Remove a token, which is refused from now on, and return it.

        `id` may be the beginning of a unique id. Raises NotFound, InvalidArguments if several ids begin with it, and
        DynamicMcpError.
        """
        with self._locked():
            tokens = self.load()
            revoked = find_token(tokens, id)
            self._save(tuple(each for each in tokens if each is not revoked))
        return revoked

    def replace(self, token_hash: str, token: StoredToken | None) -> bool:
        """Add, replace or remove a token of another place; return whether anything has changed."""
        with self._locked():
            tokens = self.load()
            others = tuple(each for each in tokens if each.hash != token_hash)
            changed = others if token is None else (*others, token)
            if {*changed} == {*tokens}:
                return False
            self._save(changed)
        return True

    def _save(self, tokens: tuple[StoredToken, ...]) -> None:
        self._store.save(_Content(self._config.encode("utf-8", "replace").decode(), tokens))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._store.locked(_LOCK_WITHIN_S):
                yield
        except TimeoutError as exc:
            raise DynamicMcpError(
                f"`{self.file}` has been locked by another process for {_LOCK_WITHIN_S:g} s"
            ) from exc
        except OSError as exc:
            raise DynamicMcpError(f"could not change the tokens in `{self.file}`: {os_reason(exc)}") from exc


def make_token(
    subject: str, roles: tuple[str, ...], others: Sequence[StoredToken], *, lifetime_s: float | None, now: float
) -> tuple[str, StoredToken]:
    """Return a new token, and its stored form, whose id none of the others has. Raises DynamicMcpError."""
    if len(others) >= MAX_TOKENS:
        hint = "`dynamic-mcp token list` shows them, `dynamic-mcp token revoke ID` removes one"
        raise DynamicMcpError(f"there are already {MAX_TOKENS} tokens", hint=hint)
    expires_at = None if lifetime_s is None else int(now + lifetime_s)
    while True:
        token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        stored = StoredToken(hash_of(token), subject, roles, int(now), expires_at)
        if all(stored.id != each.id for each in others):
            return token, stored


def find_token(tokens: Sequence[StoredToken], id: str) -> StoredToken:
    """Return the token with an id, or with the only one that begins so. Raises NotFound and InvalidArguments."""
    matches = [each for each in tokens if id and each.id.startswith(id)]
    exact = [each for each in matches if each.id == id]
    hint = "`dynamic-mcp token list` shows the tokens of a config"
    if not matches:
        raise NotFound("token", id, [each.id for each in tokens], hint=hint)
    if len(matches) > 1 and not exact:
        raise InvalidArguments(f"several tokens start with `{id}`", hint=hint)
    return (exact or matches)[0]


def check_owner(name: str) -> str:
    """Return the name of who gets a token. Raises FlawError."""
    name = name.strip()
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise FlawError(f"needs a name of 1 to {_LONGEST_NAME} printable characters")
    return name


def parse_lifetime(text: str) -> float | None:
    """Return the seconds of `30d` or `12h`; None for `never`. Raises FlawError."""
    if text.strip() == "never":
        return None
    days = _DAYS.fullmatch(text.strip())
    try:
        seconds = int(days[1]) * _DAY_S if days else parse_seconds(text)
    except FlawError as exc:
        raise FlawError(str(exc), hint="write `30d`, `12h` or `never`") from exc
    if not 1 <= seconds <= _LONGEST_S:
        raise FlawError("is not from a second to 100 years", hint="or `never`")
    return seconds


def facts_of(token: StoredToken) -> dict[str, object]:
    """Return the fields of a token for the audit log; its `id` is not part of the secret."""
    expires_at = None if token.expires_at is None else format_time(token.expires_at)
    return {"id": token.id, "for": token.subject, "roles": list(token.roles), "expires_at": expires_at}


def format_time(at: int) -> str:
    """Return a time, in seconds since 1970, as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")


def hash_of(token: str) -> str:
    """Return the hash that is stored for a token."""
    return sha256(token.encode()).hexdigest()


def token_store(config: Path) -> TokenStore:
    """Return the store for the tokens of a config, in this user's state directory."""
    return TokenStore(paths.state_dir() / "tokens", config)
