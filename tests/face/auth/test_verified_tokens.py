"""Tokens that were verified: how long that counts, and whom they let in."""

from __future__ import annotations

import pytest

from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.web.verified_tokens import VerifiedToken, VerifiedTokens
from tests.face.auth.jwt_parties import Clock


def authentication(name: str = "ann") -> Authentication:
    return Authentication(Principal("issuer", name), "jwt")


def verified(clock: Clock, *, name: str = "ann", life_s: float = 600.0, login: str = "") -> VerifiedToken:
    return VerifiedToken(authentication(name), ("us",), clock() + life_s, login)


def test_a_token_is_verified_again_after_a_while() -> None:
    clock = Clock()
    tokens = VerifiedTokens(clock, 60.0)
    tokens.add("a", token := verified(clock))

    clock.pass_s(59)
    assert tokens.find("a") is token
    assert tokens.find("b") is None
    clock.pass_s(1)
    assert tokens.find("a") is None
    assert "a" in tokens

    tokens.add("a", token)
    assert tokens.find("a") is token


def test_nobody_is_let_in_by_what_was_verified_and_not_accepted() -> None:
    tokens = VerifiedTokens(clock := Clock())
    tokens.add("a", verified(clock))

    assert not tokens.is_valid(authentication())


def test_a_new_token_prolongs_what_an_old_one_began_and_an_old_one_shortens_nothing() -> None:
    tokens = VerifiedTokens(clock := Clock())
    old, new = verified(clock, life_s=60), verified(clock, life_s=120)
    tokens.accept(new)
    tokens.accept(old)

    clock.pass_s(119)
    assert tokens.is_valid(authentication())
    assert not tokens.is_valid(authentication("bob"))
    clock.pass_s(1)
    assert not tokens.is_valid(authentication())


@pytest.mark.parametrize(("revoked", "is_valid"), [((), True), (("one",), True), (("one", "other"), False)])
def test_who_has_two_logins_is_in_until_both_are_revoked(revoked: tuple[str, ...], is_valid: bool) -> None:
    tokens = VerifiedTokens(clock := Clock())
    for login in ("one", "other"):
        tokens.accept(verified(clock, login=login))

    assert tokens.is_valid(authentication(), frozenset(revoked)) is is_valid


def test_of_too_many_those_go_that_were_verified_longest_ago() -> None:
    tokens = VerifiedTokens(clock := Clock())
    for number in range(10_000):
        tokens.add(f"{number}", verified(clock, name=f"{number}"))
        tokens.accept(verified(clock, name=f"{number}"))
    tokens.add("0", verified(clock, name="0"))  # once more

    tokens.add("new", verified(clock, name="new"))
    tokens.accept(verified(clock, name="new"))

    assert "0" in tokens
    assert tokens.is_valid(authentication("0"))
    assert "1" not in tokens
    assert not tokens.is_valid(authentication("1"))
