"""A person allows calls in front of the whole program: by the form of the Python SDK's client, and by the command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from tests import own_process
from tests.hosting_fixtures import _hosting, pytest_generate_tests
from tests.own_process import DEVNULL
from tests.program import BOUND_S, UPSTREAMS, window_command

__all__ = ["_hosting", "pytest_generate_tests"]
Json = Any  # whatever JSON a test writes down
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
MODES = ("auto", "legacy")


def write_config(folder: Path, **approval: Json) -> Path:
    """Write a config with a server whose tool wants a person asked."""
    server = {"command": sys.executable, "args": ["-I", "-S", str(UPSTREAMS / "tiny.py")], "approve": ["ec*"]}
    file = folder / "dynamic-mcp.json"
    notify = {"notify": {"desktop": False}}
    file.write_text(json.dumps({"mcpServers": {"tiny": server}, "settings": {"approval": {**notify, **approval}}}))
    return file


@asynccontextmanager
async def client_of(config: Path, mode: str, elicit: ElicitationFnT | None = None) -> AsyncIterator[Client]:
    """Connect the SDK's client to the program."""
    command, *args = window_command(str(config))
    server = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    async with (
        asyncio.timeout(BOUND_S),
        Client(server, mode=mode, elicitation_callback=elicit) as client,
    ):
        yield client


async def echo(client: Client, text: str) -> CallToolResult:
    """Call the tool."""
    return await client.call_tool("call_dynamic_tool", {"group": "tiny", "name": "echo", "args": {"text": text}})


def text_of(result: CallToolResult) -> str:
    """Return the text of a result."""
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def approve(*args: str) -> Json:
    """Run `dynamic-mcp approve` and return what it prints."""
    process = await own_process.start("approve", *args, "--json", stdin=DEVNULL)
    printed, _ = await process.communicate()
    return json.loads(printed) if printed.strip() else None


async def find_pending() -> dict[str, Json]:
    """Wait until a call waits in the queue."""
    async with asyncio.timeout(BOUND_S):
        while not (found := (await approve("list"))):
            pass
    [pending] = found["approvals"] if isinstance(found, dict) else found
    return dict(pending)


# Longer than an answer takes that no person has given, which would not count: nobody reads a form faster.
READ_S = 1.2


class Person:
    """Reads the forms of a client, and decides in one after the other."""

    def __init__(self, *decisions: str) -> None:
        self.messages: list[str] = []
        self._decisions = iter(decisions)

    async def elicit(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        self.messages.append(params.message)
        await asyncio.sleep(READ_S)
        return ElicitResult(action="accept", content={"decision": next(self._decisions)})


@pytest.mark.parametrize("mode", MODES)
async def test_a_person_decides_in_the_form_of_the_python_sdk(tmp_path: Path, mode: str) -> None:
    person = Person("once", "deny", "session")
    async with client_of(write_config(tmp_path, channels=["client"]), mode, person.elicit) as client:
        assert json.loads(text_of(await echo(client, "one"))) == {"text": "one"}
        denied = await echo(client, "two")
        assert denied.is_error
        assert "the user denied it" in text_of(denied)
        assert json.loads(text_of(await echo(client, "three"))) == {"text": "three"}
        assert json.loads(text_of(await echo(client, "four"))) == {"text": "four"}
    assert len(person.messages) == 3
    assert "`echo` of `tiny`" in person.messages[0]


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_of_a_client_that_cannot_ask_is_allowed_by_the_command(tmp_path: Path, mode: str) -> None:
    async with client_of(write_config(tmp_path), mode) as client:
        calling = asyncio.create_task(echo(client, "one"))
        pending = await find_pending()
        await approve("allow", pending["id"], "--yes")
        assert json.loads(text_of(await calling)) == {"text": "one"}


async def test_a_call_whose_time_is_up_is_made_again_once_it_is_allowed(tmp_path: Path) -> None:
    async with client_of(write_config(tmp_path, hold="0.1s"), "auto") as client:
        waiting = await echo(client, "one")
        assert waiting.is_error
        assert waiting.meta is not None
        status = waiting.meta["dynamic-mcp/approval"]
        assert status["status"] == "pending"
        assert status["id"] in text_of(waiting)
        await approve("allow", status["id"], "--yes")
        assert json.loads(text_of(await echo(client, "one"))) == {"text": "one"}
        assert (await echo(client, "one")).is_error
