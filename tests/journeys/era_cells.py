"""Every client before every server, with the proxy between them and without: runs the journeys of era_journey.py."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.journeys.era_client import travel
from tests.journeys.era_servers import ERAS, Servers, words_for
from tests.own_process import OWN
from tests.program import Json

HERE = Path(__file__).parent
RUNS_WITHIN_S = 240.0
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class ClientKind(NamedTuple):
    """A client of an SDK in one of its modes, and the newest revision that it speaks."""

    name: str
    mode: str
    revision: str


PYTHON = ClientKind("python 2", "auto", MODERN)
PYTHON_LEGACY = ClientKind("python 2 legacy", "legacy", LEGACY)
PYTHON_OLDER = ClientKind("python 1", "legacy", LEGACY)
TYPESCRIPT = ClientKind("typescript 2", "auto", MODERN)
TYPESCRIPT_LEGACY = ClientKind("typescript 2 legacy", "legacy", LEGACY)
TYPESCRIPT_OLDER = ClientKind("typescript 1", "sdk", LEGACY)
CLIENTS = (PYTHON, PYTHON_LEGACY, PYTHON_OLDER, TYPESCRIPT, TYPESCRIPT_LEGACY, TYPESCRIPT_OLDER)


class Cell(NamedTuple):
    """One journey: through the proxy reached `over` this, or without it where that is empty.

    `way` is how a client finds the server there: `grouped`, or `alone`.
    """

    client: ClientKind
    over: str
    way: str
    era: str
    transport: str

    def __str__(self) -> str:
        between = f" -{self.over}, {self.way}-> proxy" if self.over else ""
        return f"{self.client.name}{between} -{self.transport}-> {self.era}"


class Connection(NamedTuple):
    """What a client connects to, and the journeys there."""

    target: Json
    walks: dict[Cell, Json]


def command_of(client: ClientKind) -> list[str] | None:
    """Return the program of a client. None where this machine does not have it."""
    if client in (PYTHON, PYTHON_LEGACY):
        return [sys.executable, str(HERE / "era_client.py")]
    if client is PYTHON_OLDER:
        python = os.environ.get("DYNAMIC_MCP_TEST_MCP1_PYTHON")
        return [python, str(HERE / "era_older_client.py")] if python else None
    package = "sdk" if client is TYPESCRIPT_OLDER else "client"
    node = os.environ.get("DYNAMIC_MCP_TEST_NODE") or shutil.which("node")
    modules = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE_MODULES", "nowhere"), "@modelcontextprotocol", package)
    return [node, str(HERE / "era_client.mjs")] if node and modules.is_dir() else None


def direct(client: ClientKind, servers: Servers, eras: Sequence[str] = ERAS) -> list[Connection]:
    """Return the journeys without the proxy."""
    return [
        Connection(
            servers.targets[era], {Cell(client, "", "", era, servers.transport): words_for(era, me_of(client, era))}
        )
        for era in eras
    ]


def through_http(client: ClientKind, servers: Servers, url: str, way: str) -> list[Connection]:
    """Return the journeys through a proxy over HTTP."""
    return _through(client, servers, "http", way, url, {era: f"{url}/{era}" for era in ERAS})


def through_stdio(client: ClientKind, servers: Servers, config: Path, way: str) -> list[Connection]:
    """Return the journeys through a proxy of the client's own."""
    alone = {era: [*OWN, "serve", str(config), "--only", era] for era in ERAS}
    return _through(client, servers, "stdio", way, [*OWN, str(config)], alone)


def _through(
    client: ClientKind, servers: Servers, over: str, way: str, target: Json, alone: Mapping[str, Json]
) -> list[Connection]:
    is_grouped = way == "grouped"
    walks = {
        Cell(client, over, way, era, servers.transport): words_for(
            era, me_of(client, over + way + era + servers.transport), group=era if is_grouped else ""
        )
        for era in servers.targets
    }
    if is_grouped:
        return [Connection(target, walks)]
    return [Connection(alone[cell.era], {cell: words}) for cell, words in walks.items()]


def me_of(client: ClientKind, journey: str) -> str:
    """Return what a client's user says, which nobody else says."""
    return f"{client.name}-{journey}".replace(" ", "-")


async def journeys(client: ClientKind, connections: Sequence[Connection], folder: Path) -> dict[Cell, Json]:
    """Run a client, and return the diaries of its journeys."""
    cells = {str(cell): cell for connection in connections for cell in connection.walks}
    plan = {
        "me": f"{client.name.replace(' ', '-')}",
        "mode": client.mode,
        "connections": [
            {"target": target, "walks": {str(cell): words for cell, words in walks.items()}}
            for target, walks in connections
        ],
    }
    file = folder / f"plan {abs(hash(tuple(cells)))}.json"
    file.write_text(json.dumps(plan))
    command = command_of(client)
    assert command is not None
    process = await asyncio.create_subprocess_exec(
        *command, str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 20
    )
    try:
        async with asyncio.timeout(RUNS_WITHIN_S):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode()
    return {cells[name]: diary for name, diary in json.loads(out).items()}


async def journeys_here(client: ClientKind, connections: Sequence[Connection]) -> dict[Cell, Json]:
    """Make the journeys of a client of the Python SDK in this process, and return their diaries."""
    diaries: dict[Cell, Json] = {}
    for target, walks in connections:
        cells = {str(cell): cell for cell in walks}
        connection = {"target": target, "walks": {str(cell): words for cell, words in walks.items()}}
        seen = await travel(connection, client.mode, client.name.replace(" ", "-"))
        diaries |= {cells[name]: diary for name, diary in seen.items()}
    return diaries


# --- what diaries have to be -------------------------------------------------------------------------------


class References:
    """What diaries say without a proxy; of a server of both eras, in each of them."""

    def __init__(self, diaries: Mapping[Cell, Json]) -> None:
        self._diaries = {(cell.era, diary["revision"]): diary for cell, diary in diaries.items()}

    def differences(self, cell: Cell, diary: Json) -> dict[str, tuple[Json, Json]]:
        """Return the steps that went another way than without the proxy: how, and how they should have."""
        revision = {"legacy": LEGACY, "modern": MODERN}.get(cell.era, cell.client.revision)
        expected = {**self._diaries[cell.era, revision], "revision": cell.client.revision}
        if cell.way == "grouped":
            # the proxy sets levels itself, so a legacy client hears a server that has no request for it
            expected["logged"] = self._diaries[cell.era, MODERN if cell.era == "dual" else revision]["logged"]
        if cell.client is PYTHON_OLDER:
            del expected["cancelled"]  # it tells no server that it has given up a call
        pairs = {step: (diary.get(step, diary.get("connected")), wanted) for step, wanted in expected.items()}
        return {step: pair for step, pair in pairs.items() if pair[0] != pair[1] and not all(map(_is_error, pair))}


def _is_error(outcome: Json) -> bool:
    """Tell whether a step failed; SDKs word errors differently."""
    return isinstance(outcome, str) and "Error: " in outcome


async def references_for(servers: Servers, folder: Path) -> References:
    """Make the journeys without the proxy, each server in each era that it speaks."""
    modern, legacy = await asyncio.gather(
        journeys(PYTHON, direct(PYTHON, servers, ("modern", "dual")), folder),
        journeys(PYTHON_LEGACY, direct(PYTHON_LEGACY, servers, ("legacy", "dual")), folder),
    )
    return References(modern | legacy)
