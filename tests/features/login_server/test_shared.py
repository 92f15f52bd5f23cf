"""A login server that is one at all replicas: who begins at one goes on at another, and what ends, ends at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.features.login_server import grants, shared_state
from dynamic_mcp.features.login_server.clients import OAuthClient
from dynamic_mcp.features.login_server.revocations import REVOKED
from dynamic_mcp.features.login_server.shared_state import LOGINS, SharedClient
from dynamic_mcp.features.login_server.stored_table import StoredTable
from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.shared_store import SharedStore, StoredEntry, StoreFailure, StoreUnavailable
from tests.fakes import BOUND_S
from tests.features.cluster.store_servers import StoreServer, until, until_true
from tests.features.login_server.parties import (
    Browser,
    Clock,
    Json,
    Site,
    authorize_url,
    error_of,
    json_of,
    open_site,
    query_of,
)
from tests.features.shared_stores import StorePair

Sites = tuple[Site, Site]


@pytest.fixture
async def sites(store_pair: StorePair, tmp_path: Path) -> AsyncIterator[Sites]:
    """The login servers of two replicas, with a folder each."""
    clock = Clock()
    async with contextlib.AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(open_site(tmp_path / "a", clock=clock, shared_store=store_pair[0])),
            await stack.enter_async_context(open_site(tmp_path / "b", clock=clock, shared_store=store_pair[1])),
        )


async def until_refused(site: Site, token: str) -> CredentialDenial:
    """Wait until a replica refuses an access token."""
    async with asyncio.timeout(BOUND_S):
        while isinstance(outcome := await site.authenticate(token), Authentication):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.01)
    assert isinstance(outcome, CredentialDenial)
    return outcome


async def until_judged(site: Site, token: str) -> AuthResult:
    """Wait until a replica can judge an access token."""
    outcome = await site.authenticate(token)
    async with asyncio.timeout(BOUND_S):
        while getattr(outcome, "error", "") == "temporarily_unavailable":
            await asyncio.sleep(0.01)
            outcome = await site.authenticate(token)
    return outcome


# --- two replicas -------------------------------------------------------------------------------------


async def test_each_step_of_a_login_may_be_at_another_replica(sites: Sites, tmp_path: Path) -> None:
    one, other = sites
    id = await one.client()
    browser = Browser(other)
    await browser.open(authorize_url(id, scope="files"))
    browser.site = one
    code = query_of(await browser.submit("allow"))["code"]
    tokens = {**json_of(await other.redeem(id, code)), "client_id": id}
    for site in (one, other):
        ann = await site.authenticate(tokens["access_token"])
        assert isinstance(ann, Authentication)
        assert (ann.principal.subject, ann.scopes) == ("ann", frozenset({"files"}))
    renewed = {**tokens, **json_of(await one.refresh(tokens))}
    again = json_of(await other.refresh(renewed))
    assert await one.is_good(again["access_token"])
    keys = [json_of(await site.ask("GET", "/.well-known/jwks.json")) for site in (one, other)]
    assert keys[0] == keys[1]
    assert not (tmp_path / "a").exists(), "nothing is kept on the disk of a replica"


async def test_a_consent_is_decided_once_at_any_replica(sites: Sites) -> None:
    id = await sites[0].client()
    browser = Browser(sites[0])
    await browser.open(authorize_url(id))
    page = browser.page
    statuses = []
    for site in (sites[1], sites[0]):
        browser.site, browser.page = site, page
        statuses.append((await browser.submit("allow")).status)
    assert statuses == [303, 400]


async def test_of_many_at_two_replicas_one_gets_the_tokens_of_a_code(sites: Sites) -> None:
    id = await sites[0].client()
    code = await sites[0].code("ann", id)
    answers = await asyncio.gather(*(sites[number % 2].redeem(id, code) for number in range(10)))
    assert sorted(each.status for each in answers) == [200, *[400] * 9]


async def test_a_code_that_is_used_twice_ends_what_it_gave_at_all_replicas(sites: Sites) -> None:
    one, other = sites
    id = await one.client()
    code = await one.code("ann", id)
    tokens = json_of(await one.redeem(id, code))
    for site in sites:
        assert await site.is_good(tokens["access_token"])
    assert error_of(await other.redeem(id, code)) == "invalid_grant"
    for site in sites:
        assert (await until_refused(site, tokens["access_token"])).why == "the login was revoked"
        assert error_of(await site.refresh({**tokens, "client_id": id})) == "invalid_grant"


async def test_a_client_that_renews_at_two_replicas_at_once_gets_one_answer(sites: Sites) -> None:
    tokens = await sites[0].log_in()
    answers = await asyncio.gather(*(site.refresh(tokens) for site in sites * 3))
    assert {each.status for each in answers} == {200}
    assert len({each.body for each in answers}) == 1
    renewed = json_of(answers[0])
    assert (await sites[1].refresh({**tokens, **renewed})).status == 200


async def test_a_refresh_token_that_is_used_twice_ends_its_login_at_all_replicas(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = sites
    monkeypatch.setattr(grants, "GRACE_S", 0.0)
    stolen = await one.log_in()
    newest = {**stolen, **json_of(await one.refresh(stolen))}
    await asyncio.sleep(0.01)  # its answer is not repeated any more
    for site in sites:
        assert await site.is_good(newest["access_token"])
    assert error_of(await other.refresh(stolen)) == "invalid_grant"
    for site in sites:
        assert (await until_refused(site, newest["access_token"])).error == "invalid_token"
        assert error_of(await site.refresh(newest)) == "invalid_grant"


async def test_a_stream_ends_whose_login_another_replica_has_revoked(sites: Sites) -> None:
    one, other = sites
    tokens = await one.log_in()
    ann = await one.authenticate(tokens["access_token"])
    assert isinstance(ann, Authentication)
    form = {"token": tokens["access_token"], "client_id": tokens["client_id"]}
    assert (await other.post_form("/revoke", form)).status == 200
    assert not await other.is_good(tokens["access_token"]), "at once, where it was revoked"
    await until(lambda: not one.provider.is_valid(ann))


async def test_a_known_access_token_is_checked_without_asking_the_store(
    sites: Sites, store_pair: StorePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = await sites[1].log_in()
    assert await sites[0].is_good(tokens["access_token"])
    monkeypatch.setattr(store_pair[0], "get", None)
    assert await sites[0].is_good(tokens["access_token"])


async def test_the_logins_of_a_user_with_a_client_are_bounded_and_the_oldest_ends(
    sites: Sites, store_pair: StorePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_state, "_MAX_PER_OWNER", 4)
    id = await sites[0].client()
    logins = []
    for number in range(5):
        sites[0].clock.advance(10)
        logins.append(await sites[number % 2].log_in(client_id=id))
    assert error_of(await sites[0].refresh(logins[0])) == "invalid_grant"
    assert {(await sites[0].refresh(each)).status for each in logins[1:]} == {200}
    assert (await sites[1].refresh(await sites[0].log_in("bob", id))).status == 200


async def test_a_table_replaces_entries_where_it_is_full(store_pair: StorePair) -> None:
    table = StoredTable(store_pair[0], "small", 2)
    clients = [SharedClient(OAuthClient(str(number), ()), number) for number in range(3)]
    for each in clients:
        await table.add(each.client.id, each, 60)
    found = [await table.find(each.client.id, SharedClient) for each in clients]
    assert found[-1] is not None
    assert sum(each is not None for each in found) == 2


# --- when the store fails -----------------------------------------------------------------------------


async def test_without_the_store_nothing_is_granted_and_open_streams_go_on(
    sites: Sites, store_pair: StorePair
) -> None:
    one, other = sites
    id = await one.client()
    code = await one.code("ann", id)
    tokens = await one.log_in(client_id=id)
    ann = await one.authenticate(tokens["access_token"])
    assert isinstance(ann, Authentication)
    await store_pair[0].close()
    assert (await until_refused(one, tokens["access_token"])).error == "temporarily_unavailable"
    assert one.provider.is_valid(ann)
    for answer in (await one.redeem(id, code), await one.refresh(tokens), await one.register()):
        assert (answer.status, error_of(answer)) == (503, "temporarily_unavailable")
    assert (await one.ask("GET", authorize_url(id), x_forwarded_user="ann")).status == 503
    assert (await other.redeem(id, code)).status == 200, "its store works"


Interrupt = Callable[[int], None]


@pytest.fixture(params=["before", "after"])
def interrupt(request: pytest.FixtureRequest, store_pair: StorePair, monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Cut the first replica off from its store, at the operation with this number: before it has run, or after."""

    def interrupt(number: int) -> None:
        left = [number]
        for name in ("get", "put", "compare_and_set", "delete"):
            monkeypatch.setattr(store_pair[0], name, _cut(getattr(store_pair[0], name), left, request.param))

    return interrupt


