"""The conformance suites before two replicas behind nginx that sends each request to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import test_server as suites
from tests.http_program import serving_http

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("two_replicas")]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_group_alone_is_without_fault_for_clients_with_sessions(transport: str, tmp_path: Path) -> None:
    await suites.test_a_group_alone_is_without_fault_where_client_and_server_are_of_one_era(
        "legacy-0.2", transport, tmp_path
    )


async def test_a_modern_server_is_bridged_for_clients_with_sessions(tmp_path: Path) -> None:
    await suites.test_a_group_alone_bridges_the_eras_but_for_what_one_of_them_does_not_have(
        "legacy-0.2", "http", tmp_path
    )


async def test_all_groups_together_are_conformant_for_clients_with_sessions(tmp_path: Path) -> None:
    await suites.test_all_groups_together_are_conformant_but_for_what_they_do_not_list("legacy-0.2", tmp_path)


async def test_a_group_alone_is_without_fault_for_clients_without_sessions_but_for_tasks(
    tmp_path: Path,
) -> None:
    """A task belongs to the replica that has begun it, and its id does not say which."""
    suite = suites.find_suite("modern-0.2")
    async with (
        suites.upstream_of("modern", "http") as upstream,
        serving_http(tmp_path, {"up": upstream}) as program,
    ):
        found = await suite.run(program.url_of("up"), tmp_path)
    assert {name for name in found if not name.startswith("tasks-")} == set()
