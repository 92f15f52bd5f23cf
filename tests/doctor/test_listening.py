"""The addresses of a config that are taken are found before something tries to listen there."""

from __future__ import annotations

import socket

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.doctor.listening import check_address
from tests.cli.commands import CliRunner
from tests.journeys.remote_server import free_port

WHERE = "settings.http.listen"


def test_a_free_address_is_nothing_to_say() -> None:
    assert list(check_address(WHERE, TcpAddress("127.0.0.1", free_port()), is_served=False)) == []


@pytest.mark.parametrize(("is_served", "level"), [(True, Level.OK), (False, Level.WARNING)])
def test_an_address_that_is_taken_is_a_warning_unless_it_is_ours(*, is_served: bool, level: Level) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = TcpAddress("127.0.0.1", taken.getsockname()[1])
        (found,) = check_address(WHERE, address, is_served=is_served)

    assert (found.level, found.where) == (level, WHERE)


@pytest.mark.parametrize("setting", ["http", "metrics"])
def test_each_address_of_a_config_is_tried(cli: CliRunner, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cli.configure({}, settings={setting: {"listen": f"127.0.0.1:{taken.getsockname()[1]}"}})
        found = cli.run("check").json

    (about,) = [each for each in found if each["where"] == f"settings.{setting}.listen"]
    assert about["level"] == Level.WARNING