def _cut(operation: Callable[..., Awaitable[Any]], left: list[int], when: str) -> Callable[..., Awaitable[Any]]:
    async def run(*args: Any, **named: Any) -> Any:  # Any: an operation of a store
        left[0] -= 1
        if left[0] > 0:
            return await operation(*args, **named)
        if left[0] == 0 and when == "after":
            await operation(*args, **named)
        raise StoreUnavailable(StoreFailure.DOWN, may_have_run=True)

    return run


# More than any of these steps asks the store for.
STEPS = range(1, 16)


@pytest.mark.parametrize("number", STEPS)
async def test_a_replica_that_is_cut_off_while_it_renews_a_login_loses_none(
    sites: Sites, interrupt: Interrupt, number: int
) -> None:
    one, other = sites
    tokens = await one.log_in()
    assert await other.is_good(tokens["access_token"])
    interrupt(number)
    first = await one.refresh(tokens)
    again = await other.refresh(tokens)
    assert again.status == 200
    assert first.status in (503, 200)
    if first.status == 200:
        assert first.body == again.body
    assert (await other.refresh({**tokens, **json_of(again)})).status == 200


@pytest.mark.parametrize("number", STEPS)
async def test_a_replica_that_is_cut_off_while_it_redeems_a_code_leaves_one_login_at_most(
    sites: Sites, interrupt: Interrupt, number: int
) -> None:
    one, other = sites
    id = await one.client()
    code = await one.code("ann", id)
    interrupt(number)
    first = await one.redeem(id, code)
    again = await other.redeem(id, code)
    assert first.status in (503, 200)
    assert again.status == 400 or first.status == 503
    if first.status == 200:
        await until_refused(other, json_of(first)["access_token"])
    if again.status == 200:
        assert await other.is_good(json_of(again)["access_token"])
        assert error_of(await other.redeem(id, code)) == "invalid_grant"


