"""Tokens that are created and revoked for all replicas that share a store, and what holds while it is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.auth.shared_tokens import TOKENS, SharedBearerProvider, SharedTokens, SharedTokenStore
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.database_file import delete_database
from dynamic_mcp.system.shared_store import StoredEntry, StoreFailure, StoreSpace, StoreUnavailable, Version
from tests.face.auth.parties import BEARER, TOKEN, head_of
from tests.fakes import BOUND_S
from tests.features.cluster.store_servers import StoreServer, until, until_true
from tests.features.shared_stores import StorePair

T = TypeVar("T")
HOUR_S = 3600.0


@pytest.fixture
async def providers(store_pair: StorePair) -> AsyncIterator[list[SharedBearerProvider]]:
    """What two replicas authenticate by."""
    made = [SharedBearerProvider(BEARER, SharedTokens(each)) for each in store_pair]
    yield made
    for provider in made:
        await provider.close()


@pytest.fixture
def tokens(store_pair: StorePair) -> SharedTokenStore:
    """The tokens as a command changes them at the first replica."""
    return SharedTokenStore(store_pair[0])


async def ask(provider: SharedBearerProvider, token: str) -> AuthResult:
    """Return what a replica answers who sends a token."""
    outcome = provider.authenticate(head_of(), token)
    return await outcome if isinstance(outcome, Awaitable) else outcome


async def until_refused(provider: SharedBearerProvider, token: str) -> CredentialDenial:
    return await _until_outcome(provider, token, CredentialDenial)


async def until_accepted(provider: SharedBearerProvider, token: str) -> Authentication:
    return await _until_outcome(provider, token, Authentication)


async def _until_outcome(provider: SharedBearerProvider, token: str, kind: type[T]) -> T:
    async with asyncio.timeout(BOUND_S):
        while not isinstance(outcome := await ask(provider, token), kind):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
    return outcome


async def create(tokens: SharedTokenStore, subject: str = "ci") -> tuple[str, str]:
    """Create a token; return it and its id."""
    token, stored = await tokens.create(subject, ("reader",), lifetime_s=HOUR_S, now=time.time())
    return token, stored.id


async def test_a_token_is_known_at_all_replicas_and_refused_at_all_once_it_is_revoked(
    providers: list[SharedBearerProvider], tokens: SharedTokenStore
) -> None:
    token, id = await create(tokens)
    for each in providers:
        ci = await until_accepted(each, token)
        assert ci == Authentication(Principal("token", "ci"), "bearer", roles=("reader",))
        assert each.is_valid(ci)
    await tokens.revoke(id, now=time.time())
    for each in providers:
        denial = await until_refused(each, token)
        assert (denial.error, denial.why) == ("invalid_token", "unknown or revoked token")
        assert not each.is_valid(ci)
    assert await tokens.load() == ()
    with pytest.raises(NotFound):
        await tokens.revoke(id, now=time.time())


async def test_a_known_token_is_looked_up_without_asking_the_store(
    providers: list[SharedBearerProvider], tokens: SharedTokenStore
) -> None:
    token, _ = await create(tokens)
    await until_accepted(providers[1], token)
    await until(lambda: isinstance(providers[1].authenticate(head_of(), token), Authentication))


async def test_without_the_store_no_created_token_is_accepted_and_those_of_the_config_are(
    providers: list[SharedBearerProvider], tokens: SharedTokenStore, store_pair: StorePair
) -> None:
    token, _ = await create(tokens)
    await until_accepted(providers[1], token)
    await store_pair[1].close()
    assert (await until_refused(providers[1], token)).error == "temporarily_unavailable"
    assert isinstance(await ask(providers[1], TOKEN), Authentication)
    assert isinstance(await ask(providers[0], token), Authentication), "its store works"


async def test_a_token_that_was_never_made_is_refused(providers: list[SharedBearerProvider]) -> None:
    assert (await until_refused(providers[0], "dmcp_guess")).error == "invalid_token"


async def test_commands_say_what_is_wrong(tokens: SharedTokenStore, store_pair: StorePair) -> None:
    with pytest.raises(InvalidArguments, match="expires in 400 days at most"):
        await tokens.create("ci", (), lifetime_s=None, now=time.time())
    await store_pair[0].close()
    with pytest.raises(DynamicMcpError, match="could not read the tokens: the shared store is closed"):
        await tokens.load()


@pytest.mark.full
async def test_a_store_that_was_emptied_gets_back_tokens_and_what_was_revoked(
    store_pair: StorePair, redis: StoreServer, tokens: SharedTokenStore, request: pytest.FixtureRequest
) -> None:
    if "redis" not in request.node.name:
        pytest.skip("a file loses nothing")
    providers = [SharedBearerProvider(BearerAuth(), SharedTokens(each)) for each in store_pair]
    try:
        kept, _ = await create(tokens)
        revoked, id = await create(tokens, "gone")
        await until_accepted(providers[1], kept)
        await until_accepted(providers[1], revoked)
        await tokens.revoke(id, now=time.time())
        for each in providers:
            await until_refused(each, revoked)
        redis.ask("FLUSHALL")

        async def is_restored() -> bool:
            return [each.subject for each in await tokens.load()] == ["ci"]

        await until_true(is_restored)
        for each in providers:
            await until_accepted(each, kept)
            await until_refused(each, revoked)
        assert await is_restored()
    finally:
        for each in providers:
            await each.close()


class ShakyStore(LocalStore):
    """A store that another one takes the place of, and that fails so many writes from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self._on_reset: list[Callable[[], object]] = []

    def on_reset(self, restore: Callable[[], object]) -> Callable[[], None]:
        self._on_reset.append(restore)
        return lambda: self._on_reset.remove(restore)

    async def put(self, space: StoreSpace, name: str, value: bytes, ttl_s: float) -> Version:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(StoreFailure.SLOW)
        return await super().put(space, name, value, ttl_s)

    async def replace(self, entries: list[StoredEntry], *, failures: int) -> None:
        for each in await self.list_entries(TOKENS):
            await self.delete(TOKENS, each.name)
        for each in entries:
            await self.put(TOKENS, each.name, each.value, HOUR_S)
        self.failures = failures
        for restore in self._on_reset:
            restore()


