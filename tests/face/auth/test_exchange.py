"""Clients over HTTP use a server by their own tokens, which are exchanged for it and go nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from authlib.oauth2 import OAuth2Error
from msgspec import structs

from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.identity import Principal
from tests.face.auth.exchange_office import (
    ExchangeOffice,
    exchange_office,
    far,
    show,
    whoami,
    whoami_modern,
)
from tests.face.auth.office import BEARER, TOKENS, Office
from tests.fakes import config_of
from tests.features.cluster.replicas import KEY
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.oidc_provider import TOKEN
from tests.program import BOUND_S
from tests.upstreams.exchange_issuer import CLIENT, refusal


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[ExchangeOffice]:
    async with asyncio.timeout(BOUND_S), exchange_office(tmp_path, BEARER) as place:
        yield place
        assert place.server.breaches == []


def by_us(name: str) -> str:
    return f"{name} by {CLIENT}"


# --- who is served -----------------------------------------------------------------------------------------


async def test_each_person_is_served_as_themselves_in_a_session_of_their_own(place: ExchangeOffice) -> None:
    async with place.person("ann") as ann, place.person("bob") as bob, place.person("ann") as again:
        said = await asyncio.gather(*(whoami(client, str(n)) for n, client in enumerate((ann, bob, again))))

        assert said == [by_us("ann"), by_us("bob"), by_us("ann")]
        assert place.server.session_count == 2
    assert [claims["aud"] for claims in place.server.claims] == [place.server.url] * 3
    assert {claims["scope"] for claims in place.server.claims} == {"read"}
    assert len(place.issuer.exchanges) == 2


async def test_the_callers_own_token_never_reaches_the_server_a_log_or_an_answer(
    place: ExchangeOffice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = place.issuer.token_of("ann")
    async with place.client(token) as ann:
        said = [await whoami(ann)]
        place.server.manners.rejects = {*place.issuer.issued}
        place.issuer.refuse = _refuse_all
        said.append(await whoami(ann))
        place.issuer.refuse = lambda form: None
        place.server.manners.rejects_all = True
        other = place.issuer.token_of("ann", jti="other")
        show(ann, other)
        said.append(await whoami(ann))
        said.append(json.dumps(await ann.request("tools/list")))

    assert by_us("ann") in said[0]
    assert "access_denied" in said[1]
    assert "HTTP 401" in said[2]
    assert not {token, other} & {*place.server.tokens}
    logged = "".join(each.getMessage() for each in caplog.records if each.name.startswith("dynamic_mcp"))
    assert not place.leaks("\n".join(said) + logged, token, other)


def _refuse_all(form: dict[str, str]) -> OAuth2Error:
    return refusal("access_denied", f"no: {form['subject_token']}")


async def test_a_stateless_request_is_served_by_the_token_that_it_shows(place: ExchangeOffice) -> None:
    tokens = {name: place.issuer.token_of(name) for name in ("ann", "bob")}

    said = await asyncio.gather(*(whoami_modern(place.url, token) for token in tokens.values()))

    assert said == [by_us("ann"), by_us("bob")]


async def test_a_client_of_the_one_group_is_served_as_its_person(place: ExchangeOffice) -> None:
    async with place.client(place.issuer.token_of("ann"), "/mcp/far") as ann:
        answer = await ann.request("tools/call", {"name": "whoami", "arguments": {"nonce": "n"}})

    assert answer["result"]["content"][0]["text"] == by_us("ann")


async def test_a_client_that_has_refreshed_its_token_goes_on_in_its_session(place: ExchangeOffice) -> None:
    async with place.person("ann") as ann:
        await whoami(ann)
        newer = place.issuer.token_of("ann", jti="newer")
        show(ann, newer)
        place.server.manners.rejects = {*place.issuer.issued}

        assert await whoami(ann) == by_us("ann")

        assert place.issuer.exchanges[-1].form["subject_token"] == newer
        assert place.server.session_count == 1


async def test_a_call_whose_token_is_rejected_is_repeated_once_with_another(place: ExchangeOffice) -> None:
    async with place.person("ann") as ann:
        await whoami(ann)
        place.server.manners.rejects = {*place.issuer.issued}

        assert await whoami(ann, "second") == by_us("ann")

        assert len(place.issuer.exchanges) == 2
        assert place.server.calls["second"] == "ann"


async def test_a_scope_that_the_token_lacks_is_named(place: ExchangeOffice) -> None:
    async with place.person("ann") as ann:
        place.server.manners.scope_of_calls = "admin"
        assert "the scope `admin`" in await whoami(ann)

        place.server.manners.scope_of_calls = ""
        assert await whoami(ann) == by_us("ann")
        assert len(place.issuer.exchanges) == 1


async def test_a_person_who_was_refused_is_served_with_their_next_token(place: ExchangeOffice) -> None:
    async with place.person("ann") as ann:
        place.issuer.refuse = lambda form: refusal("interaction_required")
        assert "interaction_required" in await whoami(ann)

        place.issuer.refuse = lambda form: None
        show(ann, place.issuer.token_of("ann", jti="after the second factor"))
        assert await whoami(ann) == by_us("ann")


# --- who is not --------------------------------------------------------------------------------------------


async def test_a_client_with_a_token_of_ours_is_told_what_is_needed(place: ExchangeOffice) -> None:
    async with place.client(TOKENS["ann"]) as ann:
        said = await whoami(ann)

    assert f"needs a token of `{place.issuer.issuer}`" in said
    assert "known by `token`" in said
    assert place.issuer.exchanges == []


async def test_no_token_is_kept_where_no_server_exchanges_them(place: ExchangeOffice) -> None:
    office = place.office
    async with place.person("ann"):
        assert len(office.logins.caller_tokens) == 1
        config = structs.replace(config_of(), file=office.config.file)
        office.proxy.apply(config)
        await office.serve(place.jwt, config=config)

        assert len(office.logins.caller_tokens) == 0
        async with place.person("bob") as bob:
            await bob.request("tools/list")
        assert len(office.logins.caller_tokens) == 0


async def test_a_reload_that_brings_such_a_server_keeps_sessions_and_serves_it(place: ExchangeOffice) -> None:
    office, config = place.office, place.office.config
    empty = structs.replace(config_of(), file=config.file)
    office.proxy.apply(empty)
    await office.serve(place.jwt, config=empty)
    async with place.person("ann") as ann:
        await ann.request("tools/list")
        office.proxy.apply(config)
        await office.serve(place.jwt, config=config)

        assert await whoami(ann) == by_us("ann")


async def test_tokens_are_dropped_with_the_last_client_of_their_person(place: ExchangeOffice) -> None:
    tokens = place.office.logins.caller_tokens
    person = Principal(place.issuer.issuer, "ann")
    async with place.person("ann") as ann:
        await whoami(ann)
        first = tokens.find(person)
        assert first is not None
    for group in place.office.proxy.groups:
        assert group.config.person is None, "the group of the person has ended"
    async with place.person("ann") as ann:
        assert await whoami(ann) == by_us("ann")

    assert len(place.issuer.exchanges) == 2


# --- many at once ------------------------------------------------------------------------------------------

PERSONS = ("ann", "bob", "cho", "dee")


@pytest.mark.parametrize("turns", [4, pytest.param(60, marks=pytest.mark.full)])
@pytest.mark.parametrize("is_modern", [False, True])
async def test_calls_of_several_persons_at_once_come_with_the_token_of_their_person(
    place: ExchangeOffice, is_modern: bool, turns: int
) -> None:
    place.issuer.life_s = 3  # of each exchanged token
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(place.person(name)) for name in PERSONS}

        async def call(name: str, nonce: str) -> None:
            if is_modern:
                said = await whoami_modern(place.url, place.issuer.token_of(name, jti=nonce), nonce)
            else:
                show(clients[name], place.issuer.token_of(name, jti=nonce))
                said = await whoami(clients[name], nonce)
            assert said == by_us(name), nonce

        for turn in range(turns):
            calls = [(name, f"{turn} {name} {n}") for n in range(8) for name in PERSONS]
            await asyncio.gather(*(call(*each) for each in calls))
            if turn == 1:
                place.server.manners.rejects |= {*place.issuer.issued}

    assert len(place.server.calls) == turns * 32
    assert len(place.issuer.exchanges) >= 2 * len(PERSONS)
    assert all(nonce.split()[1] == who for nonce, who in place.server.calls.items())
    assert {each.form["subject_token"] for each in place.issuer.exchanges}.isdisjoint(place.server.tokens)
    for exchange in place.issuer.exchanges:
        assert exchange.form["resource"] == place.server.url


async def test_the_first_calls_of_a_person_share_one_exchange(place: ExchangeOffice) -> None:
    place.issuer.hold(TOKEN)
    async with place.person("ann") as ann:
        calls = [asyncio.create_task(whoami(ann, str(n))) for n in range(16)]
        await place.issuer.wait_for_request(TOKEN)
        place.issuer.release(TOKEN)

        assert {*await asyncio.gather(*calls)} == {by_us("ann")}
    assert len(place.issuer.exchanges) == 1


# --- replicas ----------------------------------------------------------------------------------------------


async def test_a_session_of_another_replica_is_served_by_the_token_that_is_passed_on(tmp_path: Path) -> None:
    ports = {"a": free_port(), "b": free_port()}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    async with asyncio.timeout(BOUND_S), contextlib.AsyncExitStack() as stack:
        (tmp_path / "issuer").mkdir()
        place = await stack.enter_async_context(exchange_office(tmp_path / "issuer"))
        issuer, server = place.issuer, place.server
        issuer.audience = f"{urls['a']}/mcp"
        for name, port in ports.items():
            cluster = Cluster(peers=tuple(urls.values()), keys=(KEY,), name=name)
            folder = tmp_path / name
            folder.mkdir()
            config = {"far": far(issuer, server)}
            office = Office(folder, config, port, cluster=cluster, public_url=urls["a"])
            stack.push_async_callback(office.close)
            await office.serve(place.jwt)
        first = issuer.token_of("ann")
        async with HttpClient(urls["a"]) as at_a, HttpClient(urls["b"]) as at_b:
            client = McpClient(at_a, headers={"Authorization": f"Bearer {first}"})
            await client.initialize()
            client.http = at_b
            assert await whoami(client) == by_us("ann")

            newer = issuer.token_of("ann", jti="newer")
            show(client, newer)
            server.manners.rejects = {*issuer.issued}
            assert await whoami(client) == by_us("ann")

            client.http = at_a
            await client.delete()
    assert [each.form["subject_token"] for each in issuer.exchanges] == [first, newer]
    assert server.breaches == []
