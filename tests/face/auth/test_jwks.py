"""The keys of an issuer: when they are fetched, from where, and how long they count."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dynamic_mcp.face.auth.provider import CredentialDenial
from dynamic_mcp.identity import Authentication
from dynamic_mcp.web.jwks import FRESH_S, KEPT_S, PAUSE_S, RETRY_S
from dynamic_mcp.web.metadata import openid_urls
from tests.face.auth.jwt_parties import PUBLIC_URL, Door
from tests.oidc_provider import JWKS, OAUTH, OPENID, OidcProvider
from tests.program import BOUND_S
from tests.upstreams.auth_server import Answer, Request

Json = Any  # whatever JSON a test writes down


@pytest.fixture
async def door(issuer: OidcProvider) -> AsyncIterator[Door]:
    door = Door(issuer)
    yield door
    await door.provider.close()


async def unavailable(door: Door, token: str) -> None:
    """Show a token, of which nobody can know what it is worth."""
    found = await door.show(token)
    assert isinstance(found, CredentialDenial)
    assert found.error == "temporarily_unavailable"


# --- where they are ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        ("https://a.test", ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"]),
        ("https://a.test/", ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"]),
        (
            "https://a.test/b/c",
            [
                "/b/c/.well-known/openid-configuration",
                "/.well-known/oauth-authorization-server/b/c",
                "/.well-known/openid-configuration/b/c",
            ],
        ),
    ],
)
def test_metadata_may_be_where_each_of_the_standards_has_it(issuer: str, urls: list[str]) -> None:
    assert openid_urls(issuer) == [f"https://a.test{path}" for path in urls]


@pytest.mark.parametrize("path", ["", "/realms/test"])
@pytest.mark.parametrize("well_known", [OPENID, OAUTH])
async def test_the_metadata_of_either_kind_leads_to_the_keys(path: str, well_known: str) -> None:
    async with OidcProvider(path) as issuer:
        issuer.manners.well_known = (well_known,)

        await Door(issuer).admit(issuer.mint(PUBLIC_URL))


async def test_a_configured_url_needs_no_metadata(issuer: OidcProvider) -> None:
    door = Door(issuer, jwks_url=issuer.jwks_url)

    await door.admit(issuer.mint(PUBLIC_URL))

    assert [request.path for request in issuer.requests] == [JWKS]


async def test_metadata_of_another_issuer_leads_nowhere(issuer: OidcProvider, door: Door) -> None:
    async with OidcProvider() as evil:
        for said in (evil.issuer, f"{issuer.issuer}/", None):
            issuer.manners.metadata = {"issuer": said, "jwks_uri": evil.jwks_url}
            await unavailable(door, issuer.mint(PUBLIC_URL))
            door.clock.pass_s(RETRY_S)
        assert evil.requests == []


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/jwks", "https://169.254.169.254/jwks", "file:///etc/passwd", "x", "http://a b/", 5, None]
)
async def test_keys_come_from_where_keys_may_be(issuer: OidcProvider, door: Door, url: Json) -> None:
    issuer.manners.metadata = {"jwks_uri": url}

    await unavailable(door, issuer.mint(PUBLIC_URL))


# --- when they are fetched ---------------------------------------------------------------------------------


async def test_a_hundred_waiters_share_one_question(issuer: OidcProvider, door: Door) -> None:
    issuer.hold(JWKS)
    waiting = [door.begin(issuer.mint(PUBLIC_URL, sub=f"u-{n}")) for n in range(100)]
    await issuer.wait_for_request(JWKS)
    issuer.release(JWKS)

    async with asyncio.timeout(BOUND_S):
        found = [await each for each in waiting if isinstance(each, Future)]

    assert len(found) == 100
    assert {each.principal.subject for each in found if isinstance(each, Authentication)} == {
        f"u-{n}" for n in range(100)
    }
    assert (issuer.count(OPENID), issuer.count(JWKS)) == (1, 1)


async def test_a_waiter_that_gives_up_takes_nothing_from_the_others(issuer: OidcProvider, door: Door) -> None:
    issuer.hold(JWKS)
    first, second = door.begin(issuer.mint(PUBLIC_URL)), door.begin(issuer.mint(PUBLIC_URL))
    assert isinstance(first, Future)
    assert isinstance(second, Future)
    await issuer.wait_for_request(JWKS)

    first.cancel()
    issuer.release(JWKS)

    async with asyncio.timeout(BOUND_S):
        assert isinstance(await second, Authentication)


async def test_made_up_key_names_cause_one_question_a_minute(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    for n in range(200):
        await door.refuse(issuer.mint(PUBLIC_URL, header={"kid": f"made-up-{n}"}))
    assert issuer.count(JWKS) == 1

    for minute in range(2, 5):
        door.clock.pass_s(PAUSE_S)
        for n in range(50):
            await door.refuse(issuer.mint(PUBLIC_URL, header={"kid": f"made-up-{n}"}))
            await door.refuse(issuer.mint(PUBLIC_URL, header={"kid": None}) + "AAAA")
        assert issuer.count(JWKS) == minute


async def test_a_new_key_is_found_after_a_minute_at_the_latest(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    issuer.rotate()
    await door.refuse(issuer.mint(PUBLIC_URL))

    door.clock.pass_s(PAUSE_S)

    await door.admit(issuer.mint(PUBLIC_URL))


async def test_all_tokens_of_a_new_key_wait_for_the_one_question_about_it(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    issuer.rotate()
    door.clock.pass_s(PAUSE_S)
    issuer.hold(JWKS)
    waiting = [door.begin(issuer.mint(PUBLIC_URL, sub=f"u-{n}")) for n in range(5)]
    await issuer.wait_for_request(JWKS, 2)
    waiting += [door.begin(issuer.mint(PUBLIC_URL, sub=f"v-{n}")) for n in range(5)]

    issuer.release(JWKS)

    async with asyncio.timeout(BOUND_S):
        found = [await each for each in waiting if isinstance(each, Future)]
    assert len([each for each in found if isinstance(each, Authentication)]) == 10
    assert issuer.count(JWKS) == 2


async def test_a_token_that_names_no_key_is_tried_with_those_that_fit(issuer: OidcProvider, door: Door) -> None:
    issuer.rotate(keeps_old=True)
    await door.admit(issuer.mint(PUBLIC_URL, header={"kid": None}))
    issuer.rotate()
    door.clock.pass_s(PAUSE_S)

    await door.admit(issuer.mint(PUBLIC_URL, header={"kid": None}))

    assert issuer.count(JWKS) == 2


async def test_old_keys_go_on_counting_while_they_are_fetched_again(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    door.clock.pass_s(FRESH_S)
    issuer.hold(JWKS)
    hour: Json = {"life_s": FRESH_S + 600}

    for n in range(10):
        assert isinstance(door.begin(issuer.mint(PUBLIC_URL, sub=f"u-{n}", **hour)), Authentication)

    await issuer.wait_for_request(JWKS, 2)
    issuer.release(JWKS)
    assert issuer.count(JWKS) == 2


async def test_old_keys_count_for_a_day_if_the_issuer_is_gone(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    issuer.fail(JWKS)
    long: Json = {"life_s": 3 * KEPT_S}

    door.clock.pass_s(KEPT_S - 1)
    await door.admit(issuer.mint(PUBLIC_URL, **long))
    assert "not signed" in await door.refuse(issuer.mint(PUBLIC_URL, header={"kid": "made-up"}, **long))
    door.clock.pass_s(PAUSE_S)
    await unavailable(door, issuer.mint(PUBLIC_URL, **long))
    issuer.mend(JWKS)
    door.clock.pass_s(RETRY_S)

    await door.admit(issuer.mint(PUBLIC_URL, **long))


async def test_an_issuer_that_is_down_makes_no_token_wrong_and_is_not_pressed(
    issuer: OidcProvider, door: Door
) -> None:
    issuer.fail(OPENID)
    for _ in range(20):
        await unavailable(door, issuer.mint(PUBLIC_URL))
    assert issuer.count(OPENID) == 1

    issuer.mend(OPENID)
    door.clock.pass_s(RETRY_S)

    await door.admit(issuer.mint(PUBLIC_URL))


@pytest.mark.parametrize("path", [OPENID, JWKS])
async def test_an_issuer_that_hangs_keeps_nobody_for_ever(issuer: OidcProvider, path: str) -> None:
    issuer.hold(path)
    door = Door(issuer, fetch_s=0.01)

    await unavailable(door, issuer.mint(PUBLIC_URL))

    await door.provider.close()


async def test_tokens_that_cannot_count_cause_no_question(issuer: OidcProvider, door: Door) -> None:
    for token in (
        issuer.mint("https://other.example.com"),
        issuer.mint(PUBLIC_URL, exp=1),
        issuer.mint(PUBLIC_URL, header={"typ": "logout+jwt"}),
        issuer.mint(PUBLIC_URL, algorithm="ES384"),
        issuer.mint(PUBLIC_URL, sub=None),
    ):
        await door.refuse(token)

    assert issuer.requests == []


async def test_closing_ends_a_question(issuer: OidcProvider, door: Door) -> None:
    issuer.hold(JWKS)
    waiting = door.begin(issuer.mint(PUBLIC_URL))
    await issuer.wait_for_request(JWKS)

    async with asyncio.timeout(BOUND_S):
        await door.provider.close()

    assert isinstance(waiting, Future)
    assert waiting.cancelled()


@pytest.mark.parametrize("path", [OPENID, JWKS])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, {}),
        Answer(404, {}),
        Answer(200, b"<html>"),
        Answer(200, b"[" * 100_000),
        Answer(200, b"x" * 3_000_000),
        Answer(200, b"\xff"),
        Answer(200, []),
        Answer(200, {"keys": {}}),
        Answer(200, {"keys": [{"kty": "oct", "k": "AAAA", "kid": "RS-1"}]}),
    ],
)
async def test_nonsense_instead_of_keys_is_no_keys(
    issuer: OidcProvider, door: Door, path: str, answer: Answer
) -> None:
    issuer.manners.overrides[path] = lambda request: answer

    await unavailable(door, issuer.mint(PUBLIC_URL))


@pytest.mark.parametrize("path", [OPENID, JWKS])
async def test_a_redirect_is_not_followed(issuer: OidcProvider, door: Door, path: str) -> None:
    async with OidcProvider() as evil:

        def redirect(request: Request) -> Answer:
            return Answer(307, None, {"Location": f"{evil.issuer}{request.path}"})

        issuer.manners.overrides[path] = redirect

        await unavailable(door, issuer.mint(PUBLIC_URL))
        assert evil.requests == []


async def test_nonsense_after_good_keys_takes_none_away(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    issuer.manners.overrides[JWKS] = lambda request: Answer(200, {"keys": []})
    door.clock.pass_s(FRESH_S)
    await door.refuse(issuer.mint(PUBLIC_URL, header={"kid": "made-up"}, life_s=2 * FRESH_S))

    await door.admit(issuer.mint(PUBLIC_URL, life_s=2 * FRESH_S))
