"""The official conformance suites' server scenarios, through the whole program over HTTP.

They need npm's `@modelcontextprotocol/conformance` in the node_modules that DYNAMIC_MCP_TEST_CONFORMANCE (0.1) and
DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA (0.2) name, and the Node 24 that DYNAMIC_MCP_TEST_NODE names. The server behind the
program is `tests/upstreams/conformance.py`. The list of expected failures can only shrink.
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

HERE = Path(__file__).parent
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))
FIXTURE = (sys.executable, str(UPSTREAMS / "conformance.py"))
EXPECTED = set(YAML(typ="safe").load((HERE / "expected-failures-grouped.yml").read_text())["server"])
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
        """Run the scenarios against this server, and return each with the checks that it did not pass."""
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
        return {name: [each for each in checks if each["status"] in PROBLEMS] for name, checks in found.items()}


def _scenario(file: Path) -> str:
    """Return the scenario with these checks: the folder is `server-SCENARIO-TIME`."""
    return re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)


def _failed(found: dict[str, list[Json]]) -> set[str]:
    """Return the scenarios that count as failed."""
    return {name for name, checks in found.items() if any(each["status"] == "FAILURE" for each in checks)}


SUITES = {
    "0.1": Suite("DYNAMIC_MCP_TEST_CONFORMANCE", ("--suite", "all"), 32),
    "0.2": Suite("DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA", ("--requirements", "2025-11-25"), 33),
}


@pytest.fixture(params=list(SUITES))
def suite(request: pytest.FixtureRequest) -> Suite:
    """Each version of the suite that is there."""
    found = SUITES[request.param]
    if not (found.script.is_file() and NODE.is_file()):
        pytest.skip(f"{found.variable} names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node")
    return found


@contextlib.asynccontextmanager
async def _upstream(transport: str) -> AsyncIterator[Json]:
    """Hand out the config of the suite's server, which listens where it is over HTTP."""
    if transport == "stdio":
        yield {"command": FIXTURE[0], "args": [*FIXTURE[1:]]}
        return
    port = free_port()
    async with listening(*FIXTURE, str(port), port=port):
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


async def test_the_suite_finds_nothing_in_its_server_itself(suite: Suite, tmp_path: Path) -> None:
    async with _upstream("http") as upstream:
        assert _failed(await suite.run(upstream["url"], tmp_path)) == set()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_group_alone_is_without_fault(suite: Suite, transport: str, tmp_path: Path) -> None:
    async with _upstream(transport) as upstream, serving_http(tmp_path, {"up": upstream}) as program:
        found = await suite.run(program.url_of("up"), tmp_path)

    assert {name: checks for name, checks in found.items() if checks} == {}


async def test_all_groups_together_are_conformant_but_for_what_they_do_not_list(suite: Suite, tmp_path: Path) -> None:
    async with _upstream("stdio") as upstream, serving_http(tmp_path, {"up": upstream}) as program:
        assert _failed(await suite.run(program.url, tmp_path)) == EXPECTED
