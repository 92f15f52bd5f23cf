"""Logins at servers that replicas share: done once, known to all, and renewed by one at a time, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import LoginNeeded, Unreachable
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.oauth.bearer import BearerCredentials
from dynamic_mcp.oauth.credentials import Login
from dynamic_mcp.oauth.replica_logins import LOGINS, RENEWALS, ReplicaLogins, UpstreamLogin, spent_mark
from dynamic_mcp.oauth.store import key
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.shared_store import Lease, SharedStore, StoreFailure, StoreUnavailable
from tests.features.cluster.store_servers import StoreServer, until, until_true
from tests.features.shared_stores import StorePair
from tests.oauth.parts import bearer, issue_login, refusal, remote, store_login
from tests.upstreams.auth_server import AuthServer

AGED = 4000.0  # a token that was issued so long ago has expired
DUE = 3600.0 - 200  # and one of this age is renewed, though it is valid


class ReplicaOfLogins:
    """A replica with a folder of its own, and the login there to one server."""

    def __init__(self, config: Remote, folder: Path, store: SharedStore) -> None:
        self.config = config
        self.store = store
        self.logins = ReplicaLogins(store)
        self.ahead_s = 0.0
        """How much later it is here than where tokens are issued."""
        self.credentials = self.open(folder)

    def open(self, folder: Path) -> BearerCredentials:
        credentials = bearer(self.config, folder, now=lambda: time.time() + self.ahead_s)
        credentials.use_store(self.logins.open(self.config))
        return credentials

    async def access(self) -> str | None:
        """Return the access token that is known here."""
        login = await self.credentials.load_login()
        return None if login is None or login.token is None else login.token.access

    async def entry(self) -> UpstreamLogin:
        entry = await self.store.get(LOGINS, key(self.config))
        assert entry is not None
        return decode_as(entry.value, UpstreamLogin)

    async def end_in_the_middle(self) -> None:
        """Leave the login as a replica does that is killed once it has sent the refresh token."""
        entry = await self.store.get(LOGINS, key(self.config))
        assert entry is not None
        known = decode_as(entry.value, UpstreamLogin)
        assert known.login is not None
        assert known.login.token is not None
        assert known.login.token.refresh is not None
        spent = spent_mark(known.login.token.refresh)
        value = wire.encode(with_fields(known, spent=spent, spender="a replica that was killed"))
        await self.store.put(LOGINS, entry.name, value, 60)


Pair = tuple[ReplicaOfLogins, ReplicaOfLogins]


@pytest.fixture
async def pair(server: AuthServer, store_pair: StorePair, tmp_path: Path) -> AsyncIterator[Pair]:
    config = remote(server.mcp_url)
    made = [ReplicaOfLogins(config, tmp_path / name, store) for name, store in zip("ab", store_pair, strict=True)]
    yield made[0], made[1]
    for each in made:
        await each.credentials.close()
        await each.logins.close()


async def log_in(replica: ReplicaOfLogins, login: Login) -> str:
    """Log in at a replica, and return the access token."""
    assert await replica.credentials.adopt(login)
    assert login.token is not None
    return login.token.access


def cut_off(replica: ReplicaOfLogins, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have operations of a replica's store fail."""

    async def fail(*args: object, **named: object) -> None:
        raise StoreUnavailable(StoreFailure.DOWN)

    for name in names or ("get", "put", "compare_and_set", "acquire", "renew", "release"):
        monkeypatch.setattr(replica.store, name, fail)


async def test_a_login_at_one_replica_is_known_at_another_and_on_no_disk(
    pair: Pair, server: AuthServer, tmp_path: Path
) -> None:
    one, other = pair
    assert await other.access() is None
    with pytest.raises(LoginNeeded) as needed:
        await other.credentials.handle_challenge(refusal(None))
    assert not needed.value.is_done()
    access = await log_in(one, issue_login(server))
    await until(needed.value.is_done)
    assert await other.credentials.get_header() == f"Bearer {access}"
    assert not (tmp_path / "a").exists()


