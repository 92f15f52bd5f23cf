"""What the model and the servers get to see of each other at the beginning of a turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.conftest import Turns
from tests.clients.table import OURS
from tests.clients.turns import CALL, NAMES, SEARCH, alone, asking, cold, through

pytestmark = pytest.mark.usefixtures("whole")


@pytest.mark.column("tools visible")
async def test_the_two_tools_are_in_the_first_request(
    turns: Turns, record_property: Callable[[str, object], None]
) -> None:
    if turns.client.call:
        pytest.skip("it has no model")
    turn = await turns.of(through)

    record_property("cell", f"no: {turns.client.hides}" if turns.client.hides else "yes")
    are_seen = {turns.client.named(OURS, SEARCH), turns.client.named(OURS, CALL)} <= set(turn.first)
    assert are_seen is not bool(turns.client.hides), turn.ran


@pytest.mark.column("cold start")
async def test_the_first_search_finds_the_tools_of_a_server_that_is_still_starting(turns: Turns) -> None:
    if turns.client.call:
        pytest.skip("it has no model")
    turn = await turns.of(cold)

    assert turn.results, turn.ran
    assert all(name in turn.results[0].text for name in NAMES), turn.results[0]


@pytest.mark.column("install")
async def test_a_server_that_was_replaced_is_started_by_the_program_alone(turns: Turns) -> None:
    if turns.client.call:
        pytest.skip("it starts all that it has with each call")
    turn = await turns.of(through)

    assert len(turn.witnessed) == 1, turn.witnessed


@pytest.mark.column("elicitation")
async def test_a_server_hears_whether_the_client_can_be_asked_and_gets_an_answer(
    turns: Turns, record_property: Callable[[str, object], None]
) -> None:
    expected = (await turns.of(alone)).started["greeting"]["capabilities"].get("elicitation")
    turn = await turns.of(asking)

    record_property("cell", "not declared" if expected is None else "declared: " + " and ".join(expected or ["form"]))
    assert turn.started["greeting"]["capabilities"].get("elicitation") == expected
    assert turn.results[-1].text, turn.ran
