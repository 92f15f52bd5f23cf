"""`dynamic-mcp cluster migrate` takes what one machine has in files into the store of replicas, and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from dynamic_mcp.face.auth import token_migration
from dynamic_mcp.face.auth.provider import AuthResult
from dynamic_mcp.face.auth.shared_tokens import SharedBearerProvider, SharedTokens, SharedTokenStore
from dynamic_mcp.face.auth.token_store import TokenStore, token_store
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.features.login_server import grants
from dynamic_mcp.features.login_server.grants import Lifetimes
from dynamic_mcp.features.login_server.migration import migrations_of
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.oauth import login_migration
from dynamic_mcp.oauth.replica_logins import LOGINS, ReplicaLogins, UpstreamLogin, spent_mark
from dynamic_mcp.oauth.store import LoginStore, key
from dynamic_mcp.oauth.user_logins import login_folder
from dynamic_mcp.system.migration import Migrated, Migration, migrate
from dynamic_mcp.system.shared_store import SharedStore, StoreFailure, StoreUnavailable
from tests.cli.commands import CliRunner
from tests.face.auth.parties import BEARER, head_of
from tests.fakes import config_of, group_config
from tests.features.cluster.replicas import KEY
from tests.features.cluster.store_servers import StoreServer, until
from tests.features.login_server.parties import Clock, Site, error_of, json_of, open_site
from tests.features.shared_stores import StorePair
from tests.oauth.parts import issue_login, remote, store_login
from tests.upstreams.auth_server import AuthServer

HOUR_S = 3600.0
LIFETIMES = Lifetimes(HOUR_S, 30 * 24 * HOUR_S)
Kinds = Sequence[Migration[Any]]  # Any: each kind has its own


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server


async def take(
    kinds: Kinds, *, to_store: bool = True, overwrites: bool = False, is_dry: bool = False
) -> dict[str, Migrated]:
    done = [await migrate(each, to_store=to_store, overwrites=overwrites, is_dry=is_dry) for each in kinds]
    return {each.label: each for each in done}


# --- created tokens -----------------------------------------------------------------------------------


@pytest.fixture
def tokens(state: Path, tmp_path: Path) -> TokenStore:
    """The tokens of a config in their file."""
    return token_store(tmp_path / "config.json")


@pytest.fixture
def token_kinds(tokens: TokenStore, store_pair: StorePair, tmp_path: Path) -> Kinds:
    return token_migration.list_migrations(config_of(file=tmp_path / "config.json"), store_pair[0])


async def authenticate(store: SharedStore, token: str) -> AuthResult:
    """Return what a replica answers who sends a token."""
    provider = SharedBearerProvider(BEARER, shared := SharedTokens(store))
    try:
        await until(lambda: shared.is_fresh)
        outcome = provider.authenticate(head_of(), token)
        return await outcome if isinstance(outcome, Awaitable) else outcome
    finally:
        await provider.close()


async def test_tokens_are_good_at_replicas_and_may_be_taken_again(
    tokens: TokenStore, token_kinds: Kinds, store_pair: StorePair
) -> None:
    made = [tokens.create(name, ("dev",), lifetime_s=each, now=time.time()) for name, each in
            (("ann", HOUR_S), ("bob", None), ("eve", -1.0))]  # fmt: skip
    assert (await take(token_kinds, is_dry=True))["created tokens"] == Migrated(
        "created tokens", 2, 2, 0, note="in the store, tokens expire in 400 days at most"
    )
    assert await SharedTokenStore(store_pair[1]).load() == ()
    assert (await take(token_kinds))["created tokens"].taken == 2
    for token, stored in made[:2]:
        outcome = await authenticate(store_pair[1], token)
        assert isinstance(outcome, Authentication)
        assert (outcome.principal.subject, outcome.roles) == (stored.subject, ("dev",))
    again = (await take(token_kinds))["created tokens"]
    assert (again.found, again.taken, again.there, again.different) == (2, 0, 2, ())


async def test_a_token_that_was_revoked_at_replicas_is_revoked_in_the_file_too_and_stays_so(
    tokens: TokenStore, token_kinds: Kinds, store_pair: StorePair
) -> None:
    stored = [tokens.create(name, (), lifetime_s=HOUR_S, now=time.time())[1] for name in ("ann", "bob")]
    await take(token_kinds)
    shared = SharedTokenStore(store_pair[1])
    await shared.revoke(stored[0].id, now=time.time())
    await shared.create("new", (), lifetime_s=HOUR_S, now=time.time())
    forward = (await take(token_kinds, overwrites=True))["created tokens"]
    assert (forward.taken, forward.there, forward.ended) == (0, 1, 1)
    assert {each.subject for each in await shared.load()} == {"bob", "new"}
    back = (await take(token_kinds, to_store=False))["created tokens"]
    assert (back.taken, back.ended) == (1, 1)
    assert {each.subject for each in tokens.load()} == {"bob", "new"}
    again = (await take(token_kinds, to_store=False))["created tokens"]
    assert (again.taken, again.ended, again.there) == (0, 0, 3)


# --- logins at servers --------------------------------------------------------------------------------


async def test_logins_at_servers_are_known_to_replicas_and_come_back(
    state: Path, server: AuthServer, store_pair: StorePair, tmp_path: Path
) -> None:
    ann = Principal("https://login.example.com", "ann")
    config, of_ann = remote(server.mcp_url), with_fields(remote(server.mcp_url), login_of=ann)
    logins = {key(each): replace(issue_login(server), person=each.login_of) for each in (config, of_ann)}
    for each in (config, of_ann):
        store_login(login_folder(), each, logins[key(each)])
    kinds = login_migration.list_migrations(config_of(group_config("up", upstream=config)), store_pair[0])
    assert (await take(kinds, is_dry=True))["logins at servers"].taken == 2
    assert (await take(kinds))["logins at servers"].taken == 2
    assert (await take(kinds))["logins at servers"].there == 2
    replica = ReplicaLogins(store_pair[1])
    try:
        for each in (config, of_ann):
            assert await replica.open(each).read() == logins[key(each)]
        assert await replica.list_persons(config) == [ann]
        opened = replica.open(config)
        await opened.read()
        newer = issue_login(server)
        await opened.write(newer, is_new=True)
    finally:
        await replica.close()
    stays = (await take(kinds, to_store=False))["logins at servers"]
    assert stays.different == (server.mcp_url,)
    stored = LoginStore(login_folder(), config)
    assert stored.load() == logins[key(config)]
    await take(kinds, to_store=False, overwrites=True)
    assert stored.load() == newer
    assert LoginStore(login_folder(), of_ann).load() == logins[key(of_ann)]


async def test_a_refresh_token_that_a_replica_may_have_sent_is_not_taken_back(
    state: Path, server: AuthServer, store_pair: StorePair
) -> None:
    config, login = remote(server.mcp_url), issue_login(server)
    assert login.token is not None
    assert login.token.refresh is not None
    entry = UpstreamLogin(login, 1, spent=spent_mark(login.token.refresh), spender="a replica that was killed")
    await store_pair[0].put(LOGINS, key(config), wire.encode(entry), 60)
    kinds = login_migration.list_migrations(config_of(group_config("up", upstream=config)), store_pair[1])
    await take(kinds, to_store=False)
    taken = LoginStore(login_folder(), config).load()
    assert taken is not None
    assert taken.token == replace(login.token, refresh=None)


# --- the login server ---------------------------------------------------------------------------------


def clock_of_now() -> Clock:
    clock = Clock()
    clock.advance(time.time() - clock())
    return clock


@contextlib.asynccontextmanager
async def two_places(store_pair: StorePair, tmp_path: Path) -> AsyncIterator[tuple[Site, Site, Kinds]]:
    """A login server with a file, one with a store, and what is between them."""
    clock = clock_of_now()
    async with (
        open_site(tmp_path / "a", clock=clock) as site,
        open_site(tmp_path / "b", clock=clock, shared_store=store_pair[0]) as replica,
    ):
        yield site, replica, migrations_of(tmp_path / "a" / "logins.sqlite", store_pair[1], LIFETIMES)


async def test_clients_stay_logged_in_when_their_logins_move_to_replicas_and_back(
    store_pair: StorePair, tmp_path: Path
) -> None:
    async with two_places(store_pair, tmp_path) as (site, replica, kinds):
        tokens = await site.log_in()
        tokens |= json_of(await site.refresh(tokens))
        unused = await site.client()
        done = await take(kinds)
        assert [(each.label, each.taken) for each in done.values()] == [
            ("clients of the login server", 2),
            ("keys of the login server", 1),
            ("logins of clients", 1),
        ]
        assert await replica.is_good(tokens["access_token"])
        renewed = {**tokens, **json_of(await replica.refresh(tokens))}
        assert await replica.is_good(renewed["access_token"])
        begun = await replica.log_in(client_id=unused)
        again = await take(kinds)
        assert [(each.taken, each.there, len(each.different)) for each in again.values()] == [
            (0, 2, 0),
            (0, 1, 0),
            (0, 0, 1),
        ]
        await take(kinds, to_store=False, overwrites=True)
        for each in (renewed, begun):
            assert await site.is_good(each["access_token"])
            assert (await site.refresh(each)).status == 200


async def test_a_client_whose_answer_was_lost_gets_it_from_the_replicas(
    store_pair: StorePair, tmp_path: Path
) -> None:
    async with two_places(store_pair, tmp_path) as (site, replica, kinds):
        tokens = await site.log_in()
        lost = await site.refresh(tokens)
        await take(kinds)
        assert (await replica.refresh(tokens)).body == lost.body
        again = await replica.refresh({**tokens, **json_of(lost)})
        assert again.status == 200


async def test_what_was_revoked_at_one_place_is_revoked_at_both_and_never_comes_back(
    store_pair: StorePair, tmp_path: Path
) -> None:
    async with two_places(store_pair, tmp_path) as (site, replica, kinds):
        one, other = await site.log_in(), await site.log_in("bob")
        await take(kinds)
        await site.post_form("/revoke", {"token": one["refresh_token"], "client_id": one["client_id"]})
        await replica.post_form("/revoke", {"token": other["refresh_token"], "client_id": other["client_id"]})
        done = (await take(kinds, overwrites=True))["logins of clients"]
        assert (done.taken, done.ended) == (0, 2)
        for each in (one, other):
            assert error_of(await replica.refresh(each)) == "invalid_grant"
        await take(kinds, to_store=False, overwrites=True)
        for each in (one, other):
            assert error_of(await site.refresh(each)) == "invalid_grant"


async def test_a_refresh_token_that_is_used_twice_ends_its_login_also_after_a_move(
    store_pair: StorePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "GRACE_S", 0.0)
    async with two_places(store_pair, tmp_path) as (site, replica, kinds):
        stolen = await site.log_in()
        newest = {**stolen, **json_of(await site.refresh(stolen))}
        await take(kinds)
        assert error_of(await replica.refresh(stolen)) == "invalid_grant"
        assert error_of(await replica.refresh(newest)) == "invalid_grant"


# --- the command --------------------------------------------------------------------------------------


def configure(folder: Path, store: str) -> Path:
    file = folder / "config.json"
    cluster = {"store": store, "keys": [KEY], "peers": ["http://127.0.0.1:1"], "name": "a"}
    file.write_text(json.dumps({"mcpServers": {}, "settings": {"cluster": cluster}}))
    return file


async def run(cli: CliRunner, file: Path, *options: str) -> Any:  # Any: JSON
    command = ("cluster", "migrate", str(file), "--json", *options)
    done = await asyncio.to_thread(lambda: cli.run(*command))
    assert done.code == 0, done.err
    return {each["label"]: each for each in done.json}


STARTS_WITHIN_S = 60.0


async def test_a_command_that_was_killed_in_the_middle_is_repeated(
    cli: CliRunner, state: Path, tmp_path: Path
) -> None:
    count = 400
    file = configure(tmp_path, f"sqlite:///{tmp_path / 'store.sqlite'}")
    tokens = token_store(file)
    made = [tokens.create("first", (), lifetime_s=HOUR_S, now=time.time())[1]]
    for number in range(1, count):
        made.append(with_fields(made[0], hash=f"{number:08x}{made[0].hash[8:]}", subject=f"user {number}"))
        tokens.replace(made[-1].hash, made[-1])
    shared = LocalStore(tmp_path / "store.sqlite")
    try:
        command = await cli.start("cluster", "migrate", str(file))
        async with asyncio.timeout(STARTS_WITHIN_S):
            while not await SharedTokenStore(shared).load():  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.001)
        command.kill()
        await command.wait()
        there = len(await SharedTokenStore(shared).load())
        done = (await run(cli, file))["created tokens"]
        assert (done["found"], done["taken"] + done["there"], done["there"]) == (count, count, there)
        assert {each.hash for each in await SharedTokenStore(shared).load()} == {each.hash for each in made}
    finally:
        await shared.close()


async def test_without_a_store_there_is_nothing_to_migrate_to(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"mcpServers": {}}')
    done = await asyncio.to_thread(lambda: cli.run("cluster", "migrate", str(tmp_path / "config.json")))
    assert done.code != 0
    assert "has no `settings.cluster.store`" in done.err


@pytest.mark.full
async def test_secrets_are_sealed_in_the_store(
    store_pair: StorePair, redis: StoreServer, state: Path, server: AuthServer, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if "redis" not in request.node.name:
        pytest.skip("a file is private to its user, and not sealed")
    config, login = remote(server.mcp_url), issue_login(server)
    store_login(login_folder(), config, login)
    assert login.token is not None
    async with two_places(store_pair, tmp_path) as (site, _, kinds):
        await site.log_in("ann-with-a-name")
        await take(kinds)
        await take(login_migration.list_migrations(config_of(group_config("up", upstream=config)), store_pair[0]))
    keys = redis.ask("KEYS", "*").split()
    values = "".join(redis.ask("GET", each) for each in keys if b":e:" in each.encode())
    assert values
    for secret in (login.token.access, str(login.token.refresh), "ann-with-a-name", server.mcp_url, '"kty"'):
        assert secret not in values
        assert secret not in "".join(keys)


async def test_a_store_that_fails_in_the_middle_is_said_and_the_rest_is_taken_later(
    tokens: TokenStore, token_kinds: Kinds, store_pair: StorePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "bob"):
        tokens.create(name, (), lifetime_s=HOUR_S, now=time.time())
    write, writes = store_pair[0].compare_and_set, []

    async def fail_second(*args: Any, **named: Any) -> Any:  # Any: as the store takes them
        writes.append(args)
        if len(writes) == 2:
            raise StoreUnavailable(StoreFailure.DOWN)
        return await write(*args, **named)

    monkeypatch.setattr(store_pair[0], "compare_and_set", fail_second)
    with pytest.raises(StoreUnavailable):
        await take(token_kinds)
    done = (await take(token_kinds))["created tokens"]
    assert (done.taken, done.there) == (1, 1)
