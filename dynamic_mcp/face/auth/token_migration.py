"""Takes the tokens of `dynamic-mcp token` from the file of a config into the store of replicas, and back."""

from __future__ import annotations

import asyncio
import time

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.auth.shared_tokens import TOKENS, SharedToken, decode_token, left_s
from dynamic_mcp.face.auth.token_store import TokenStore, token_store
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.migration import Migration
from dynamic_mcp.system.shared_store import ABSENT, SharedStore, Version


def list_migrations(config: Config, store: SharedStore) -> list[Migration[SharedToken]]:
    """Return the tokens of a config."""
    return [
        Migration(
            "created tokens",
            _FileTokens(token_store(config.file)),
            _StoreTokens(store),
            describe=lambda name, value: f"{value.token.id} of `{value.token.subject}`",
            has_ended=lambda value: value.is_revoked,
            note="in the store, tokens expire in 400 days at most",
        )
    ]


class _FileTokens:
    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens

    async def load(self) -> dict[str, SharedToken]:
        now = time.time()
        tokens = await asyncio.to_thread(self._tokens.load)
        return {each.hash: SharedToken(each) for each in tokens if not each.has_expired(now)}

    async def write(self, name: str, value: SharedToken, before: SharedToken | None) -> bool:
        """Add or replace a token; one that was revoked is removed."""
        return await asyncio.to_thread(self._tokens.replace, name, None if value.is_revoked else value.token)


class _StoreTokens:
    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._versions: dict[str, Version] = {}

    async def load(self) -> dict[str, SharedToken]:
        entries = await self._store.list_entries(TOKENS)
        self._versions = {each.name: each.version for each in entries}
        return {each.name: found for each in entries if (found := decode_token(each)) is not None}

    async def write(self, name: str, value: SharedToken, before: SharedToken | None) -> bool:
        expected = self._versions.get(name, ABSENT)
        data = wire.encode(value)
        lasts_s = left_s(value.token, time.time())
        return await self._store.compare_and_set(TOKENS, name, data, lasts_s, expected=expected) is not None
