"""The clients that people really use, over HTTP: the journey of test_clients.py, and what only HTTP has.

The Python SDK is installed with the tests. An older one is used where $DYNAMIC_MCP_TEST_MCP1_PYTHON is a Python that
has `mcp<2`, the TypeScript SDK where Node is there and `@modelcontextprotocol/sdk` in $DYNAMIC_MCP_TEST_NODE_MODULES,
and the Inspector and mcporter where $DYNAMIC_MCP_TEST_CLIENTS has them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.types import TextContent, ToolListChangedNotification

from tests.http_program import HttpProgram, serving_http
from tests.journeys.diary import DIARY, Person, diary_of_person, diary_printed_by, two_servers, write_diary
from tests.journeys.relay import relayed
from tests.own_process import OWN
from tests.program import BOUND_S, full
from tests.web import web_client

HERE = Path(__file__).parent
NEW_TOOL = {"name": "new", "inputSchema": {"type": "object"}}
pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
    pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window"),
]


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[HttpProgram]:
    """The program, with two servers that can do all that the protocol has."""
    async with serving_http(tmp_path, two_servers()) as program:
        yield program


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[HttpProgram]:
    """The program, with one such server."""
    async with serving_http(tmp_path, {"a": full("--name", "a")}) as program:
        yield program


# --- the Python SDK --------------------------------------------------------------------------------------------


async def test_the_python_sdk_uses_all_that_two_servers_offer(program: HttpProgram) -> None:
    person = Person()
    async with asyncio.timeout(BOUND_S):
        async with person.client(program.url, "legacy") as client:
            assert await write_diary(client, person) == DIARY
            assert client.protocol_version == "2025-11-25"
            assert await program.count_sessions() == 1
        assert await program.count_sessions() == 0


async def test_the_python_sdk_uses_all_of_it_without_a_session(program: HttpProgram) -> None:
    person = Person()
    async with asyncio.timeout(BOUND_S), person.client(program.url) as client:
        assert await write_diary(client, person) == DIARY
        assert client.protocol_version == "2026-07-28"
        assert await program.count_sessions() == 0


async def test_the_python_sdk_uses_all_of_it_over_the_older_transport(program: HttpProgram) -> None:
    person = Person()
    async with asyncio.timeout(BOUND_S), person.client(sse_client(f"{program.origin}/sse")) as client:
        assert await write_diary(client, person) == DIARY


async def test_the_python_sdk_hears_of_a_list_that_has_changed(one: HttpProgram) -> None:
    changed = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    async with (
        asyncio.timeout(BOUND_S),
        Client(one.url_of("a"), message_handler=hear) as client,
        client.listen(tools_list_changed=True),
    ):
        await client.call_tool("add", {"list": "tools", "entry": NEW_TOOL})
        while "new" not in [tool.name for tool in (await client.list_tools()).tools]:
            await changed.wait()
            changed.clear()


async def test_a_call_that_the_python_sdk_gives_up_is_cancelled(one: HttpProgram) -> None:
    person = Person()
    async with asyncio.timeout(BOUND_S), Client(one.url_of("a")) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {"key": "k"}, progress_callback=person.report))
        await person.progress.get()
        waiting.cancel()
        await asyncio.wait([waiting])
        while "notifications/cancelled" not in await _text(client, "record"):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.01)
        assert await _text(client, "release", key="k") == "it was cancelled"


async def test_the_python_sdk_gets_what_it_missed_while_its_connections_were_cut(one: HttpProgram) -> None:
    person = Person()
    async with (
        asyncio.timeout(BOUND_S),
        relayed(one.origin) as origin,
        Client(f"{origin}/mcp/a", mode="legacy") as client,
        web_client() as somebody,
    ):
        waiting = asyncio.create_task(client.call_tool("wait", {"key": "k"}, progress_callback=person.report))
        assert await person.progress.get() == 0
        await somebody.get(f"{origin}/cut")
        await _text(client, "step", key="k", step=2)
        await _text(client, "release", key="k")
        content = (await waiting).content
        assert [block.text for block in content if isinstance(block, TextContent)] == ["waited"]
        assert await person.progress.get() == 2


async def _text(client: Client, tool: str, **arguments: object) -> str:
    block = (await client.call_tool(tool, dict(arguments))).content[0]
    assert isinstance(block, TextContent)
    return block.text


# --- the other SDKs --------------------------------------------------------------------------------------------


@pytest.fixture
def older_client() -> list[str]:
    """The command of the client with the older SDK."""
    python = os.environ.get("DYNAMIC_MCP_TEST_MCP1_PYTHON")
    if not python:
        pytest.skip("DYNAMIC_MCP_TEST_MCP1_PYTHON does not name a Python that has `mcp<2`")
    return [python, str(HERE / "older_client.py")]


@pytest.mark.full
@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_an_older_python_sdk_uses_all_that_two_servers_offer(
    program: HttpProgram, older_client: list[str], path: str
) -> None:
    assert await diary_printed_by(*older_client, f"{program.origin}/{path}") == DIARY
    assert await program.count_sessions() == 0


@pytest.mark.full
@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_the_typescript_sdk_uses_all_that_two_servers_offer(
    program: HttpProgram, typescript: list[str], path: str
) -> None:
    client = str(HERE / "typescript_client.mjs")
    assert await diary_printed_by(*typescript, client, f"{program.origin}/{path}") == DIARY
    assert await program.count_sessions() == 0


@pytest.mark.full
async def test_the_typescript_sdk_misses_nothing_while_its_connections_are_cut(
    one: HttpProgram, typescript: list[str]
) -> None:
    async with relayed(one.origin) as origin:
        seen = await diary_printed_by(*typescript, str(HERE / "typescript_streams.mjs"), f"{origin}/mcp/a")

    assert seen == {
        "added": True,
        "cancelled": "cancelled",
        "released": "it was cancelled",
        "resumed": "waited",
        "progress": [0, 2],
        "ended": 0,
    }


@pytest.mark.full
async def test_clients_at_once_get_what_is_theirs_and_nothing_else(
    program: HttpProgram, typescript: list[str]
) -> None:
    person = Person("python ")
    client = str(HERE / "typescript_client.mjs")
    async with asyncio.timeout(BOUND_S), person.client(program.url, "legacy") as ours:
        written, printed, over_older = await asyncio.gather(
            write_diary(ours, person),
            diary_printed_by(*typescript, client, program.url, person="typescript "),
            diary_printed_by(*typescript, client, f"{program.origin}/sse", person="older "),
        )
    assert written == diary_of_person("python ")
    assert printed == diary_of_person("typescript ")
    assert over_older == diary_of_person("older ")
    assert (person.progress.qsize(), person.logged.qsize(), person.updated.qsize()) == (0, 0, 0)


@pytest.mark.full
async def test_a_client_that_speaks_only_stdio_uses_all_of_it_through_connect(
    program: HttpProgram, typescript: list[str]
) -> None:
    client = str(HERE / "typescript_client.mjs")
    assert await diary_printed_by(*typescript, client, *OWN, "connect", program.url) == DIARY
    assert await program.count_sessions() == 0


# --- command lines ---------------------------------------------------------------------------------------------


def _command(name: str) -> str:
    """Return the program of a client from npm."""
    program = Path(os.environ.get("DYNAMIC_MCP_TEST_CLIENTS", "nowhere"), ".bin", name)
    if not program.exists():
        pytest.skip(f"DYNAMIC_MCP_TEST_CLIENTS names no node_modules with `{name}`")
    return str(program)


async def _words_of(*command: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
async def test_the_inspector_lists_and_calls(one: HttpProgram) -> None:
    inspector = (_command("mcp-inspector"), "--cli", one.url_of("a"), "--transport", "http", "--method")

    tools = json.loads(await _words_of(*inspector, "tools/list"))["tools"]
    said = json.loads(await _words_of(*inspector, "tools/call", "--tool-name", "echo", "--tool-arg", "text=é"))
    read = json.loads(await _words_of(*inspector, "resources/read", "--uri", "full://text"))

    assert {"echo", "wait"} <= {tool["name"] for tool in tools}
    assert said["content"] == [{"type": "text", "text": "é"}]
    assert read["contents"][0]["text"] == "téxt é of a"


@pytest.mark.full
async def test_mcporter_lists_and_calls(one: HttpProgram) -> None:
    mcporter, server = _command("mcporter"), ("--http-url", one.url_of("a"), "--allow-http", "--name", "up")

    listed = json.loads(await _words_of(mcporter, "list", *server, "--json"))
    said = await _words_of(mcporter, "call", *server, "--tool", "echo", "--args", '{"text":"é"}')

    assert {"echo", "wait"} <= {tool["name"] for tool in listed["tools"]}
    assert said.strip() == "é"
