"""The official conformance suite's scenarios for authorization servers, against ours in the whole program.

They need npm's `@modelcontextprotocol/conformance` 0.2 in the node_modules that DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA
names, and the Node 24 that DYNAMIC_MCP_TEST_NODE names.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.headless_browser import HeadlessBrowser
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S, Json
from tests.web import web_client

pytestmark = pytest.mark.full
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))
VARIABLE = "DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA"
SCENARIOS = 2


@pytest.fixture
def suite() -> Path:
    """The suite's program."""
    script = Path(os.environ.get(VARIABLE, "nowhere"), "@modelcontextprotocol", "conformance", "dist", "index.js")
    if not (script.is_file() and NODE.is_file()):
        pytest.skip(f"{VARIABLE} names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node")
    return script


async def _log_in(output: asyncio.StreamReader, words: list[str]) -> None:
    """Log in wherever the suite asks for it, as its user would."""
    async for line in output:
        words.append(line.decode())
        if "/authorize?" in words[-1] and words[-1].startswith("http"):
            back = await HeadlessBrowser("ann").visit(words[-1].strip())
            async with web_client(trust_env=False) as web:
                assert (await web.get(back)).status_code == 200


async def test_our_authorization_server_is_without_fault(suite: Path, tmp_path: Path) -> None:
    port, callback = free_port(), free_port()
    issuer = f"http://127.0.0.1:{port}"
    auth: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    settings = {"http": {"public_url": f"{issuer}/mcp", "auth": auth}}
    async with asyncio.timeout(BOUND_S), serving_http(tmp_path, {}, port=port, settings=settings):
        async with web_client(trust_env=False) as web:
            redirects = {"redirect_uris": [f"http://127.0.0.1:{callback}/callback"]}
            client = (await web.post(f"{issuer}/register", json=redirects)).json()["client_id"]
        process = await asyncio.create_subprocess_exec(
            *(str(NODE), str(suite), "authorization", "--url", issuer, "--client-id", client, "-p", str(callback)),
            *("--resource", f"{issuer}/mcp", "-o", str(tmp_path / "results")),
            stdout=asyncio.subprocess.PIPE,
        )
        words: list[str] = []
        try:
            assert process.stdout is not None
            await _log_in(process.stdout, words)
            assert await process.wait() == 0
        finally:
            print("".join(words))
            if process.returncode is None:
                process.kill()
                await process.wait()
    checks = [json.loads(file.read_text()) for file in (tmp_path / "results").glob("*/checks.json")]
    assert len(checks) == SCENARIOS
    assert {check["status"] for each in checks for check in each} == {"SUCCESS"}
