"""The pins, the table of clients and the page about them agree."""

from __future__ import annotations

from tests.clients.report import PAGE, SURFACES
from tests.clients.table import CLIENTS, VERSIONS


def test_every_client_of_the_table_is_pinned_and_every_pin_is_a_client() -> None:
    assert sorted(client.package for client in CLIENTS) == sorted(VERSIONS)
    assert all(version[0].isdigit() for version in VERSIONS.values()), "a pin is one version"


def test_the_page_has_the_clients_of_the_table_with_their_versions() -> None:
    page = PAGE.read_text().partition(SURFACES)[0]
    rows = [line.split(" | ") for line in page.splitlines() if line.count(" | ") > 5]

    assert [(row[0].removeprefix("| "), row[1]) for row in rows[2:]] == [
        (client.title, client.version) for client in CLIENTS
    ]