async def test_a_login_on_the_disk_stays_there_and_is_not_used(
    pair: Pair, server: AuthServer, tmp_path: Path
) -> None:
    kept = store_login(tmp_path / "a", pair[0].config, issue_login(server))
    before = kept.load()
    assert await pair[0].access() is None
    await log_in(pair[0], issue_login(server))
    await pair[0].credentials.forget()
    assert kept.load() == before


async def test_replicas_that_need_a_new_token_at_once_renew_it_once(pair: Pair, server: AuthServer) -> None:
    await log_in(pair[0], issue_login(server, age_s=AGED))
    headers = await asyncio.gather(*(each.credentials.get_header() for each in pair * 5))
    assert len({*headers}) == 1
    assert server.count_refreshes() == 1


async def test_replicas_renew_by_turns_and_send_no_refresh_token_twice(pair: Pair, server: AuthServer) -> None:
    await log_in(pair[0], issue_login(server))
    for each in pair:
        each.ahead_s = AGED  # no token is good for longer than one request
    for number in range(6):
        assert await pair[number % 2].credentials.get_header() is not None
    sent = [each.form["refresh_token"] for each in server.requests_to("/token")]
    assert len(sent) == 6
    assert len({*sent}) == len(sent)


async def test_a_login_that_is_ended_at_one_replica_is_ended_at_another(pair: Pair, server: AuthServer) -> None:
    one, other = pair
    await log_in(one, issue_login(server))
    assert await other.access() is not None
    await one.credentials.forget()

    async def is_ended() -> bool:
        return await other.access() is None

    await until_true(is_ended)
    await log_in(other, issue_login(server))

    async def is_back() -> bool:
        return await one.access() is not None

    await until_true(is_back)


async def test_a_replica_that_was_killed_before_it_sent_the_refresh_token_frees_it(
    pair: Pair, server: AuthServer
) -> None:
    one, other = pair
    await log_in(one, issue_login(server, age_s=AGED))
    await one.store.acquire(RENEWALS, [Lease(key(one.config), 1)], "a replica that was killed", 0.5)
    assert await other.credentials.get_header() is not None
    assert server.count_refreshes() == 1


async def test_a_refresh_token_that_a_killed_replica_may_have_sent_is_not_sent_again(
    pair: Pair, server: AuthServer
) -> None:
    one, other = pair
    access = await log_in(one, issue_login(server, age_s=DUE))
    await one.end_in_the_middle()
    assert await other.credentials.get_header() == f"Bearer {access}", "it is still valid"
    await other.credentials.close()
    assert await other.credentials.get_header() == f"Bearer {access}"
    with pytest.raises(LoginNeeded):
        await other.credentials.handle_challenge(refusal(f"Bearer {access}"))
    assert server.count_refreshes() == 0


async def test_a_refresh_token_that_the_server_does_not_replace_is_sent_again(pair: Pair, server: AuthServer) -> None:
    one, other = pair
    server.manners.rotates = False
    await log_in(one, issue_login(server))
    one.ahead_s = other.ahead_s = AGED
    await one.credentials.get_header()
    assert (await one.entry()).is_kept
    await one.end_in_the_middle()
    assert await other.credentials.get_header() is not None
    assert server.count_refreshes() == 2


async def test_a_request_that_was_not_answered_is_sent_again_by_any_replica(pair: Pair, server: AuthServer) -> None:
    one, other = pair
    await log_in(one, issue_login(server, age_s=AGED))
    known = (await one.entry()).login
    assert known is not None
    await one.credentials.save_login(replace(known, token_endpoint="http://127.0.0.1:1/token"))
    with pytest.raises(Unreachable):
        await one.credentials.get_header()
    assert (await one.entry()).spent == ""
    await other.credentials.adopt(known)
    assert await other.credentials.get_header() is not None


