"""Whoever tries tokens is slowed down, by address; nobody else is, and no refusal tells whether a token is right."""

from __future__ import annotations

import pytest

from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.auth.guesses import BURST, TokenGuesses
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.http.authenticator import Page
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.identity import Authentication, Principal
from tests.fakes import FakeClock

ANN = Authentication(Principal("test", "ann"), "test")


class OneToken:
    """A provider with one token, and those that it was asked about."""

    name = "one"

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Take every token."""
        return token is not None

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult:
        """Return ann for hers."""
        self.asked.append(token)
        return ANN if token == "right" else CredentialDenial("invalid_token", "it is not known here")

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether it is ann."""
        return authentication is ANN

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return None."""
        return None

    async def close(self) -> None:
        """Do nothing."""


class Door:
    """A chain, and requests from anywhere."""

    def __init__(self, *forwarders: str) -> None:
        self.clock = FakeClock()
        self.provider = OneToken()
        guesses = TokenGuesses(self.clock.now)
        guesses.trust(forwarders)
        self.chain = AuthChain([self.provider], guesses=guesses)

    def try_token(self, token: str, peer: str = "192.0.2.1", forwarded: str = "") -> int:
        """Return the status; 200 for somebody who is let in."""
        headers = {b"authorization": f"Bearer {token}".encode()}
        if forwarded:
            headers[b"x-forwarded-for"] = forwarded.encode()
        outcome = self.chain.authenticate(RequestHead("POST", b"/mcp", headers, peer=peer))
        assert isinstance(outcome, Authentication | Response)
        return 200 if isinstance(outcome, Authentication) else outcome.status

    def guess(self, times: int = BURST, peer: str = "192.0.2.1", forwarded: str = "") -> list[int]:
        """Try so many wrong tokens."""
        return [self.try_token(f"wrong-{number}", peer, forwarded) for number in range(times)]


def test_who_has_tried_many_is_refused_without_a_look_at_the_token_be_it_right_or_wrong() -> None:
    door = Door()
    assert door.guess() == [401] * BURST
    asked = len(door.provider.asked)

    assert [door.try_token(each) for each in ("another", "right", "another")] == [429] * 3
    assert len(door.provider.asked) == asked


def test_who_has_tried_many_may_try_one_a_second_and_many_again_after_a_while() -> None:
    door = Door()
    door.guess()
    for number in range(3):
        door.clock.time += 1
        assert [door.try_token(f"more-{number}-{each}") for each in "ab"] == [401, 429]
    door.clock.time += BURST
    assert [door.try_token(f"again-{number}") for number in range(BURST + 1)] == [401] * BURST + [429]


def test_a_token_that_was_right_before_is_never_delayed_nor_are_those_of_other_addresses() -> None:
    door = Door()
    assert door.try_token("right") == 200
    door.guess()

    assert door.try_token("right") == 200
    assert door.try_token("right", peer="192.0.2.2") == 200
    assert door.try_token("wrong", peer="192.0.2.2") == 401


def test_a_client_that_goes_on_with_one_wrong_token_costs_its_address_nothing() -> None:
    door = Door()
    assert [door.try_token("expired") for _ in range(100)] == [401] * 100
    assert door.try_token("right") == 200


def test_an_address_of_ipv6_is_its_network() -> None:
    door = Door()
    statuses = [door.try_token(f"wrong-{number}", peer=f"2001:db8::{number:x}") for number in range(BURST + 1)]
    assert statuses == [401] * BURST + [429]


def test_behind_a_trusted_proxy_the_address_that_it_names_is_slowed_down() -> None:
    door = Door("10.0.0.1")
    assert door.guess(BURST + 1, "10.0.0.1", "192.0.2.1")[-1] == 429
    assert door.try_token("right", "10.0.0.1", "192.0.2.2") == 200


@pytest.mark.parametrize(("peer", "forwarded"), [("", ""), ("127.0.0.1", "192.0.2.1"), ("::1", "192.0.2.1")])
def test_where_the_address_is_not_known_nobody_is_delayed(peer: str, forwarded: str) -> None:
    door = Door()
    assert door.guess(100, peer, forwarded) == [401] * 100
    assert door.try_token("right", peer, forwarded) == 200


def test_a_header_that_no_trusted_proxy_has_written_hides_no_address() -> None:
    door = Door()
    statuses = [door.try_token(f"wrong-{number}", "192.0.2.1", f"10.0.0.{number}") for number in range(BURST + 1)]
    assert statuses == [401] * BURST + [429]


def test_a_request_without_a_token_is_told_to_show_one() -> None:
    door = Door()
    door.guess()
    outcome = door.chain.authenticate(RequestHead("POST", b"/mcp", {}, peer="192.0.2.1"))
    assert isinstance(outcome, Response)
    assert outcome.status == 401