@pytest.mark.parametrize("number", STEPS)
async def test_a_replica_that_is_cut_off_while_it_revokes_says_so_and_another_can(
    sites: Sites, interrupt: Interrupt, number: int
) -> None:
    one, other = sites
    tokens = await one.log_in()
    form = {"token": tokens["refresh_token"], "client_id": tokens["client_id"]}
    interrupt(number)
    first = await one.post_form("/revoke", form)
    if first.status == 200:
        assert error_of(await other.refresh(tokens)) == "invalid_grant"
    else:
        assert first.status == 503
        assert (await other.post_form("/revoke", form)).status == 200
    await until_refused(other, tokens["access_token"])
    assert error_of(await other.refresh(tokens)) == "invalid_grant"


async def entry_of(store: SharedStore, tokens: Json) -> StoredEntry:
    """Return the entry of a login."""
    entry = await store.get(LOGINS, tokens["refresh_token"][:18])
    assert entry is not None
    return entry


async def test_a_login_goes_on_after_the_store_has_lost_its_renewal(sites: Sites, store_pair: StorePair) -> None:
    one, other = sites
    tokens = await one.log_in()
    lost = await entry_of(store_pair[0], tokens)
    newest = {**tokens, **json_of(await one.refresh(tokens))}
    await store_pair[0].put(LOGINS, lost.name, lost.value, 3600)
    following = {**newest, **json_of(await other.refresh(newest))}
    assert (await one.refresh(following)).status == 200
    assert error_of(await one.refresh(tokens)) == "invalid_grant", "the one before counts no more"
    assert error_of(await other.refresh(following)) == "invalid_grant"


@pytest.mark.full
async def test_a_store_that_was_emptied_forgets_no_revocation_and_no_key(
    sites: Sites, store_pair: StorePair, redis: StoreServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if "redis" not in request.node.name:
        pytest.skip("a file loses nothing")
    one, other = sites
    revoked, valid = await one.log_in(), await one.log_in()
    for site in sites:
        for each in (revoked, valid):
            assert await site.is_good(each["access_token"])
    lost = await entry_of(store_pair[0], revoked)
    await one.post_form("/revoke", {"token": revoked["refresh_token"], "client_id": revoked["client_id"]})
    await until_refused(other, revoked["access_token"])
    redis.ask("FLUSHALL")
    await store_pair[0].put(LOGINS, lost.name, lost.value, 3600)  # as a server in its place that is behind

    async def is_restored() -> bool:
        entries = [each.name for each in await store_pair[0].list_entries(REVOKED)]
        return bool(entries) and await store_pair[0].get(LOGINS, lost.name) is None

    await until_true(is_restored)
    async with open_site(tmp_path / "c", clock=one.clock, shared_store=store_pair[1]) as new:
        for site in (one, other, new):
            assert isinstance(await until_judged(site, valid["access_token"]), Authentication)
            assert not await site.is_good(revoked["access_token"])
            answer = await site.refresh(valid)
            assert (answer.status, error_of(answer)) == (401, "invalid_client"), "it registers again"
