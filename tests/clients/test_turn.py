"""A whole turn of each client: the model searches at once, finds the tools, calls them and gets what they answered.

Nothing is in the program's cache, so the first search is one from a cold start.
"""

from __future__ import annotations

import pytest

from tests.clients.conftest import Turns
from tests.clients.turns import NAMES, objects_in, through
from tests.clients.witness import FIGURES, PNG, RESULTS, WRONG

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),  # a client that starts slowly on a busy machine ends by its own bound
]


@pytest.mark.column("results")
async def test_a_search_and_calls_of_the_model_are_answered_through_the_client(turns: Turns) -> None:
    turn = await turns.of(through)

    assert len(turn.results) == len(NAMES) + 1, turn.ran
    assert all(f'"{name}"' in turn.results[0].text.replace('\\"', '"') for name in NAMES), turn.results[0]
    shown = turn.of_tools()
    assert RESULTS["greet_keeper"]["content"][0]["text"] in shown["greet_keeper"].text
    assert "a picture" in shown["paint_lighthouse"].text
    assert shown["paint_lighthouse"].images == ([] if turns.client.no_images else [PNG])
    assert FIGURES in objects_in(shown["measure_lighthouse"].text.replace('\\"', '"'))
    assert WRONG in shown["climb_lighthouse"].text
