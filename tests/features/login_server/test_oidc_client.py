"""Who somebody is, as an OpenID Connect provider says, and what is not believed of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from dynamic_mcp.config.auth import Oidc
from dynamic_mcp.features.login_server.oidc import AuthenticationRequest, OidcClient, OidcError, OidcUser
from dynamic_mcp.web.jwks import RETRY_S
from tests.face.auth.jwt_parties import Clock
from tests.oidc_provider import JWKS, OAUTH, OPENID, TOKEN, USERINFO, OidcProvider
from tests.program import BOUND_S
from tests.signing_keys import sign
from tests.upstreams.auth_server import Answer
from tests.web import web_client

BACK = "http://127.0.0.1:9/login/callback"
SECRET = "s3cret with % and : in it"


@pytest.fixture
async def provider() -> AsyncIterator[OidcProvider]:
    async with OidcProvider() as provider:
        provider.register("us", BACK, secret=SECRET)
        yield provider


def client_of(provider: OidcProvider, **changes: Any) -> OidcClient:  # Any: fields of Oidc
    fields = {"issuer": provider.issuer, "client_id": "us", "client_secret": SECRET, **changes}
    now = fields.pop("now", time.time)
    return OidcClient(Oidc(**fields), BACK, now=now)


async def visit(pending: AuthenticationRequest) -> dict[str, str]:
    """Log in with a browser, and return with what that comes back."""
    async with web_client() as browser:
        answer = await browser.get(pending.url)
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith(f"{BACK}?")
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


async def log_in(client: OidcClient) -> OidcUser:
    async with asyncio.timeout(BOUND_S):
        pending = await client.begin()
        return await client.finish(pending, await visit(pending))


async def refusal(client: OidcClient) -> str:
    with pytest.raises(OidcError) as raised:
        await log_in(client)
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


async def test_a_login_tells_who_somebody_is_and_their_groups(provider: OidcProvider) -> None:
    provider.person.groups = ["eng", "ops"]

    identity = await log_in(client_of(provider))

    assert (identity.issuer, identity.subject) == (provider.issuer, "ann@example.com")
    assert dict(identity.claims)["groups"] == ("eng", "ops")
    assert "nonce" not in dict(identity.claims)


async def test_each_login_has_its_own_state_nonce_and_verifier(provider: OidcProvider) -> None:
    client = client_of(provider)
    first, second = await client.begin(), await client.begin()

    asked = [dict(parse_qsl(urlsplit(each.url).query)) for each in (first, second)]

    assert all(each["code_challenge_method"] == "S256" and each["scope"] == "openid email profile" for each in asked)
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]
    assert first.verifier not in repr(first)
    assert provider.count(OPENID) == 1


@pytest.mark.parametrize(
    ("methods", "secret", "is_header"),
    [
        (None, SECRET, True),
        (["client_secret_basic", "client_secret_post"], SECRET, True),
        (["client_secret_post"], SECRET, False),
        (["none"], None, False),
    ],
)
async def test_the_client_authenticates_as_the_provider_takes_it(
    provider: OidcProvider, methods: list[str] | None, secret: str | None, is_header: bool
) -> None:
    provider.register("us", BACK, secret=secret)
    provider.manners.metadata = {"token_endpoint_auth_methods_supported": methods}

    await log_in(client_of(provider, client_secret=secret))

    (sent,) = provider.requests_to(TOKEN)
    assert ("authorization" in sent.headers) == is_header
    assert ("client_secret" in sent.form) == (secret is not None and not is_header)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"])
async def test_id_tokens_of_every_public_key_algorithm_are_accepted(provider: OidcProvider, algorithm: str) -> None:
    provider.manners.id_token_algorithm = algorithm

    assert (await log_in(client_of(provider))).subject == "ann@example.com"


@pytest.mark.parametrize("well_known", [OPENID, OAUTH])
async def test_an_issuer_with_a_path_is_found(well_known: str) -> None:
    async with OidcProvider("/realms/test") as provider:
        provider.manners.well_known = (well_known,)
        provider.register("us", BACK, secret=SECRET)

        assert (await log_in(client_of(provider))).issuer.endswith("/realms/test")


@pytest.mark.parametrize(
    ("claim", "verified", "subject"),
    [
        (None, True, "ann@example.com"),
        (None, "true", "ann@example.com"),
        (None, False, "u-1"),
        (None, None, "u-1"),
        ("sub", True, "u-1"),
        ("preferred_username", True, "ann"),
    ],
)
async def test_the_subject_is_the_configured_claim_else_a_verified_email_else_sub(
    provider: OidcProvider, claim: str | None, verified: Any, subject: str
) -> None:
    provider.person.email_verified = verified
    provider.person.claims = {"preferred_username": "ann"}

    assert (await log_in(client_of(provider, subject_claim=claim))).subject == subject


async def test_a_sub_that_looks_like_an_email_is_nobodys_verified_email(provider: OidcProvider) -> None:
    provider.person.sub, provider.person.email_verified = "boss@example.com", False

    assert "not verified" in await refusal(client_of(provider))
    assert (await log_in(client_of(provider, subject_claim="sub"))).subject == "boss@example.com"


async def test_a_user_without_the_configured_claim_is_refused(provider: OidcProvider) -> None:
    assert "`upn`" in await refusal(client_of(provider, subject_claim="upn"))


async def test_what_the_id_token_leaves_out_comes_from_userinfo(provider: OidcProvider) -> None:
    provider.person.groups = ["eng"]
    provider.manners.id_token = {"email": None, "email_verified": None, "groups": None}

    identity = await log_in(client_of(provider))

    assert (identity.subject, dict(identity.claims)["groups"]) == ("ann@example.com", ("eng",))


async def test_userinfo_about_somebody_else_is_ignored(provider: OidcProvider) -> None:
    provider.manners.id_token = {"email": None, "email_verified": None}
    mallory = {"sub": "u-2", "email": "boss@example.com", "email_verified": True}
    provider.manners.overrides[USERINFO] = lambda request: Answer(200, mallory)

    assert (await log_in(client_of(provider))).subject == "u-1"


async def test_a_login_does_without_a_userinfo_endpoint_that_fails(provider: OidcProvider) -> None:
    provider.fail(USERINFO)

    assert (await log_in(client_of(provider))).subject == "ann@example.com"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://other.example.com"}, "another issuer"),
        ({"aud": "another-client"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": ["us", "them"]}, "another client"),
        ({"aud": ["us", "them"], "azp": "them"}, "another client"),
        ({"azp": "them"}, "another client"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "has no expiry"),
        ({"exp": "soon"}, "not a time"),
        ({"iat": 1 << 40}, "not valid yet"),
        ({"nonce": "of-another-login"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"nonce": 5}, "another login"),
        ({"sub": None}, "has no subject"),
        ({"sub": ""}, "has no subject"),
        ({"sub": ["u-1"]}, "has no subject"),
        ({"sub": "a\nb"}, "has no subject"),
    ],
)
async def test_an_id_token_with_wrong_claims_is_refused(
    provider: OidcProvider, changes: dict[str, Any], why: str
) -> None:
    provider.manners.id_token = changes

    assert why in await refusal(client_of(provider))


async def test_an_id_token_that_is_signed_with_a_shared_secret_is_refused(provider: OidcProvider) -> None:
    claims = {**provider.person.all_claims(), "iss": provider.issuer, "aud": "us", "exp": 1 << 40}
    forged = sign({"alg": "HS256"}, claims, SECRET.encode())
    provider.manners.token = {"id_token": forged}

    assert "unsupported signature algorithm" in await refusal(client_of(provider))


async def test_an_id_token_with_a_signature_of_another_key_is_refused(provider: OidcProvider) -> None:
    client = client_of(provider)
    await log_in(client)
    provider.rotate()
    provider.manners.id_token_header = {"kid": "RS-1"}

    assert "signature" in await refusal(client)


@pytest.mark.parametrize("token", [None, 5, "", "a.b", "a.b.c", "e30.e30.", "x" * 100_000])
async def test_what_is_no_id_token_is_refused(provider: OidcProvider, token: Any) -> None:
    provider.manners.token = {"id_token": token}

    assert "ID token" in await refusal(client_of(provider))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "another"}, "another login"),
        ({"state": None}, "another login"),
        ({"iss": "https://other.example.com"}, "another authorization server"),
        ({"iss": None}, "does not name"),
        ({"code": None}, "no code"),
        ({"error": "access_denied"}, "`access_denied`"),
        ({"error": "<script>alert(1)</script>"}, "gave no reason"),
    ],
)
async def test_a_wrong_callback_exchanges_no_code(provider: OidcProvider, changes: dict[str, Any], why: str) -> None:
    provider.manners.callback = changes

    said = await refusal(client_of(provider))

    assert why in said
    assert "script" not in said
    assert provider.count(TOKEN) == 0


async def test_a_provider_that_does_not_promise_its_name_may_leave_it_out(provider: OidcProvider) -> None:
    provider.manners.metadata = {"authorization_response_iss_parameter_supported": None}
    provider.manners.callback = {"iss": None}

    assert (await log_in(client_of(provider))).subject == "ann@example.com"


async def test_a_code_works_once(provider: OidcProvider) -> None:
    client = client_of(provider)
    pending = await client.begin()
    back = await visit(pending)
    await client.finish(pending, back)

    with pytest.raises(OidcError, match="invalid_grant"):
        await client.finish(pending, back)


async def test_a_wrong_client_secret_is_named_but_not_repeated(provider: OidcProvider) -> None:
    provider.register("us", BACK, secret="another")

    assert "invalid_client" in await refusal(client_of(provider))


@pytest.mark.parametrize(
    "endpoint",
    [
        "javascript:alert(1)",
        "http://idp.example.com/",
        "https://a b/",
        "https://a/#x",
        'https://a/"',
        5,
        None,
    ],
)
async def test_nobody_is_sent_to_what_is_no_plain_link(provider: OidcProvider, endpoint: Any) -> None:
    provider.manners.metadata = {"authorization_endpoint": endpoint}

    client = client_of(provider)
    for _ in range(2):
        with pytest.raises(OidcError, match="authorization_endpoint"):
            await client.begin()
    assert provider.count(OPENID) == 1


async def test_the_secret_goes_to_no_metadata_service(provider: OidcProvider) -> None:
    provider.manners.metadata = {"token_endpoint": "https://169.254.169.254/token"}

    assert "is unavailable" in await refusal(client_of(provider))


async def test_metadata_of_another_issuer_is_refused(provider: OidcProvider) -> None:
    provider.manners.metadata = {"issuer": "https://other.example.com"}

    assert "metadata" in await refusal(client_of(provider))


@pytest.mark.parametrize("path", [OPENID, TOKEN, JWKS])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, {}),
        Answer(200, b"<html>"),
        Answer(200, b"[" * 100_000),
        Answer(200, b"x" * 3_000_000),
        Answer(302, None, {"Location": "http://127.0.0.1:9/"}),
        Answer(200, []),
        Answer(200, {"keys": [{"kty": "oct", "k": "AAAA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, 5]}),
    ],
)
async def test_nonsense_from_a_provider_is_an_error_and_nothing_else(
    provider: OidcProvider, path: str, answer: Answer
) -> None:
    provider.manners.overrides[path] = lambda request: answer

    assert await refusal(client_of(provider))


async def test_a_provider_that_is_down_is_an_error_and_is_asked_again(provider: OidcProvider) -> None:
    clock = Clock()
    client = client_of(provider, now=clock)
    await provider.stop()
    assert "retry" in await refusal(client)

    async with provider:
        assert "retry" in await refusal(client)
        clock.pass_s(RETRY_S)
        assert (await log_in(client)).subject == "ann@example.com"
