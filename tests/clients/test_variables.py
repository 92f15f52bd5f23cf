"""A server gets through dynamic-mcp what it gets from the client alone, whatever spelling its variables have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import unquote

import pytest

from tests.clients.conftest import Turns
from tests.clients.table import Client
from tests.clients.turns import (
    SHELL,
    Turn,
    remote_alone,
    remote_through,
    spelled_alone,
    spelled_through,
    spellings_of,
)

Value = TypeVar("Value")

pytestmark = [pytest.mark.usefixtures("whole", "_imported"), pytest.mark.column("variables")]


@pytest.fixture
def _imported(client: Client) -> None:
    if not client.installs:
        pytest.skip("its file is not one that `import` knows the spellings of")


async def test_a_program_gets_the_arguments_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _arguments(turns.client, await turns.of(spelled_alone))

    assert _arguments(turns.client, await turns.of(spelled_through)) == expected


async def test_a_program_gets_the_variables_of_its_entry_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _variables(turns.client, await turns.of(spelled_alone))

    assert _variables(turns.client, await turns.of(spelled_through)) == expected


async def test_a_program_gets_the_variables_of_the_shell_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _of_the_shell(await turns.of(spelled_alone))

    assert _of_the_shell(await turns.of(spelled_through)) == expected


async def test_a_program_runs_where_it_runs_with_the_client_alone(turns: Turns) -> None:
    expected = (await turns.of(spelled_alone)).started["cwd"]

    assert (await turns.of(spelled_through)).started["cwd"] == expected


async def test_a_remote_server_is_reached_at_the_path_of_the_client_alone(turns: Turns) -> None:
    expected = (await turns.of(remote_alone)).reached[0]

    assert unquote((await turns.of(remote_through)).reached[0]) == unquote(expected)


async def test_a_remote_server_gets_the_headers_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _headers(turns.client, await turns.of(remote_alone))

    assert _headers(turns.client, await turns.of(remote_through)) == expected


def _arguments(client: Client, turn: Turn) -> dict[str, str]:
    """Return what became of each spelling in the arguments."""
    return _comparable(client, dict(zip(spellings_of(client), turn.started["argv"], strict=True)))


def _variables(client: Client, turn: Turn) -> dict[str, str | None]:
    """Return what became of each spelling in the variables; None where the variable was dropped."""
    variables: dict[str, str] = turn.started["env"]
    found = {each: variables.get(f"V_OWN_{number}") for number, each in enumerate(spellings_of(client))}
    return _comparable(client, found)


def _of_the_shell(turn: Turn) -> dict[str, str]:
    return {name: value for name, value in turn.started["env"].items() if name in SHELL}


def _headers(client: Client, turn: Turn) -> dict[str, str | None]:
    """Return what became of each spelling in the headers, and the headers that are named for a variable."""
    headers = turn.reached[1]
    named = {name: value for name, value in headers.items() if name.startswith("v-v-")}
    found = {each: headers.get(f"v-{number}") for number, each in enumerate(spellings_of(client))}
    return _comparable(client, found | named)


def _comparable(client: Client, found: Mapping[str, Value]) -> dict[str, Value]:
    """Leave out what is known to differ, and is written on the page."""
    return {each: value for each, value in found.items() if each not in client.differs}
