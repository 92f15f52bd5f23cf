"""Clients and servers of both eras of MCP: every pair gets the diary that it would get if both were of one era.

The first tier has the two modes of the Python SDK, in this process. The other tests let clients of several SDKs use
the servers at once. Those that this machine does not have are left out: see test_clients.py for the older Python SDK
and the TypeScript SDKs. `era_report.py` runs every cell there is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.http_program import serving_http
from tests.journeys.era_cells import (
    CLIENTS,
    PYTHON,
    PYTHON_LEGACY,
    Cell,
    ClientKind,
    Connection,
    References,
    command_of,
    direct,
    journeys,
    journeys_here,
    references_for,
    through_http,
    through_stdio,
)
from tests.journeys.era_servers import servers_over
from tests.program import Json, window_command

pytestmark = [pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"), pytest.mark.timeout(240)]
FULL = pytest.mark.full
MODES = ((PYTHON, "modern"), (PYTHON_LEGACY, "legacy"))
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])
HERE = [client for client in CLIENTS if command_of(client)]


def _differences(references: References, diaries: Sequence[dict[Cell, Json]]) -> dict[str, Json]:
    found = {str(cell): references.differences(cell, diary) for each in diaries for cell, diary in each.items()}
    return {cell: differences for cell, differences in found.items() if differences}


def test_both_eras_have_a_client_here() -> None:
    assert {client.revision for client in HERE} == {"2026-07-28", "2025-11-25"}


@pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window")
async def test_both_modes_of_the_python_sdk_use_servers_of_both_eras(tmp_path: Path) -> None:
    async with servers_over("http", ("legacy", "modern")) as servers:
        alone = (journeys_here(client, direct(client, servers, [era])) for client, era in MODES)
        modern, legacy = await asyncio.gather(*alone)
        references = References(modern | legacy)
        async with serving_http(tmp_path, servers.config()) as program:
            clients = [(client, way) for client, _ in MODES for way in ("grouped", "alone")]
            diaries = await asyncio.gather(
                *(journeys_here(client, through_http(client, servers, program.url, way)) for client, way in clients)
            )
            assert "a bug" not in program.log()
    assert len(diaries) == 4
    assert _differences(references, diaries) == {}


@FULL
@pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window")
@TRANSPORTS
async def test_clients_of_both_eras_use_servers_of_both_over_http(tmp_path: Path, transport: str) -> None:
    async with servers_over(transport) as servers:
        references = await references_for(servers, tmp_path)
        async with serving_http(tmp_path, servers.config()) as program:

            def walks(client: ClientKind) -> list[Connection]:
                ways = ("grouped", "alone") if transport == "http" else ("grouped",)
                return [each for way in ways for each in through_http(client, servers, program.url, way)]

            diaries = await asyncio.gather(*(journeys(client, walks(client), tmp_path) for client in HERE))
            assert "a bug" not in program.log()
    assert _differences(references, diaries) == {}


@FULL
async def test_clients_of_both_eras_use_servers_of_both_over_stdio(tmp_path: Path) -> None:
    async with servers_over("stdio") as servers:
        references = await references_for(servers, tmp_path)
        config = tmp_path / "dynamic-mcp.json"
        config.write_text(json.dumps({"mcpServers": servers.config()}))
        window_command(str(config))
        diaries = await asyncio.gather(
            *(journeys(client, through_stdio(client, servers, config, "grouped"), tmp_path) for client in HERE)
        )
    assert _differences(references, diaries) == {}


@FULL
@pytest.mark.alone_only("a window of one group is alone")
async def test_a_modern_client_uses_one_server_alone_over_stdio(tmp_path: Path) -> None:
    async with servers_over("stdio") as servers:
        references = await references_for(servers, tmp_path)
        config = tmp_path / "dynamic-mcp.json"
        config.write_text(json.dumps({"mcpServers": servers.config()}))
        diaries = await journeys(PYTHON, through_stdio(PYTHON, servers, config, "alone"), tmp_path)
    assert _differences(references, [diaries]) == {}
