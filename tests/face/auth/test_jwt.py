"""Signed tokens: which of them say who somebody is, and which count for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio import Future
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynamic_mcp.face.auth.provider import Denial
from dynamic_mcp.face.auth.signed_token import TokenError, parse_token
from dynamic_mcp.groups.audience import Authentication, Principal
from tests.face.auth.jwt_parties import PUBLIC_URL, Door, head_of
from tests.oidc_provider import ALGORITHMS, JWKS, OidcProvider
from tests.signing_keys import encode, key_for, public_jwk, sign

Json = Any  # whatever JSON a test writes down


@pytest.fixture
async def issuer() -> AsyncIterator[OidcProvider]:
    async with OidcProvider() as issuer:
        yield issuer


@pytest.fixture
async def door(issuer: OidcProvider) -> AsyncIterator[Door]:
    door = Door(issuer, algorithms=ALGORITHMS)
    yield door
    await door.provider.close()


def claims_of(issuer: OidcProvider, door: Door, **changes: Json) -> dict[str, Json]:
    """Return the claims of a good token, with changes; None removes one."""
    now = int(door.clock())
    own = {"iss": issuer.issuer, "sub": "u-1", "aud": PUBLIC_URL, "exp": now + 600, **changes}
    return {name: value for name, value in own.items() if value is not None}


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
    door = Door(issuer, roles_claim="realm_access.roles", required_scopes=("tools",))
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
    first = await door.admit(issuer.mint(PUBLIC_URL, jti="1", b=["x"], a="y"))
    second = await door.admit(issuer.mint(PUBLIC_URL, a="y", jti="2", b=["x"]))

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

    assert isinstance(found, Denial)
    assert (found.error, found.scopes) == ("insufficient_scope", ("tools", "more"))


async def test_the_configured_claims_are_used(issuer: OidcProvider) -> None:
    door = Door(issuer, subject_claim="upn", roles_claim="https://example.com/roles", scopes_claim="perms")
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


# --- attacks -----------------------------------------------------------------------------------------------


async def test_a_token_without_a_signature_is_no_token(issuer: OidcProvider, door: Door) -> None:
    for algorithm in ("none", "None", "NONE", "nOnE"):
        token = sign({"alg": algorithm}, claims_of(issuer, door), None)
        assert not door.provider.recognises(head_of(token), token)
        assert "algorithm" in await door.refuse(f"{token}AAAA")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_shared_secret(issuer: OidcProvider, door: Door, algorithm: str) -> None:
    await door.admit(issuer.mint(PUBLIC_URL))
    key = key_for("RS256")
    pem = key.as_bytes(encoding="PEM", private=False)
    secrets = [
        pem,
        pem.strip(),
        json.dumps(public_jwk(key)).encode(),
        str(public_jwk(key)["n"]).encode(),
        key.as_bytes(encoding="DER", private=False),
    ]
    for secret in secrets:
        header = {"alg": algorithm, "kid": issuer.kid("RS256")}
        token = sign(header, claims_of(issuer, door), secret)
        assert "algorithm" in await door.refuse(token)


@pytest.mark.parametrize(
    ("claimed", "by"),
    [
        ("RS256", "PS256"),
        ("PS256", "RS256"),
        ("RS512", "RS256"),
        ("ES256", "RS256"),
        ("RS256", "ES256"),
        ("EdDSA", "RS256"),
        ("ES384", "ES256"),
        ("RS256", "EdDSA"),
    ],
)
async def test_a_signature_of_another_algorithm_is_refused(
    issuer: OidcProvider, door: Door, claimed: str, by: str
) -> None:
    for kid in (issuer.kid(claimed), issuer.kid(by), None):
        token = issuer.mint(PUBLIC_URL, algorithm=by, header={"alg": claimed, "kid": kid})
        assert "signed" in await door.refuse(token)


async def test_algorithms_that_the_config_does_not_have_are_refused(issuer: OidcProvider) -> None:
    door = Door(issuer, algorithms=("ES256",))

    await door.admit(issuer.mint(PUBLIC_URL, algorithm="ES256"))
    assert "algorithm" in await door.refuse(issuer.mint(PUBLIC_URL, algorithm="RS256"))


@pytest.mark.parametrize("kid", ["RS-1", None, "another", "../../../dev/null", "' OR 1=1 --"])
async def test_a_key_of_somebody_else_is_no_key_of_the_issuer(
    issuer: OidcProvider, door: Door, kid: str | None
) -> None:
    header = {"alg": "RS256"} if kid is None else {"alg": "RS256", "kid": kid}

    assert "not signed by a key" in await door.refuse(sign(header, claims_of(issuer, door), key_for("RS256", 66)))


async def test_another_issuer_signs_for_itself_only(issuer: OidcProvider, door: Door) -> None:
    async with OidcProvider() as other:
        other.rotate()
        token = other.mint(PUBLIC_URL)
        assert not door.provider.recognises(head_of(token), token)
        assert "signed" in await door.refuse(other.mint(PUBLIC_URL, iss=issuer.issuer))
        assert other.requests == []


async def test_keys_that_a_token_brings_along_are_ignored(issuer: OidcProvider, door: Door) -> None:
    async with OidcProvider() as evil:
        evil.rotate()
        own = key_for("RS256", evil.generation)
        for members in (
            {"jwk": public_jwk(own)},
            {"jku": evil.jwks_url},
            {"x5u": f"{evil.issuer}/certificate"},
            {"x5c": ["MIIB"]},
            {"jku": evil.jwks_url, "kid": evil.kid("RS256")},
        ):
            token = sign({"alg": "RS256", "kid": "RS-1", **members}, claims_of(issuer, door), own)
            assert "not signed by a key" in await door.refuse(token)
        assert evil.requests == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": -61}, "expired"),
        ({"exp": None}, "never expires"),
        ({"nbf": 61}, "not valid yet"),
        ({"iat": 61}, "not valid yet"),
    ],
)
async def test_a_token_counts_in_its_time_only(
    issuer: OidcProvider, door: Door, changes: dict[str, int | None], why: str
) -> None:
    now = int(door.clock())
    times: Json = {name: None if shift is None else now + shift for name, shift in changes.items()}

    assert why in await door.refuse(issuer.mint(PUBLIC_URL, **times))


@pytest.mark.parametrize("changes", [{"exp": -55}, {"nbf": 55}, {"iat": 55}])
async def test_clocks_may_differ_by_the_leeway(issuer: OidcProvider, door: Door, changes: dict[str, int]) -> None:
    now = int(door.clock())

    times: Json = {name: now + shift for name, shift in changes.items()}
    await door.admit(issuer.mint(PUBLIC_URL, **times))


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["9999999999", True, [], {}, 10**400, -(10**400)])
async def test_a_time_that_is_no_number_is_refused(issuer: OidcProvider, door: Door, name: str, value: Json) -> None:
    assert "not a time" in await door.refuse(issuer.mint(PUBLIC_URL, **{name: value}))


@pytest.mark.parametrize("value", ["1e999", "NaN", "Infinity", "-Infinity", "1" * 5000])
async def test_a_number_beyond_json_makes_no_token_last_for_ever(
    issuer: OidcProvider, door: Door, value: str
) -> None:
    claims = json.dumps(claims_of(issuer, door, exp=0)).replace('"exp": 0', f'"exp": {value}').encode()
    token = sign({"alg": "RS256", "kid": "RS-1"}, claims, key_for("RS256"))

    if door.provider.recognises(head_of(token), token):
        assert "not a time" in await door.refuse(token)


@pytest.mark.parametrize("subject", [None, "", " ", 5, ["u-1"], "a\nb", "a\x1b[0m", " ann", "x" * 513, "\u202eann"])
async def test_a_token_that_names_nobody_is_refused(issuer: OidcProvider, door: Door, subject: Json) -> None:
    assert "who it is about" in await door.refuse(issuer.mint(PUBLIC_URL, sub=subject))


async def test_a_token_that_is_bound_to_a_key_is_refused_without_it(issuer: OidcProvider, door: Door) -> None:
    assert "bound" in await door.refuse(issuer.mint(PUBLIC_URL, cnf={"jkt": "x"}))


def _malformed(good: str) -> dict[str, str]:
    header, claims, signature = good.split(".")
    deep = encode(b'{"iss":' + b"[" * 5000 + b"]" * 5000 + b"}")
    return {
        "empty": "",
        "one part": header,
        "two parts": f"{header}.{claims}",
        "four parts": f"{good}.{signature}",
        "five parts, as encrypted ones have": f"{good}.{claims}.{signature}",
        "huge": f"{header}.{claims}{'A' * (16 << 10)}.{signature}",
        "deep": f"{header}.{deep}.{signature}",
        "deep header": f"{deep}.{claims}.{signature}",
        "padded": f"{header}=.{claims}.{signature}",
        "with a line break": f"{header}.{claims}.{signature}\n",
        "not base64url": f"{header}.{claims}.{signature[:-2]}+/",
        "a length that base64 cannot have": f"{header}.{claims}.AAAAA",
        "not JSON": f"{header}.{encode(b'x')}.{signature}",
        "not an object": f"{header}.{encode(b'[1]')}.{signature}",
        "not UTF-8": f"{header}.{encode(bytes([123, 255, 125]))}.{signature}",
        "lone surrogates": f"{header}.{claims}.\ud800",
        "dots": "." * 16_000,
        "not ASCII": f"{header}.{claims}.ä",
    }


@pytest.mark.parametrize("case", sorted(_malformed("a.b.c")))
async def test_what_is_no_token_is_recognised_by_nobody_and_breaks_nothing(
    issuer: OidcProvider, door: Door, case: str
) -> None:
    token = _malformed(issuer.mint(PUBLIC_URL))[case]

    assert not door.provider.recognises(head_of(""), token)
    found = door.provider.authenticate(head_of(""), token)
    assert isinstance(found, Denial)
    assert issuer.requests == []


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": None},
        {"alg": 5},
        {"alg": ["RS256"]},
        {"kid": 5},
        {"kid": {"a": 1}},
        {"typ": 5},
    ],
)
async def test_a_header_with_nonsense_or_critical_extensions_is_refused(
    issuer: OidcProvider, door: Door, header: Json
) -> None:
    token = sign({"alg": "RS256", "kid": "RS-1", **header}, claims_of(issuer, door), key_for("RS256"), by="RS256")

    assert not door.provider.recognises(head_of(token), token)
    assert isinstance(door.provider.authenticate(head_of(token), token), Denial)


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp", "groups"])
async def test_a_claim_that_is_there_twice_makes_no_token(issuer: OidcProvider, door: Door, name: str) -> None:
    good = json.dumps(claims_of(issuer, door, groups=["eng"]))
    doubled = f'{good[:-1]}, "{name}": "x"}}'.encode()
    token = sign({"alg": "RS256", "kid": "RS-1"}, doubled, key_for("RS256"))

    assert not door.provider.recognises(head_of(token), token)
    assert isinstance(door.provider.authenticate(head_of(token), token), Denial)


async def test_a_changed_token_is_another_token(issuer: OidcProvider, door: Door) -> None:
    token = issuer.mint(PUBLIC_URL)
    await door.admit(token)
    header, _, signature = token.split(".")
    forged = encode(json.dumps(claims_of(issuer, door, sub="boss")).encode())

    assert "signed" in await door.refuse(f"{header}.{forged}.{signature}")


@pytest.mark.parametrize(("algorithm", "size"), [("ES256", 64), ("ES512", 132), ("EdDSA", 64), ("RS256", 256)])
@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
async def test_a_signature_of_nothing_is_none(
    issuer: OidcProvider, door: Door, algorithm: str, size: int, byte: bytes
) -> None:
    content = issuer.mint(PUBLIC_URL, algorithm=algorithm).rpartition(".")[0]

    for length in (size, size - 1, size + 1, 1):
        assert "signed" in await door.refuse(f"{content}.{encode(byte * length)}")


async def test_a_token_with_any_other_character_in_it_counts_no_more(issuer: OidcProvider, door: Door) -> None:
    for algorithm in ("RS256", "ES256", "EdDSA"):
        good = issuer.mint(PUBLIC_URL, algorithm=algorithm)
        await door.admit(good)
        for at in range(len(good)):
            bad = f"{good[:at]}{'A' if good[at] != 'A' else 'B'}{good[at + 1 :]}"
            assert isinstance(door.provider.authenticate(head_of(bad), bad), Denial)
    assert issuer.count(JWKS) == 1


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300) | st.lists(st.binary(max_size=80).map(encode), max_size=4).map(".".join))
def test_no_text_whatever_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(TokenError):
        assert parse_token(text).signature


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "scope", "scp", "cnf", "groups", "realm_access"])


@given(changes=st.dictionaries(names, json_values, max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_claims_whatever_break_anything(changes: dict[str, Json]) -> None:
    async def run() -> None:
        async with OidcProvider() as issuer:
            door = Door(issuer)
            await door.admit(issuer.mint(PUBLIC_URL))
            token = sign({"alg": "ES256", "kid": "ES256-1"}, {**claims_of(issuer, door), **changes}, key_for("ES256"))
            if door.provider.recognises(head_of(token), token):
                found = await door.show(token)
                assert isinstance(found, Authentication | Denial)
                if isinstance(found, Authentication):
                    assert isinstance(found.principal.subject, str)
                    assert all(isinstance(text, str) for _, texts in found.claims for text in texts)
                    assert door.provider.is_valid(found)
            await door.provider.close()

    asyncio.run(run())


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
