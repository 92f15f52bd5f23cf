"""Let every client use every server, through the proxy in every way and without it, and print what came of it.

    python -m tests.journeys.era_report

The clients are where the tests find them; see test_eras.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.http_program import serving_http
from tests.journeys.era_cells import (
    CLIENTS,
    Cell,
    ClientKind,
    Connection,
    command_of,
    direct,
    journeys,
    references_for,
    through_http,
    through_stdio,
)
from tests.journeys.era_servers import ERAS, Servers, servers_over
from tests.program import Json

WAYS = tuple((over, way) for over in ("stdio", "http") for way in ("grouped", "alone"))
HEAD = "| client | server over | way in | " + " | ".join(f"{era} server" for era in ERAS) + " |"


async def diaries_of(client: ClientKind, servers: Servers, folder: Path) -> dict[Cell, Json]:
    """Return all diaries of a client before these servers."""
    found = await journeys(client, direct(client, servers), folder)
    config = servers.config()
    async with serving_http(folder, config) as program:
        connections: list[Connection] = []
        for over, way in WAYS:
            if over == "http":
                connections += through_http(client, servers, program.url, way)
            else:
                connections += through_stdio(client, servers, folder / "dynamic-mcp.json", way)
        return found | await journeys(client, connections, folder)


async def main() -> None:
    """Run every cell, a client after the other."""
    print(HEAD)
    print("|---" * (HEAD.count("|") - 1) + "|")
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            os.environ[f"XDG_{name}_HOME"] = f"{home}/{name.lower()}"
        for transport in ("stdio", "http"):
            async with servers_over(transport) as servers:
                references = await references_for(servers, Path(home))
                for client in filter(command_of, CLIENTS):
                    diaries = await diaries_of(client, servers, Path(home))
                    shown = {
                        cell: _shown(diary, references.differences(cell, diary)) for cell, diary in diaries.items()
                    }
                    _print(client, transport, shown)


def _shown(diary: Json, differences: dict[str, tuple[Json, Json]]) -> str:
    if "connected" in diary:
        return "cannot connect"
    if "revision" in differences and len(differences) == 1:
        differences = {}
    failed = [step for step, outcome in diary.items() if isinstance(outcome, str) and "Error: " in outcome]
    if differences:
        return "differs: " + ", ".join(
            f"{step} {got!r}, not {wanted!r}" for step, (got, wanted) in differences.items()
        )
    return f"all but {', '.join(failed)}" if failed else "all"


def _print(client: ClientKind, transport: str, shown: dict[Cell, str]) -> None:
    for over, way in (("", ""), *WAYS):
        row = [shown[Cell(client, over, way, era, transport)] for era in ERAS]
        print(f"| {client.name} | {transport} | {over or 'no proxy'} {way} | {' | '.join(row)} |")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
