"""How many calls may wait for their modern clients, and what a sealed state opens."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec import Raw

from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.proxy.parked_calls import MAX_OF_ONE_PRINCIPAL, MAX_PARKED, Channel, ParkedCalls
from dynamic_mcp.proxy.request_state import StateSeal, Ticket, is_ours


class Waiting:
    """A call that waits."""

    def __init__(self, subject: str) -> None:
        self.principal = Principal("issuer", subject)

    def resume(self, responses: Mapping[str, Raw], channel: Channel) -> None:
        """Go on, which nothing here does."""

    def expire(self) -> None:
        """End, which nothing here does."""


async def test_there_is_a_bound_for_each_principal_and_one_for_all() -> None:
    calls = ParkedCalls()
    number = 0
    while calls.has_room(Principal("issuer", f"p{number // MAX_OF_ONE_PRINCIPAL}")):
        calls.park(Waiting(f"p{number // MAX_OF_ONE_PRINCIPAL}"), b"x", number=None, round_number=1)
        number += 1
        assert not calls.has_room(Principal("issuer", "p0")) or number < MAX_OF_ONE_PRINCIPAL
    assert number == len(calls) == MAX_PARKED


async def test_a_call_that_goes_on_makes_room() -> None:
    calls = ParkedCalls()
    parked = [calls.park(Waiting("p"), b"x", number=None, round_number=1) for _ in range(MAX_OF_ONE_PRINCIPAL)]
    assert not calls.has_room(Principal("issuer", "p"))
    assert isinstance(calls.claim(parked[0][1], b"x"), Waiting)
    assert calls.has_room(Principal("issuer", "p"))


def test_a_seal_opens_only_what_it_has_sealed_for_the_same_binding() -> None:
    seal, other = StateSeal(), StateSeal()
    state = seal.seal(Ticket(7, 2), b"binding")
    assert is_ours(state)
    assert seal.open(state, b"binding") == Ticket(7, 2)
    for opened_by, binding in ((seal, b"another"), (other, b"binding")):
        with pytest.raises(StateRefused):
            opened_by.open(state, binding)


@pytest.mark.parametrize("more", ["", "A", "=", "==A", "\n", " "])
def test_a_state_to_which_something_was_added_is_refused(more: str) -> None:
    seal = StateSeal()
    state = seal.seal(Ticket(1, 1), b"x")
    if more:
        with pytest.raises(StateRefused):
            seal.open(state + more, b"x")
    else:
        assert seal.open(state, b"x") == Ticket(1, 1)


def test_two_states_of_one_ticket_have_nothing_in_common() -> None:
    seal = StateSeal()
    first, second = (seal.seal(Ticket(1, 1), b"x").rpartition(".")[2] for _ in range(2))
    assert first[:16] != second[:16]