async def test_a_store_that_is_behind_makes_no_replica_accept_what_was_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dynamic_mcp.system.store_copies.FILL_AGAIN_S", 0.01)
    store = ShakyStore()
    tokens, provider = SharedTokenStore(store), SharedBearerProvider(BearerAuth(), SharedTokens(store))
    try:
        kept, _ = await create(tokens)
        revoked, id = await create(tokens, "gone")
        await until_accepted(provider, kept)
        await until_accepted(provider, revoked)
        before = await store.list_entries(TOKENS)
        await tokens.revoke(id, now=time.time())
        await until_refused(provider, revoked)
        await store.replace(before, failures=3)
        ends_at = time.monotonic() + 1.5
        while time.monotonic() < ends_at:
            assert isinstance(await ask(provider, revoked), CredentialDenial)
            await asyncio.sleep(0.01)
        assert [each.subject for each in await tokens.load()] == ["ci"]
        await until_accepted(provider, kept)
        await store.replace([], failures=3)
        await until_accepted(provider, kept)
        await until_true(lambda: _has_only(tokens, "ci"))
        await store.put(TOKENS, before[1].name, before[1].value, HOUR_S)
        await store.put(TOKENS, before[0].name, before[0].value, HOUR_S)
        await asyncio.sleep(1)
        assert isinstance(await ask(provider, revoked), CredentialDenial), "an earlier entry was put back"
    finally:
        await provider.close()
        await store.close()


async def _has_only(tokens: SharedTokenStore, subject: str) -> bool:
    return [each.subject for each in await tokens.load()] == [subject]


@pytest.mark.posix_only("Windows lets nobody remove a database that is open")
async def test_a_file_that_was_removed_is_used_no_more(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    served = LocalStore(file)
    provider = SharedBearerProvider(BearerAuth(), SharedTokens(served))
    commands: list[LocalStore] = []
    try:
        commands.append(LocalStore(file))
        token, id = await create(SharedTokenStore(commands[0]))
        await until_accepted(provider, token)
        delete_database(file)
        commands.append(LocalStore(file))
        tokens = SharedTokenStore(commands[1])
        await until_true(lambda: _has_only(tokens, "ci"))
        await tokens.revoke(id, now=time.time())
        await until_refused(provider, token)
    finally:
        await provider.close()
        for store in (served, *commands):
            await store.close()
