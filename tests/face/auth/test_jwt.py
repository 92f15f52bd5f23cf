"""Signed tokens: which of them say who somebody is, and for how long."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

import pytest

from dynamic_mcp.config.auth import Claims
from dynamic_mcp.face.auth.provider import CredentialDenial
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.web.signed_token import TokenError, check_claims, parse_token
from tests.face.auth.jwt_parties import PUBLIC_URL, Door
from tests.oidc_provider import ALGORITHMS, JWKS, OidcProvider

Json = Any  # whatever JSON a test writes down


# --- tokens that count -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_of_every_algorithm_tells_who_somebody_is(
    issuer: OidcProvider, door: Door, algorithm: str
) -> None:
    found = await door.admit(issuer.mint(PUBLIC_URL, algorithm=algorithm))

    assert found.principal == Principal(issuer.issuer, "u-1")
    assert found.provider == "jwt"


async def test_a_token_that_names_its_curve_counts_as_eddsa(issuer: OidcProvider, door: Door) -> None:
    await door.admit(issuer.mint(PUBLIC_URL, algorithm="EdDSA", header={"alg": "Ed25519"}))


async def test_roles_scopes_and_claims_come_from_the_token(issuer: OidcProvider) -> None:
    door = Door(issuer, claims=Claims(roles="realm_access.roles"), required_scopes=("tools",))
    token = issuer.mint(
        PUBLIC_URL,
        scope="tools more",
        groups=["eng", 5, "ops"],
        realm_access={"roles": ["dev"]},
        email="ann@example.com",
        jti="1",
        age=7,
    )

    found = await door.admit(token)

    assert found.roles == ("dev",)
    assert found.scopes == frozenset({"tools", "more"})
    assert dict(found.claims) == {
        "iss": (issuer.issuer,),
        "sub": ("u-1",),
        "aud": (PUBLIC_URL,),
        "scope": ("tools more",),
        "email": ("ann@example.com",),
        "groups": ("eng", "ops"),
        "realm_access.roles": ("dev",),
    }


async def test_two_tokens_of_one_person_say_the_same(issuer: OidcProvider, door: Door) -> None:
    one: Json = dict.fromkeys(("jti", "nonce", "at_hash", "c_hash", "s_hash"), "1")
    other: Json = dict.fromkeys(one, "2")
    first = await door.admit(issuer.mint(PUBLIC_URL, b=["x"], a="y", **one))
    second = await door.admit(issuer.mint(PUBLIC_URL, a="y", **other, b=["x"]))

    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scp": "a b"}, {"a", "b"}),
        ({"scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": 5}, set()),
        ({}, set()),
    ],
)
async def test_scopes_are_read_as_issuers_write_them(
    issuer: OidcProvider, door: Door, claims: Json, scopes: set[str]
) -> None:
    assert (await door.admit(issuer.mint(PUBLIC_URL, **claims))).scopes == frozenset(scopes)


async def test_a_token_without_the_required_scopes_lacks_them_all_at_once(issuer: OidcProvider) -> None:
    door = Door(issuer, required_scopes=("tools", "more"))

    found = await door.show(issuer.mint(PUBLIC_URL, scope="tools"))

    assert isinstance(found, CredentialDenial)
    assert (found.error, found.scopes) == ("insufficient_scope", ("tools", "more"))


async def test_the_configured_claims_are_used(issuer: OidcProvider) -> None:
    door = Door(issuer, claims=Claims("upn", "https://example.com/roles", "perms"))
    named: Json = {"https://example.com/roles": "dev"}
    token = issuer.mint(PUBLIC_URL, upn="ann", perms=["x"], scope="y", **named)

    found = await door.admit(token)

    assert (found.principal.subject, found.roles, found.scopes) == ("ann", ("dev",), frozenset({"x"}))


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
async def test_the_kinds_of_access_tokens_are_accepted(issuer: OidcProvider, door: Door, kind: str | None) -> None:
    await door.admit(issuer.mint(PUBLIC_URL, header={"typ": kind}))


@pytest.mark.parametrize("kind", ["logout+jwt", "oauth-id-jag+jwt", "dpop+jwt", "secevent+jwt", "", "JWE"])
async def test_tokens_of_another_kind_are_refused(issuer: OidcProvider, door: Door, kind: str) -> None:
    assert "access token" in await door.refuse(issuer.mint(PUBLIC_URL, header={"typ": kind}))


@pytest.mark.parametrize(
    "audience",
    [
        PUBLIC_URL,
        f"{PUBLIC_URL}/",
        "https://mcp.example.com",
        "https://mcp.example.com/",
        ["https://other.example.com", PUBLIC_URL],
    ],
)
async def test_every_audience_that_stands_for_us_is_accepted(
    issuer: OidcProvider, door: Door, audience: Json
) -> None:
    await door.admit(issuer.mint(audience))
    await door.admit(issuer.mint(audience), "/mcp/github")


@pytest.mark.parametrize(
    "audience",
    [
        "https://other.example.com/mcp",
        "https://mcp.example.com/mcp2",
        "https://mcp.example.com.evil.com/mcp",
        "http://mcp.example.com/mcp",
        "HTTPS://MCP.EXAMPLE.COM/MCP",
        "*",
        "",
        [],
        [[PUBLIC_URL]],
        {PUBLIC_URL: 1},
        5,
        None,
    ],
)
async def test_a_token_for_another_audience_is_refused(issuer: OidcProvider, door: Door, audience: Json) -> None:
    assert "audience" in await door.refuse(issuer.mint(audience))


async def test_a_token_for_one_group_counts_there_only(issuer: OidcProvider, door: Door) -> None:
    token = issuer.mint(f"{PUBLIC_URL}/github")

    for path in ("/mcp/github", "/mcp/github/", "/tools/mcp/github?x=/mcp"):
        await door.admit(token, path)
    for path in (
        "/mcp",
        "/mcp/",
        "/mcp/db",
        "/mcp/db/github",
        "/mcp/profile/github",
        "/x/mcp/github",
        "/mcp/github/x",
    ):
        assert "audience" in await door.refuse(token, path)


async def test_configured_audiences_are_the_only_ones(issuer: OidcProvider) -> None:
    door = Door(issuer, audience=("api://tools",))

    await door.admit(issuer.mint("api://tools"))
    assert "audience" in await door.refuse(issuer.mint(PUBLIC_URL))
    assert "audience" in await door.refuse(issuer.mint(f"{PUBLIC_URL}/github"), "/mcp/github")


# --- what is kept ------------------------------------------------------------------------------------------


async def test_a_token_waits_for_the_keys_and_later_ones_do_not(issuer: OidcProvider, door: Door) -> None:
    assert isinstance(first := door.begin(issuer.mint(PUBLIC_URL)), Future)
    assert isinstance(await first, Authentication)

    assert isinstance(door.begin(issuer.mint(PUBLIC_URL, sub="u-2")), Authentication)
    assert issuer.count(JWKS) == 1


async def test_a_known_token_is_not_believed_longer_than_its_key_is_old(issuer: OidcProvider, door: Door) -> None:
    token = issuer.mint(PUBLIC_URL, life_s=7200)
    found = await door.admit(token)
    assert door.begin(token) is found

    issuer.rotate()
    door.clock.pass_s(61)
    await door.admit(issuer.mint(PUBLIC_URL))

    assert "not signed by a key" in await door.refuse(token)


async def test_what_was_shown_is_valid_until_the_token_expires(issuer: OidcProvider, door: Door) -> None:
    token = issuer.mint(PUBLIC_URL, life_s=30)
    found = await door.admit(token)
    door.clock.pass_s(85)
    assert door.provider.is_valid(found)

    door.clock.pass_s(10)

    assert not door.provider.is_valid(found)
    assert "expired" in await door.refuse(token)


async def test_a_newer_token_of_the_same_person_keeps_their_streams_open(issuer: OidcProvider, door: Door) -> None:
    found = await door.admit(issuer.mint(PUBLIC_URL, life_s=30))
    await door.admit(issuer.mint(PUBLIC_URL, life_s=600))
    await door.admit(issuer.mint(PUBLIC_URL, life_s=20))
    door.clock.pass_s(300)

    assert door.provider.is_valid(found)


async def test_what_nobody_has_shown_is_not_valid(issuer: OidcProvider, door: Door) -> None:
    found = await door.admit(issuer.mint(PUBLIC_URL))

    assert not door.provider.is_valid(Authentication(Principal("token", "u-1"), "bearer"))
    assert not door.provider.is_valid(Authentication(found.principal, "jwt", ("admin",), found.claims))


@pytest.mark.parametrize("show", [repr, str])
async def test_no_part_of_a_token_is_in_what_is_shown_of_it(
    issuer: OidcProvider, door: Door, show: Callable[[object], str]
) -> None:
    token = issuer.mint("https://other.example.com", private="very-private")

    said = show(parse_token(token)) + show(await door.show(token)) + show(door.provider)

    assert "private" not in said
    assert not any(part in said for part in token.split("."))


def test_a_token_has_expired_at_the_time_that_it_says_and_counts_from_the_time_that_it_says() -> None:
    claims = {"iss": "i", "nbf": 100, "exp": 200}
    assert check_claims(claims, issuer="i", now=95.0, leeway_s=5.0) == 205.0
    assert check_claims(claims, issuer="i", now=204.9, leeway_s=5.0) == 205.0
    for now in (94.9, 205.0):
        with pytest.raises(TokenError):
            check_claims(claims, issuer="i", now=now, leeway_s=5.0)
