"""The model is shown the same of each result through dynamic-mcp as when the client has the server itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.conftest import Turns
from tests.clients.turns import NAMES, alone, through, without_noise
from tests.clients.witness import PNG

pytestmark = pytest.mark.usefixtures("whole")


@pytest.mark.column("results")
@pytest.mark.parametrize("name", NAMES)
async def test_a_result_is_shown_as_with_the_client_alone(turns: Turns, name: str) -> None:
    expected = (await turns.of(alone)).of_tools()[name]

    shown = (await turns.of(through)).of_tools()[name]

    assert without_noise(turns.client, shown) == without_noise(turns.client, expected)


@pytest.mark.column("images")
async def test_an_image_is_shown_where_the_client_alone_shows_it(
    turns: Turns, record_property: Callable[[str, object], None]
) -> None:
    expected = (await turns.of(alone)).of_tools()["paint_lighthouse"].images

    shown = (await turns.of(through)).of_tools()["paint_lighthouse"].images

    record_property("cell", "yes" if expected else f"no: {turns.client.no_images}")
    assert shown == expected
    assert expected == ([] if turns.client.no_images else [PNG])
