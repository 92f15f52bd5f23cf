"""A server gets through dynamic-mcp what it gets from the client alone, whatever spelling its variables have."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from tests.clients.conftest import Turns
from tests.clients.table import Client
from tests.clients.turns import SHELL, remote_alone, remote_through, spelled_alone, spelled_through

pytestmark = [pytest.mark.usefixtures("whole", "_imported"), pytest.mark.column("variables")]


@pytest.fixture
def _imported(client: Client) -> None:
    if not client.installs:
        pytest.skip("its file is not one that `import` knows the spellings of")


async def test_a_program_gets_the_arguments_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = (await turns.of(spelled_alone)).started["argv"]

    assert (await turns.of(spelled_through)).started["argv"] == expected


async def test_a_program_gets_the_variables_of_its_entry_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _own((await turns.of(spelled_alone)).started["env"])

    assert _own((await turns.of(spelled_through)).started["env"]) == expected


async def test_a_program_gets_the_variables_of_the_shell_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _of_the_shell((await turns.of(spelled_alone)).started["env"])

    assert _of_the_shell((await turns.of(spelled_through)).started["env"]) == expected


async def test_a_program_runs_where_it_runs_with_the_client_alone(turns: Turns) -> None:
    expected = (await turns.of(spelled_alone)).started["cwd"]

    assert (await turns.of(spelled_through)).started["cwd"] == expected


async def test_a_remote_server_is_reached_at_the_path_of_the_client_alone(turns: Turns) -> None:
    expected = (await turns.of(remote_alone)).reached[0]

    assert unquote((await turns.of(remote_through)).reached[0]) == unquote(expected)


async def test_a_remote_server_gets_the_headers_that_it_gets_from_the_client_alone(turns: Turns) -> None:
    expected = _headers((await turns.of(remote_alone)).reached[1])

    assert _headers((await turns.of(remote_through)).reached[1]) == expected


def _own(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("V_OWN_")}


def _of_the_shell(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name in SHELL}


def _headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("v-")}
