"""Signed tokens over HTTP, from the head of a request to the upstream: who waits, who is served, and who is not."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.auth.metadata import ResourceMetadata
from dynamic_mcp.face.http.core import HttpFace
from tests.face.auth.jwt_parties import PUBLIC_URL, Door
from tests.face.auth.parties import TokenClient
from tests.face.http.modern_parties import ModernHttpClient, modern
from tests.face.http.parties import HELLO, face_of
from tests.fakes import FakeUpstream, Json, Opener
from tests.oidc_provider import JWKS, OidcProvider
from tests.program import BOUND_S

METADATA = ResourceMetadata(PUBLIC_URL, path="/mcp")


class Place:
    """A face whose clients need a token of an issuer, and the upstream behind it."""

    def __init__(self, issuer: OidcProvider, door: Door, face: HttpFace, upstream: FakeUpstream) -> None:
        self.issuer = issuer
        self.door = door
        self.face = face
        self.upstream = upstream

    def client(self, audience: str = PUBLIC_URL, path: str = "/mcp", **claims: Json) -> TokenClient:
        return TokenClient(self.face, self.issuer.mint(audience, **claims), path)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    upstream = FakeUpstream({"tools/call": {"content": []}})
    async with OidcProvider() as issuer:
        door = Door(issuer)
        async with face_of(Opener(up=[upstream]), authenticator=AuthChain([door.provider], METADATA)) as face:
            yield Place(issuer, door, face, upstream)
        await door.provider.close()


async def test_a_first_request_waits_for_the_keys_and_is_then_served(place: Place) -> None:
    place.issuer.hold(JWKS)
    client = place.client()
    hello = client.request("initialize", HELLO)
    await place.issuer.wait_for_request(JWKS)
    assert hello.status == 0

    place.issuer.release(JWKS)

    assert (await hello.ends()).status == 200
    client.session = hello.headers["mcp-session-id"]
    called = await client.call("echo", {"text": "x"}).ends()
    assert called.status == 200
    assert place.issuer.count(JWKS) == 1


async def test_many_clients_that_wait_for_the_keys_are_all_served(place: Place) -> None:
    place.issuer.hold(JWKS)
    clients = [place.client(sub=f"u-{n}") for n in range(20)]
    legacy = [client.request("initialize", HELLO) for client in clients]
    new = [
        ModernHttpClient(place.face).post(modern("tools/list"), authorization=f"Bearer {client.token}")
        for client in clients
    ]
    await place.issuer.wait_for_request(JWKS)

    place.issuer.release(JWKS)

    assert {(await each.ends()).status for each in (*legacy, *new)} == {200}
    assert len({each.headers["mcp-session-id"] for each in legacy}) == 20
    assert place.issuer.count(JWKS) == 1


async def test_a_modern_request_is_served_with_a_good_token_only(place: Place) -> None:
    good, bad = place.client().token, place.client("https://other.example.com").token
    client = ModernHttpClient(place.face)

    served = await client.post(modern("tools/list"), authorization=f"Bearer {good}").ends()
    again = await client.post(modern("tools/list"), authorization=f"Bearer {good}").ends()
    refused = [
        client.post(modern("tools/list"), more)
        for more in ({"authorization": f"Bearer {bad}"}, {"authorization": f"Bearer {good}x"}, {})
    ]

    assert (served.status, again.status) == (200, 200)
    assert [(await each.ends()).status for each in refused] == [401, 401, 401]


async def test_a_token_that_turns_out_wrong_reaches_nothing(place: Place) -> None:
    place.issuer.hold(JWKS)
    header, claims, _ = place.client().token.split(".")
    forger = TokenClient(place.face, f"{header}.{claims}.AAAA")
    hello = forger.request("initialize", HELLO)
    call = ModernHttpClient(place.face).post(modern("tools/list"), authorization=f"Bearer {forger.token}")
    await place.issuer.wait_for_request(JWKS)

    place.issuer.release(JWKS)

    assert [(await each.ends()).status for each in (hello, call)] == [401, 401]
    assert place.upstream.sent == []


async def test_a_client_that_goes_while_it_waits_is_not_served(place: Place) -> None:
    place.issuer.hold(JWKS)
    gone, other = place.client().request("initialize", HELLO), place.client().request("initialize", HELLO)
    await place.issuer.wait_for_request(JWKS)

    gone.cut()
    place.issuer.release(JWKS)

    assert (await other.ends()).status == 200
    assert gone.status == 0


async def test_a_session_belongs_to_the_person_whose_token_began_it(place: Place) -> None:
    mine = place.client(sub="ann")
    hello = await mine.request("initialize", HELLO).ends()
    mine.session = hello.headers["mcp-session-id"]
    theirs = place.client(sub="mallory")
    theirs.session = mine.session
    renewed = place.client(sub="ann", jti="another")
    renewed.session = mine.session

    assert (await theirs.request("ping").ends()).status == 404
    assert (await renewed.request("ping").ends()).status == 200


async def test_a_token_counts_for_each_request_anew(place: Place) -> None:
    client = place.client(life_s=30)
    hello = await client.request("initialize", HELLO).ends()
    client.session = hello.headers["mcp-session-id"]
    assert (await client.request("ping").ends()).status == 200

    place.door.clock.pass_s(91)

    assert (await client.request("ping").ends()).status == 401


async def test_an_issuer_that_is_down_is_told_from_a_token_that_is_wrong(place: Place) -> None:
    place.issuer.fail(JWKS)

    reply = await place.client().request("initialize", HELLO).ends()

    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert "www-authenticate" not in reply.headers


async def test_a_refusal_says_where_to_log_in_and_nothing_of_the_token(place: Place) -> None:
    reply = await place.client("https://other.example.com").request("initialize", HELLO).ends()

    challenge = reply.headers["www-authenticate"]
    assert reply.status == 401
    assert 'error="invalid_token"' in challenge
    assert 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
    assert "other.example.com" not in challenge


@pytest.mark.parametrize("path", ["/mcp/up", "/mcp"])
async def test_a_token_for_one_group_serves_that_group_only(place: Place, path: str) -> None:
    reply = await place.client(f"{PUBLIC_URL}/up", path).request("initialize", HELLO).ends()

    assert reply.status == (200 if path == "/mcp/up" else 401)


async def test_the_token_goes_no_further(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = place.client()
    hello = await client.request("initialize", HELLO).ends()
    client.session = hello.headers["mcp-session-id"]
    assert (await client.call("echo", {"text": "x"}).ends()).status == 200

    seen = json.dumps(place.upstream.sent) + caplog.text + repr(place.door.provider)

    assert place.upstream.heard("tools/call")
    assert not any(part in seen for part in client.token.split("."))
    assert not any(part in str(request) for request in place.issuer.requests for part in client.token.split("."))


async def test_a_hundred_requests_with_one_token_ask_nobody(place: Place) -> None:
    client = place.client()
    assert (await client.request("initialize", HELLO).ends()).status == 200
    asked = len(place.issuer.requests)

    async with asyncio.timeout(BOUND_S):
        for _ in range(100):
            reply = ModernHttpClient(place.face).post(modern("tools/list"), authorization=f"Bearer {client.token}")
            assert (await reply.ends()).status == 200

    assert len(place.issuer.requests) == asked
