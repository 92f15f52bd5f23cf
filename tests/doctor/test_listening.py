"""The addresses of a config that are taken are found before something tries to listen there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read_all
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.doctor.listening import check_addresses
from tests.journeys.remote_server import free_port


def config(folder: Path, setting: str, port: int) -> Config:
    file = folder / "config.json"
    file.write_text(f'{{"mcpServers": {{}}, "settings": {{"{setting}": {{"listen": "127.0.0.1:{port}"}}}}}}')
    return read_all(file, {}).base


@pytest.mark.parametrize("setting", ["http", "metrics"])
def test_a_free_address_is_nothing_to_say(tmp_path: Path, setting: str) -> None:
    assert list(check_addresses(config(tmp_path, setting, free_port()), is_served=False)) == []


@pytest.mark.parametrize("setting", ["http", "metrics"])
@pytest.mark.parametrize(("is_served", "level"), [(True, Level.OK), (False, Level.WARNING)])
def test_an_address_that_is_taken_is_a_warning_unless_it_is_ours(
    tmp_path: Path, setting: str, *, is_served: bool, level: Level
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (found,) = check_addresses(config(tmp_path, setting, taken.getsockname()[1]), is_served=is_served)

    assert (found.level, found.where) == (level, f"settings.{setting}.listen")
