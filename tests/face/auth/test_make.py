"""What a config makes of its providers, and what stays of them when it changes."""

from __future__ import annotations

import json
from asyncio import Future
from pathlib import Path

from dynamic_mcp.config.auth import Bearer, Forwarded, Jwt, Login, NamedToken
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.http.authenticator import Authenticator, PageRequest
from dynamic_mcp.identity import LOCAL_USER, Authentication
from tests.face.auth.parties import BEARER, FORWARDED, METADATA, OTHER_TOKEN, PUBLIC_URL, TOKEN, head_of
from tests.oidc_provider import JWKS, OidcProvider

FILE = Path("dynamic-mcp.json")


def user(authenticator: Authenticator, token: str) -> Authentication:
    """Return who has a token."""
    outcome = authenticator.authenticate(head_of(authorization=f"Bearer {token}"))
    assert isinstance(outcome, Authentication)
    return outcome


def test_without_providers_everybody_is_the_local_user() -> None:
    authenticator = ProviderPool().make_authenticator(Http(), FILE)

    assert authenticator.is_open
    assert authenticator.authenticate(head_of()) is LOCAL_USER


async def test_a_provider_that_has_not_changed_goes_on_with_all_that_it_knows() -> None:
    pool = ProviderPool()
    before = user(pool.make_authenticator(Http(auth=(BEARER,)), FILE), TOKEN)

    http = Http(auth=(FORWARDED, BEARER), max_sessions=5)
    again = pool.make_authenticator(http, FILE)
    await pool.keep_only(http, FILE)
    assert again.is_valid(before)
    assert user(again, TOKEN) is before


async def test_keys_of_an_issuer_are_kept_while_the_config_of_it_is_the_same() -> None:
    async with OidcProvider() as issuer:
        pool, jwt = ProviderPool(), Jwt(issuer.issuer)
        first, second = (
            pool.make_authenticator(Http(auth=auth, public_url=PUBLIC_URL), FILE) for auth in ((jwt,), (BEARER, jwt))
        )
        for authenticator in (first, second):
            head = head_of(authorization=f"Bearer {issuer.mint(PUBLIC_URL)}")
            outcome = authenticator.authenticate(head)
            found = await outcome if isinstance(outcome, Future) else outcome
            assert isinstance(found, Authentication)
            assert second.is_valid(found)
        assert issuer.count(JWKS) == 1
        await pool.close()


async def test_what_a_changed_provider_has_let_in_counts_no_more() -> None:
    pool = ProviderPool()
    before = user(pool.make_authenticator(Http(auth=(BEARER,)), FILE), TOKEN)

    changed = Bearer((NamedToken(OTHER_TOKEN, "ann", ("reader",)),))
    after = pool.make_authenticator(Http(auth=(changed,)), FILE)
    assert not after.is_valid(before)
    assert not after.is_valid(LOCAL_USER)
    assert not pool.make_authenticator(Http(), FILE).is_valid(before)


async def test_providers_are_asked_in_the_order_of_the_config() -> None:
    head = head_of("10.0.0.1", authorization=f"Bearer {TOKEN}", x_forwarded_user="eve")
    for order, subject in (((BEARER, FORWARDED), "ann"), ((FORWARDED, BEARER), "eve")):
        outcome = ProviderPool().make_authenticator(Http(auth=order), FILE).authenticate(head)
        assert isinstance(outcome, Authentication)
        assert outcome.principal.subject == subject


async def test_a_login_asks_the_reverse_proxy_of_the_same_config_and_is_another_when_that_changes() -> None:
    http = Http(auth=(Login(), FORWARDED), public_url=PUBLIC_URL)
    others = [
        Http(auth=(Login(), Forwarded(("10.0.0.1",))), public_url=PUBLIC_URL),
        Http(auth=(Login(scopes=("files",)), FORWARDED), public_url=PUBLIC_URL),
        Http(auth=(Login(), FORWARDED), public_url="https://other.example.com/mcp"),
        Http(auth=(Login(), FORWARDED), public_url=PUBLIC_URL, root_path="/tools"),
    ]
    pool = ProviderPool()
    page = pool.make_authenticator(http, FILE).find_page("GET", b"/authorize")
    assert page is not None
    assert page == pool.make_authenticator(http, FILE).find_page("GET", b"/authorize")
    for other in others:
        assert page != pool.make_authenticator(other, FILE).find_page("GET", b"/authorize")
    await pool.close()


async def test_the_metadata_names_our_own_authorization_server_with_what_comes_before_our_paths() -> None:
    http = Http(auth=(Login(), FORWARDED), public_url="https://mcp.example.com/tools/mcp")
    pool = ProviderPool()
    page = pool.make_authenticator(http, FILE).find_page("GET", f"{METADATA}/tools/mcp".encode())
    assert page is not None
    document = json.loads((await page(PageRequest(head_of(), b""))).body)
    assert document["authorization_servers"] == ["https://mcp.example.com/tools"]
    await pool.close()
