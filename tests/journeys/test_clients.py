"""The clients that people really use, in front of the proxy: the same journey in each, and the same diary of it.

The Python SDK is installed with the tests. An older one is used where $DYNAMIC_MCP_TEST_MCP1_PYTHON is a Python that
has `mcp<2`, the TypeScript SDK where Node is there and `@modelcontextprotocol/sdk` in $DYNAMIC_MCP_TEST_NODE_MODULES.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import (
    TextContent,
)

from tests import windows
from tests.journeys.diary import (
    DIARY,
    Person,
    call,
    diary_of_person,
    diary_printed_by,
    first_text,
    two_servers,
    write_diary,
)
from tests.program import BOUND_S, window_command

HERE = Path(__file__).parent
TYPESCRIPT_CLIENT = str(HERE / "typescript_client.mjs")
# What the newest revision of the protocol no longer has is what these servers and this proxy speak.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with two servers that can do all that the protocol has."""
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": two_servers()}))
    return file


# --- the Python SDK --------------------------------------------------------------------------------------------


@asynccontextmanager
async def client_of(person: Person, config: Path, mode: str = "auto") -> AsyncIterator[Client]:
    """Connect the SDK's client to the proxy."""
    passed = ("PATH", "PYTHONPATH", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
    environment = {name: os.environ[name] for name in (*passed, *windows.OWN_PLACES) if name in os.environ}
    command, *args = window_command(str(config))
    server = StdioServerParameters(command=command, args=args, env=environment)
    async with (
        asyncio.timeout(BOUND_S),
        person.client(server, mode) as client,
    ):
        yield client


@pytest.mark.both_hosts
@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_python_sdk_uses_all_that_two_servers_offer(config: Path, mode: str, revision: str) -> None:
    person = Person()
    async with client_of(person, config, mode) as client:
        assert await write_diary(client, person) == DIARY
        assert client.protocol_version == revision


@pytest.mark.full
async def test_the_python_sdk_uses_all_that_everything_offers(tmp_path: Path) -> None:
    command = shutil.which("mcp-server-everything")
    if command is None:
        pytest.skip("the command `mcp-server-everything` is not on the PATH of this machine")
    config, person = tmp_path / "c.json", Person()
    config.write_text(json.dumps({"mcpServers": {"everything": {"command": command, "args": ["stdio"]}}}))
    async with client_of(person, config) as client:
        asked = await call(client, "everything", "trigger-elicitation-request")
        assert any(
            isinstance(block, TextContent) and "- Name: for everything" in block.text for block in asked.content
        )
        sampled = await call(client, "everything", "trigger-sampling-request", prompt="p")
        assert "sampled for Resource" in first_text(sampled)
        assert "file:///home" in first_text(await call(client, "everything", "get-roots-list"))
        assert (await person.logged.get()).logger == "everything/everything-server"
        weather = await call(client, "everything", "get-structured-content", location="Chicago")
        assert weather.structured_content == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
        steps = {
            "group": "everything",
            "name": "trigger-long-running-operation",
            "args": {"duration": 0.1, "steps": 2},
        }
        await client.call_tool("call_dynamic_tool", steps, progress_callback=person.report)
        assert [await person.progress.get(), await person.progress.get()] == [1, 2]
        uri = (await client.list_resources()).resources[0].uri
        assert (await client.read_resource(uri)).contents[0].uri == uri
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert "everything__args-prompt" in names
        prompt = await client.get_prompt("everything__args-prompt", {"city": "Köln"})
        assert "Köln" in prompt.model_dump_json()


# --- clients that are programs of their own -----------------------------------------------------------------------


@pytest.mark.full
async def test_an_older_python_sdk_uses_all_that_two_servers_offer(config: Path) -> None:
    python = os.environ.get("DYNAMIC_MCP_TEST_MCP1_PYTHON")
    if not python:
        pytest.skip("DYNAMIC_MCP_TEST_MCP1_PYTHON does not name a Python that has `mcp<2`")
    assert await diary_printed_by(python, str(HERE / "older_client.py"), *window_command(str(config))) == DIARY


@pytest.mark.full
async def test_the_typescript_sdk_uses_all_that_two_servers_offer(config: Path, typescript: list[str]) -> None:
    assert await diary_printed_by(*typescript, TYPESCRIPT_CLIENT, *window_command(str(config))) == DIARY


@pytest.mark.full
async def test_two_clients_at_once_get_what_is_theirs_and_nothing_else(config: Path, typescript: list[str]) -> None:
    person = Person("python ")
    async with client_of(person, config, "legacy") as client:
        ours, theirs = await asyncio.gather(
            write_diary(client, person),
            diary_printed_by(*typescript, TYPESCRIPT_CLIENT, *window_command(str(config)), person="typescript "),
        )
    assert ours == diary_of_person("python ")
    assert theirs == diary_of_person("typescript ")
    assert (person.progress.qsize(), person.logged.qsize(), person.updated.qsize()) == (0, 0, 0)
