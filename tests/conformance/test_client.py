"""The official conformance suites' client scenarios, through the whole proxy.

They need npm's `@modelcontextprotocol/conformance` in the node_modules that DYNAMIC_MCP_TEST_CONFORMANCE (0.1) and
DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA (0.2) name, and the Node 24 that DYNAMIC_MCP_TEST_NODE names.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.client import client_command
from tests.conformance.peers import MODERN

pytestmark = pytest.mark.full
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))

_AUTH = [
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
]
_LEGACY = ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", *_AUTH]
_FIRST = [
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
]
_EXTENSIONS = [
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
]
_MODERN = [
    "tools_call",
    "request-metadata",
    *_AUTH,
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
]
# Scenarios whose servers are modern and take `initialize` nevertheless, so a legacy client's link is legacy there.
_GREETED = {"request-metadata", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers"}
# Extensions that this program does not have: tokens that are bound to a key (RFC 9449).
_WITHOUT = {"auth/dpop", "auth/dpop-nonce"}


class Suite(NamedTuple):
    """A version of the suite: where npm has put it, the options that choose a revision, and what of it is run.

    `client` is the revision of the proxy's client where that is another one.
    """

    variable: str
    options: tuple[str, ...]
    scenarios: list[str]
    client: str = ""

    @property
    def script(self) -> Path:
        """The suite's program."""
        modules = Path(os.environ.get(self.variable, "nowhere"))
        return modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    async def run(self, *args: str) -> tuple[int, str]:
        """Run the suite and return its exit code and its words."""
        self._require()
        process = await asyncio.create_subprocess_exec(
            *(str(NODE), str(self.script), *args),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 110)
        assert process.returncode is not None
        return process.returncode, output.decode()

    def _require(self) -> None:
        if not (self.script.is_file() and NODE.is_file()):
            pytest.skip(f"{self.variable} names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node")


_ALPHA = "DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA"
SUITES = {
    # only what 0.2 does not have at this revision: in the others 0.2 makes every check of 0.1, and more
    "0.1": Suite("DYNAMIC_MCP_TEST_CONFORMANCE", (), _FIRST),
    "0.2 at 2025-11-25": Suite(_ALPHA, ("--spec-version", "2025-11-25"), _LEGACY),
    "0.2 at 2026-07-28": Suite(_ALPHA, ("--spec-version", MODERN), _MODERN),
    "0.2 extensions": Suite(_ALPHA, (), _EXTENSIONS),
}
ACROSS = {
    "a modern client of legacy servers": SUITES["0.2 at 2025-11-25"]._replace(client=MODERN),
    "a legacy client of modern servers": SUITES["0.2 at 2026-07-28"]._replace(
        client="2025-11-25", scenarios=[each for each in _MODERN if each not in _GREETED]
    ),
}


def _all() -> Iterator[object]:
    for version, suite in (SUITES | ACROSS).items():
        for scenario in suite.scenarios:
            yield pytest.param(suite, scenario, id=f"{version} {scenario}")


@pytest.mark.parametrize(("suite", "scenario"), list(_all()))
async def test_a_scenario_passes_through_the_whole_proxy(suite: Suite, scenario: str, tmp_path: Path) -> None:
    async with client_command(suite.client) as command:
        run = ("--command", command, "--scenario", scenario, "--timeout", "90000", "-o", str(tmp_path))
        code, words = await suite.run("client", *run, *suite.options)

    assert code == 0, words
    assert re.search(r"Passed: [1-9]", words), words


async def test_all_scenarios_of_the_first_suite_are_run_in_one_of_the_versions() -> None:
    suite, newer = SUITES["0.1"], SUITES["0.2 at 2025-11-25"]
    _, words = await suite.run("list", "--client")

    assert set(re.findall(r"^  - (\S+)", words, re.MULTILINE)) == {*suite.scenarios, *newer.scenarios}


@pytest.mark.parametrize("version", [version for version in SUITES if " at " in version])
async def test_all_scenarios_that_a_revision_requires_are_run(version: str) -> None:
    suite = SUITES[version]
    _, words = await suite.run("list", "--requirements", suite.options[1])
    required, _, rest = words.partition("Client scenarios")[2].partition("Run and reported")

    assert re.findall(r"^  - (\S+)", required, re.MULTILINE) == suite.scenarios
    extensions = re.findall(r"^    - (auth/\S+) \[client\]", rest, re.MULTILINE)
    assert set(extensions) == {*_EXTENSIONS, *_WITHOUT}
