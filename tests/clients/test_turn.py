"""A whole turn of each client: the model searches at once, finds the tools, calls them and gets what they answered.

Nothing is in the program's cache, so the first search is one from a cold start.
"""

from __future__ import annotations

from tests.clients.conftest import Turns
from tests.clients.turns import NAMES, by_tool, objects_in
from tests.clients.witness import FIGURES, PNG, RESULTS, WRONG


async def test_a_search_and_calls_of_the_model_are_answered_through_the_client(turns_of: Turns) -> None:
    turn = await turns_of.through()

    assert len(turn.results) == len(NAMES) + 1, turn.ran
    assert all(f'"{name}"' in turn.results[0].text.replace('\\"', '"') for name in NAMES), turn.results[0]
    shown = by_tool(turn)
    assert RESULTS["greet_keeper"]["content"][0]["text"] in shown["greet_keeper"].text
    assert "a picture" in shown["paint_lighthouse"].text
    if "images" not in turns_of.client.cannot:
        assert shown["paint_lighthouse"].images == [PNG]
    assert FIGURES in objects_in(shown["measure_lighthouse"].text)
    assert WRONG in shown["climb_lighthouse"].text
