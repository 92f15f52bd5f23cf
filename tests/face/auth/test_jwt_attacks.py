"""Signed tokens that count for nothing, whoever made them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.identity import Authentication
from dynamic_mcp.web.signed_token import TokenError, parse_token
from tests.examples import examples
from tests.face.auth.jwt_parties import PUBLIC_URL, Door, head_of
from tests.oidc_provider import JWKS, OidcProvider
from tests.signing_keys import encode, key_for, public_jwk, sign

Json = Any  # whatever JSON a test writes down


def claims_of(issuer: OidcProvider, door: Door, **changes: Json) -> dict[str, Json]:
    """Return the claims of a good token, with changes; None removes one."""
    now = int(door.clock())
    own = {"iss": issuer.issuer, "sub": "u-1", "aud": PUBLIC_URL, "exp": now + 600, **changes}
    return {name: value for name, value in own.items() if value is not None}


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
        ({"exp": None}, "has no expiry"),
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
    assert "has no subject" in await door.refuse(issuer.mint(PUBLIC_URL, sub=subject))


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
    assert isinstance(found, CredentialDenial)
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
    assert isinstance(door.provider.authenticate(head_of(token), token), CredentialDenial)


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp", "groups"])
async def test_a_claim_that_is_there_twice_makes_no_token(issuer: OidcProvider, door: Door, name: str) -> None:
    good = json.dumps(claims_of(issuer, door, groups=["eng"]))
    doubled = f'{good[:-1]}, "{name}": "x"}}'.encode()
    token = sign({"alg": "RS256", "kid": "RS-1"}, doubled, key_for("RS256"))

    assert not door.provider.recognises(head_of(token), token)
    assert isinstance(door.provider.authenticate(head_of(token), token), CredentialDenial)


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


async def test_a_signature_that_is_written_in_a_second_way_is_none(issuer: OidcProvider, door: Door) -> None:
    good = issuer.mint(PUBLIC_URL, algorithm="ES256")
    await door.admit(good)
    bad = good[:-1] + chr(ord(good[-1]) + 1)  # of the last character of 64 bytes, 4 bits stand for nothing

    assert not door.provider.recognises(head_of(bad), bad)
    assert isinstance(door.provider.authenticate(head_of(bad), bad), CredentialDenial)


async def test_a_token_with_any_other_character_in_it_counts_no_more(issuer: OidcProvider, door: Door) -> None:
    for algorithm in ("RS256", "ES256", "EdDSA"):
        good = issuer.mint(PUBLIC_URL, algorithm=algorithm)
        await door.admit(good)
        for at in range(len(good)):
            bad = f"{good[:at]}{'A' if good[at] != 'A' else 'B'}{good[at + 1 :]}"
            assert isinstance(door.provider.authenticate(head_of(bad), bad), CredentialDenial)
    assert issuer.count(JWKS) == 1


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
@examples(60)
def test_no_claims_whatever_break_anything(changes: dict[str, Json]) -> None:
    async def run() -> None:
        async with OidcProvider() as issuer:
            door = Door(issuer)
            await door.admit(issuer.mint(PUBLIC_URL))
            token = sign({"alg": "ES256", "kid": "ES256-1"}, {**claims_of(issuer, door), **changes}, key_for("ES256"))
            if door.provider.recognises(head_of(token), token):
                found = await door.show(token)
                assert isinstance(found, AuthResult)
                if isinstance(found, Authentication):
                    assert isinstance(found.principal.subject, str)
                    assert all(isinstance(text, str) for _, texts in found.claims for text in texts)
                    assert door.provider.is_valid(found)
            await door.provider.close()

    asyncio.run(run())
