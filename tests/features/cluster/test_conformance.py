"""The conformance suites before two replicas behind a balancer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import test_server as suites

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("two_replicas")]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_group_alone_is_without_fault_for_clients_with_sessions(transport: str, tmp_path: Path) -> None:
    await suites.test_a_group_alone_is_without_fault_where_client_and_server_are_of_one_era(
        "legacy-0.2", transport, tmp_path
    )


async def test_a_group_alone_is_without_fault_for_clients_without_sessions(tmp_path: Path) -> None:
    await suites.test_a_group_alone_is_without_fault_where_client_and_server_are_of_one_era(
        "modern-0.2", "http", tmp_path
    )


async def test_a_modern_server_is_bridged_for_clients_with_sessions(tmp_path: Path) -> None:
    await suites.test_a_group_alone_bridges_the_eras_but_for_what_one_of_them_does_not_have(
        "legacy-0.2", "http", tmp_path
    )


async def test_all_groups_together_are_conformant_for_clients_with_sessions(tmp_path: Path) -> None:
    await suites.test_all_groups_together_are_conformant_but_for_what_they_do_not_list("legacy-0.2", tmp_path)


async def test_all_groups_together_are_conformant_for_clients_without_sessions(tmp_path: Path) -> None:
    await suites.test_all_groups_together_are_conformant_but_for_what_they_do_not_list("modern-0.2", tmp_path)


async def test_a_server_with_sessions_is_bridged_for_clients_without_any(tmp_path: Path) -> None:
    await suites.test_a_group_alone_bridges_the_eras_but_for_what_one_of_them_does_not_have(
        "modern-0.2", "http", tmp_path
    )
