"""The official conformance suite's client scenarios, through the whole proxy.

They need npm's `@modelcontextprotocol/conformance` in the node_modules that DYNAMIC_MCP_TEST_CONFORMANCE names, and
the Node 24 that DYNAMIC_MCP_TEST_NODE names. The list of expected failures can only shrink.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
MODULES = Path(os.environ.get("DYNAMIC_MCP_TEST_CONFORMANCE", "nowhere"))
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
EXPECTED: list[str] = YAML(typ="safe").load(Path(__file__).with_name("expected-failures.yml").read_text())["client"]
SCENARIOS = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
]

pytestmark = pytest.mark.skipif(
    not (SUITE.is_file() and NODE.is_file()),
    reason="DYNAMIC_MCP_TEST_CONFORMANCE names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node",
)


def marked() -> Iterator[object]:
    for name in SCENARIOS:
        marks = [pytest.mark.xfail(strict=True, reason="an expected failure")] if name in EXPECTED else []
        yield pytest.param(name, marks=marks, id=name)


async def suite(*args: str) -> tuple[int, str]:
    """Run the suite and return its exit code and its words."""
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(SUITE), *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 110)
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("scenario", list(marked()))
async def test_a_scenario_passes_through_the_whole_proxy(scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tests.conformance.client"
    run = ("client", "--command", command, "--scenario", scenario, "--timeout", "90000", "-o", str(tmp_path))

    code, words = await suite(*run)

    assert code == 0, words
    assert re.search(r"Passed: [1-9]", words), words


async def test_all_scenarios_of_the_suite_are_run() -> None:
    _, words = await suite("list", "--client")

    assert set(re.findall(r"^  - (\S+)", words, re.MULTILINE)) == set(SCENARIOS)
    assert set(EXPECTED) <= set(SCENARIOS)