async def test_without_the_store_a_valid_token_is_used_and_none_is_renewed(
    pair: Pair, server: AuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    access = await log_in(one, issue_login(server, age_s=DUE))
    cut_off(one, monkeypatch)
    assert await one.credentials.get_header() == f"Bearer {access}"
    with pytest.raises(Unreachable, match="cannot be renewed: the shared store cannot be reached"):
        await one.credentials.handle_challenge(refusal(f"Bearer {access}"))
    cut_off(other, monkeypatch)
    assert await other.credentials.get_header() is None, "the server may need no login"
    with pytest.raises(Unreachable, match="cannot be read: the shared store cannot be reached"):
        await other.credentials.handle_challenge(refusal(None))
    assert server.count_refreshes() == 0


async def test_a_client_that_logs_in_by_itself_does_so_without_the_store(
    server: AuthServer, store_pair: StorePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.clients["ours"] = {"client_secret": "s3cret"}
    config = remote(
        server.mcp_url, grant="client_credentials", client_id="ours", client_secret="s3cret", issuer=server.url
    )
    replica = ReplicaOfLogins(config, tmp_path, store_pair[0])
    try:
        cut_off(replica, monkeypatch)
        header = await replica.credentials.get_header()
        assert header is not None
        assert await replica.credentials.get_header() == header
    finally:
        await replica.logins.close()


async def test_a_token_that_could_not_be_saved_is_used_here_and_saved_later(
    pair: Pair, server: AuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    await log_in(one, issue_login(server, age_s=AGED))
    write = one.store.compare_and_set
    writes: list[int] = []

    async def fail_second(*args: object, **named: object) -> object:
        writes.append(1)
        if len(writes) == 2:  # the first one says which refresh token is sent
            raise StoreUnavailable(StoreFailure.DOWN)
        return await write(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(one.store, "compare_and_set", fail_second)
    header = await one.credentials.get_header()
    assert header is not None
    assert (await one.entry()).spender == one.logins.holder
    await one.logins.close()
    assert await other.credentials.get_header() == header
    assert server.count_refreshes() == 1


async def test_a_login_that_a_user_has_done_meanwhile_counts_and_not_the_renewal_of_another(
    pair: Pair, server: AuthServer
) -> None:
    one, other = pair
    await log_in(one, issue_login(server))
    stale = await one.credentials.load_login()
    assert stale is not None
    assert stale.token is not None
    await other.access()
    newest = await log_in(other, issue_login(server))
    await one.credentials.save_login(replace(stale, token=replace(stale.token, access="a-renewal-of-the-old-one")))
    assert await one.access() == newest
    assert await other.access() == newest


async def test_commands_list_whose_logins_replicas_have(
    store_pair: StorePair, server: AuthServer, tmp_path: Path
) -> None:
    ann = Principal("https://login.example.com", "ann")
    config = remote(server.mcp_url)
    replica = ReplicaOfLogins(with_fields(config, login_of=ann), tmp_path, store_pair[0])
    other = ReplicaLogins(store_pair[1])
    try:
        assert await other.list_persons(config) == []
        await log_in(replica, issue_login(server))
        assert await other.list_persons(config) == [ann]
        assert await other.list_persons(remote("https://elsewhere.example.com/mcp")) == []
        await replica.credentials.forget()
        assert await other.list_persons(config) == []
    finally:
        await replica.logins.close()
        await other.close()


@pytest.mark.full
async def test_a_store_that_was_emptied_gets_back_the_logins_that_replicas_know(
    pair: Pair, redis: StoreServer, server: AuthServer, request: pytest.FixtureRequest
) -> None:
    if "redis" not in request.node.name:
        pytest.skip("a file loses nothing")
    one, other = pair
    await log_in(one, issue_login(server, age_s=AGED))
    header = await one.credentials.get_header()
    assert await other.credentials.get_header() == header
    redis.ask("FLUSHALL")
    await one.store.get(LOGINS, "anything")

    async def is_restored() -> bool:
        return await one.store.get(LOGINS, key(one.config)) is not None

    await until_true(is_restored)
    assert await one.credentials.get_header() == header
    assert await other.credentials.get_header() == header
    assert server.count_refreshes() == 1
