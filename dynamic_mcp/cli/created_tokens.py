"""The tokens of HTTP clients, as commands read and change them: in a file, or in the store that replicas share."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.auth.token_store import StoredToken, token_store
from dynamic_mcp.proxy.shared_store import has_shared_store, using_shared_store

if TYPE_CHECKING:
    from dynamic_mcp.face.auth.shared_tokens import SharedTokenStore

T = TypeVar("T")


class CreatedTokens(Protocol):
    """The tokens of a config. All methods raise DynamicMcpError."""

    def load(self) -> tuple[StoredToken, ...]: ...

    def create(
        self, subject: str, roles: tuple[str, ...], *, lifetime_s: float | None, now: float
    ) -> tuple[str, StoredToken]: ...

    def revoke(self, id: str) -> StoredToken: ...


def tokens_of(config: Config) -> CreatedTokens:
    """Return the tokens of a config."""
    return _TokensOfReplicas(config) if has_shared_store(config) else token_store(config.file)


def find_tokens(context: Invocation) -> CreatedTokens:
    """Return the tokens of the config of a command. Raises ConfigError if there is none."""
    try:
        config = context.read_config()
    except ConfigError:  # what is wrong with it must not keep a token from being revoked
        return token_store(context.config_path())
    return tokens_of(config)


class _TokensOfReplicas:
    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self) -> tuple[StoredToken, ...]:
        return self._run(lambda tokens: tokens.load())

    def create(
        self, subject: str, roles: tuple[str, ...], *, lifetime_s: float | None, now: float
    ) -> tuple[str, StoredToken]:
        return self._run(lambda tokens: tokens.create(subject, roles, lifetime_s=lifetime_s, now=now))

    def revoke(self, id: str) -> StoredToken:
        return self._run(lambda tokens: tokens.revoke(id, now=time.time()))

    def _run(self, work: Callable[[SharedTokenStore], Awaitable[T]]) -> T:
        from dynamic_mcp.cli.runner import run

        return run(self._with_store(work))

    async def _with_store(self, work: Callable[[SharedTokenStore], Awaitable[T]]) -> T:
        from dynamic_mcp.face.auth.shared_tokens import SharedTokenStore

        async with using_shared_store(self._config) as store:
            return await work(SharedTokenStore(store))
