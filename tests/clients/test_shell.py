"""A turn without any MCP server: the model reads the skill of `install --cli`, and runs its commands in a shell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.conftest import Turns
from tests.clients.turns import NAMES, by_shell
from tests.clients.witness import FIGURES, RESULTS, WRONG

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),  # a client that starts slowly on a busy machine ends by its own bound
]


@pytest.mark.column("skill")
async def test_the_skill_is_in_the_first_request_and_its_commands_work(
    turns: Turns, record_property: Callable[[str, object], None]
) -> None:
    if turns.client.in_shell is None:
        pytest.skip("it has no shell")
    turn = await turns.of(by_shell)

    reason = turns.client.names_skills
    record_property("cell", f"yes; {reason}" if reason else "yes")
    is_described = "Tools of MCP servers as shell commands: lighthouses." in turn.first[0]
    assert is_described is not bool(reason), turn.ran
    assert "dynamic-mcp" in turn.first[0]
    assert len(turn.results) == len(NAMES) + 2, turn.ran
    assert any("Call a tool with one JSON object on stdin" in request for request in turn.first)
    _, search, *calls = (result.text.replace('\\"', '"') for result in turn.results)
    assert all(name in search for name in NAMES), search
    shown = dict(zip(NAMES, calls, strict=True))
    assert RESULTS["greet_keeper"]["content"][0]["text"] in shown["greet_keeper"]
    assert f'"height_m": {FIGURES["height_m"]}' in shown["measure_lighthouse"]
    assert "saved as" in shown["paint_lighthouse"]
    assert WRONG in shown["climb_lighthouse"]
