"""The official conformance suites' server scenarios, through the whole program over HTTP.

They need npm's `@modelcontextprotocol/conformance` in the node_modules that DYNAMIC_MCP_TEST_CONFORMANCE (0.1) and
DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA (0.2) name, and the Node 24 that DYNAMIC_MCP_TEST_NODE names. A suite is a client
of one era, legacy or modern, and so is the server behind the program: all four combinations are run. The lists of
expected failures can only shrink.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from tests.http_program import serving_http
from tests.journeys.remote_server import free_port, listening
from tests.program import UPSTREAMS, Json

pytestmark = pytest.mark.full
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))
FIXTURES = {
    "legacy": UPSTREAMS / "conformance.py",
    "modern": UPSTREAMS / "conformance_modern.py",
    "quick": UPSTREAMS / "conformance_legacy.py",  # legacy too, over stdio
}
EXPECTED: dict[str, list[str] | None] = YAML(typ="safe").load(
    Path(__file__).with_name("expected-failures-server.yml").read_text()
)
PROBLEMS = {"FAILURE", "WARNING"}


class Suite(NamedTuple):
    """A version of the suite: where npm has put it, what of it is run, and how many scenarios that is."""

    variable: str
    selection: tuple[str, ...]
    scenarios: int

    @property
    def script(self) -> Path:
        """The suite's program."""
        modules = Path(os.environ.get(self.variable, "nowhere"))
        return modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    async def run(self, url: str, folder: Path) -> dict[str, list[Json]]:
        """Run the scenarios against this server, and return the checks that it did not pass, by scenario."""
        results = folder / "results"
        process = await asyncio.create_subprocess_exec(
            *(str(NODE), str(self.script), "server", "--url", url, *self.selection, "-o", str(results)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 100)
        print(output.decode())
        found = {_scenario(file): json.loads(file.read_text()) for file in results.glob("server-*/checks.json")}
        assert len(found) == self.scenarios
        problems = {name: [each for each in checks if each["status"] in PROBLEMS] for name, checks in found.items()}
        return {name: checks for name, checks in problems.items() if checks}


def _scenario(file: Path) -> str:
    """Return the scenario with these checks: the folder is `server-SCENARIO-TIME`."""
    return re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)


# What runs, by the era of the client: the alpha also runs what a revision does not require, such as its extensions.
SUITES = {
    "legacy-0.1": Suite("DYNAMIC_MCP_TEST_CONFORMANCE", ("--suite", "all"), 32),
    "legacy-0.2": Suite("DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA", ("--requirements", "2025-11-25"), 33),
    "modern-0.2": Suite("DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA", ("--requirements", "2026-07-28"), 50),
}
# In each of the scenarios of 0.1, 0.2 makes every check of 0.1, and more: so the older one is run in one test alone.
NEWER = [name for name in SUITES if name != "legacy-0.1"]


def find_suite(name: str) -> Suite:
    found = SUITES[name]
    if not (found.script.is_file() and NODE.is_file()):
        pytest.skip(f"{found.variable} names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node")
    return found


def _era(suite: str) -> str:
    return suite.partition("-")[0]


@contextlib.asynccontextmanager
async def upstream_of(fixture: str, transport: str) -> AsyncIterator[Json]:
    """Hand out the config of one of the suites' servers, which listens where it is over HTTP."""
    command = (sys.executable, str(FIXTURES[fixture]))
    if transport == "stdio":
        yield {"command": command[0], "args": [*command[1:]]}
        return
    port = free_port()
    async with listening(*command, str(port), port=port):
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


@pytest.mark.parametrize("name", NEWER)
async def test_the_suite_finds_nothing_in_its_server_itself(name: str, tmp_path: Path) -> None:
    suite = find_suite(name)
    async with upstream_of(_era(name), "http") as upstream:
        assert _failed(await suite.run(upstream["url"], tmp_path)) == set()


@pytest.mark.parametrize(
    ("name", "transport"), [("legacy-0.1", "http"), *((name, over) for name in NEWER for over in ("stdio", "http"))]
)
async def test_a_group_alone_is_without_fault_where_client_and_server_are_of_one_era(
    name: str, transport: str, tmp_path: Path
) -> None:
    suite = find_suite(name)
    async with upstream_of(_era(name), transport) as upstream, serving_http(tmp_path, {"up": upstream}) as program:
        assert await suite.run(program.url_of("up"), tmp_path) == {}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("name", NEWER)
async def test_a_group_alone_bridges_the_eras_but_for_what_one_of_them_does_not_have(
    name: str, transport: str, tmp_path: Path
) -> None:
    suite, client = find_suite(name), _era(name)
    server = "legacy" if client == "modern" else "modern"
    fixture = "quick" if (server, transport) == ("legacy", "stdio") else server
    async with upstream_of(fixture, transport) as upstream, serving_http(tmp_path, {"up": upstream}) as program:
        found = await suite.run(program.url_of("up"), tmp_path)

    assert set(found) == set(EXPECTED[f"{client}-client-{server}-server"] or ())


@pytest.mark.parametrize("name", NEWER)
async def test_all_groups_together_are_conformant_but_for_what_they_do_not_list(name: str, tmp_path: Path) -> None:
    suite, era = find_suite(name), _era(name)
    async with upstream_of(era, "stdio") as upstream, serving_http(tmp_path, {"up": upstream}) as program:
        assert _failed(await suite.run(program.url, tmp_path)) == set(EXPECTED[f"{era}-grouped"] or ())


def _failed(found: dict[str, list[Json]]) -> set[str]:
    """Return the scenarios that count as failed, as a warning does not."""
    return {name for name, checks in found.items() if any(each["status"] == "FAILURE" for each in checks)}
