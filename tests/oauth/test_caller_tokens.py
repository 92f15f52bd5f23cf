"""The tokens of callers are kept while they are of use, and no longer."""

from __future__ import annotations

import asyncio
import time

import pytest

from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.caller_tokens import CallerTokens
from tests.signing_keys import key_for, sign

ANN, BOB = Principal("https://idp", "ann"), Principal("https://idp", "bob")
OTHER = Principal("https://other", "ann")


def mint(life_s: float, number: int = 0) -> str:
    """Return a token that is valid for so long."""
    return sign({"alg": "EdDSA"}, {"exp": time.time() + life_s, "jti": str(number)}, key_for("EdDSA"))


@pytest.fixture
def tokens() -> CallerTokens:
    return CallerTokens()


async def test_the_latest_token_of_each_person_is_kept_and_no_other(tokens: CallerTokens) -> None:
    old, new, bobs = mint(600), mint(600, 1), mint(600, 2)
    for person, token in ((ANN, old), (BOB, bobs), (ANN, new), (ANN, new)):
        tokens.record(person, token)

    found = [tokens.find(person) for person in (ANN, BOB, OTHER)]

    assert [each and each.value for each in found] == [new, bobs, None]
    assert len(tokens) == 2
    tokens.keep_only(())


async def test_no_token_is_in_what_is_shown_of_them(tokens: CallerTokens) -> None:
    token = mint(600)
    tokens.record(ANN, token)

    assert not any(part in f"{tokens!r} {tokens.find(ANN)!r}" for part in token.split("."))
    tokens.keep_only(())


async def test_a_token_is_dropped_from_memory_when_it_expires(tokens: CallerTokens) -> None:
    tokens.record(ANN, mint(0.05))

    async with asyncio.timeout(5):
        while len(tokens):  # noqa: ASYNC110 - a timer raises no event
            await asyncio.sleep(0.01)

    assert tokens.find(ANN) is None


async def test_the_token_of_a_person_without_clients_is_dropped() -> None:
    tokens = CallerTokens(kept_s=0.02)
    tokens.record(ANN, mint(600))
    tokens.record(BOB, mint(600))
    tokens.forget(ANN)

    async with asyncio.timeout(5):
        while len(tokens) > 1:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)

    assert tokens.find(BOB) is not None
    tokens.keep_only(())


async def test_a_request_that_arrives_as_the_last_client_leaves_has_its_token(tokens: CallerTokens) -> None:
    token = mint(600)
    tokens.record(ANN, token)
    tokens.forget(ANN)
    assert tokens.find(ANN) is not None, "it may have been authenticated before"

    tokens.record(ANN, token)
    tokens.forget(BOB)

    found = tokens.find(ANN)
    assert found is not None
    assert found.value == token
    tokens.keep_only(())


async def test_tokens_that_are_no_longer_exchanged_are_dropped(tokens: CallerTokens) -> None:
    tokens.record(ANN, mint(600))
    tokens.record(OTHER, mint(600))

    tokens.keep_only({"https://other"})

    assert tokens.find(ANN) is None
    assert tokens.find(OTHER) is not None
    tokens.keep_only(())
