"""The clients that people really use, in front of the proxy: the same journey in each, and the same diary of it.

The Python SDK is installed with the tests. An older one is used where $DYNAMIC_MCP_TEST_MCP1_PYTHON is a Python that
has `mcp<2`, the TypeScript SDK where Node is there and `@modelcontextprotocol/sdk` in $DYNAMIC_MCP_TEST_NODE_MODULES.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
    TextResourceContents,
)
from pydantic import FileUrl

from tests.program import BOUND_S, Json, full, window_command

HERE = Path(__file__).parent
# What the newest revision of the protocol no longer has is what these servers and this proxy speak.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

TEXT_OF_B = "dynamic-mcp://b/full%3A%2F%2Ftext"
DIARY: Json = {
    "tools": ["get_dynamic_tools", "call_dynamic_tool"],
    "shown": ["rich", "plain", "fail"],
    "content": ["text", "image", "audio", "resource_link", "resource"],
    "structured": {"by": "b"},
    "progress": [0, 2],
    "elicited": {"a": "for a", "b": "for b"},
    "sampled": "sampled for b",
    "roots": "file:///home",
    "logged": ["a/http", "error"],
    "resources": ["full://text", TEXT_OF_B],
    "read": ["téxt é of a", "téxt é of b", "AAEC"],
    "templates": ["full://item/{id}", "full://a/files{/path*}{?rev}"],
    "updated": TEXT_OF_B,
    "prompts": ["a__greet", "b__greet"],
    "prompt": ["text", "image", "audio", "resource"],
    "completed": ["b", "greet K"],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with two servers that can do all that the protocol has."""
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: full("--name", name) for name in ("a", "b")}}))
    return file


# --- the Python SDK --------------------------------------------------------------------------------------------


class Person:
    """Whoever sits in front of a client: answers what servers ask, and hears what they say."""

    def __init__(self) -> None:
        self.progress: asyncio.Queue[float] = asyncio.Queue()
        self.logged: asyncio.Queue[LoggingMessageNotificationParams] = asyncio.Queue()
        self.updated: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        words = f"for {params.message.split()[0]}"
        return ElicitResult(action="accept", content={"answer": words, "name": words})

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        content = params.messages[0].content
        assert isinstance(content, TextContent)
        words = TextContent(type="text", text=f"sampled for {content.text.split()[0]}")
        return CreateMessageResult(role="assistant", model="m", content=words)

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home"), name="home")])

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logged.put_nowait(params)

    async def hear(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.updated.put_nowait(message.params.uri)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.put_nowait(progress)


@asynccontextmanager
async def client_of(person: Person, config: Path) -> AsyncIterator[Client]:
    """Connect the SDK's client to the proxy."""
    passed = ("PATH", "PYTHONPATH", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
    environment = {name: os.environ[name] for name in passed if name in os.environ}
    command, *args = window_command(str(config))
    server = StdioServerParameters(command=command, args=args, env=environment)
    async with (
        asyncio.timeout(BOUND_S),
        Client(
            server,
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.list_roots,
            logging_callback=person.log,
            message_handler=person.hear,
        ) as client,
    ):
        yield client


async def _call(client: Client, group: str, name: str, **args: Json) -> CallToolResult:
    return await client.call_tool("call_dynamic_tool", {"group": group, "name": name, "args": args})


def _text(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


async def _asked(client: Client, group: str, tool: str) -> Json:
    """Return what a server got when it asked the client for something."""
    return json.loads(_text(await _call(client, group, tool)))["result"]


async def _diary(client: Client, person: Person) -> Json:
    shown = await client.call_tool("get_dynamic_tools", {"group": "a"})
    plain = await _call(client, "b", "plain")
    elicited = await asyncio.gather(*(_asked(client, group, "elicit") for group in ("a", "b")))
    sampled, roots = await _asked(client, "b", "sample"), await _asked(client, "a", "roots")
    await client.set_logging_level("debug")
    await _call(client, "a", "log", level="error", logger="http")
    log = await person.logged.get()
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "shown": [tool["name"] for tool in json.loads(_text(shown))["tools"]][:3],
        "content": [block.type for block in plain.content],
        "structured": plain.structured_content,
        "progress": await _progress(client, person),
        "elicited": {group: each["content"]["answer"] for group, each in zip("ab", elicited, strict=True)},
        "sampled": sampled["content"]["text"],
        "roots": roots["roots"][0]["uri"],
        "logged": [log.logger, log.level],
        **await _resources_and_prompts(client, person),
    }


async def _progress(client: Client, person: Person) -> list[float]:
    """Let a call wait, and report progress before it may end."""
    wait = {"group": "a", "name": "wait", "args": {"key": "k"}}
    waiting = asyncio.create_task(client.call_tool("call_dynamic_tool", wait, progress_callback=person.report))
    first = await person.progress.get()
    await _call(client, "a", "step", key="k", step=2)
    second = await person.progress.get()
    await _call(client, "a", "release", key="k")
    assert _text(await waiting) == "waited"
    return [first, second]


async def _resources_and_prompts(client: Client, person: Person) -> Json:
    uris = [resource.uri for resource in (await client.list_resources()).resources]
    read: list[Any] = [
        (await client.read_resource(uri)).contents[0] for uri in ("full://text", TEXT_OF_B, "full://blob")
    ]
    templates = (await client.list_resource_templates()).resource_templates
    await client.subscribe_resource(TEXT_OF_B)
    await _call(client, "b", "update", uri="full://text")
    updated = await person.updated.get()
    await client.unsubscribe_resource(TEXT_OF_B)
    prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
    prompt = await client.get_prompt("a__greet", {"city": "Köln"})
    completed = await client.complete(PromptReference(name="b__greet"), {"name": "city", "value": "K"})
    return {
        "resources": [uri for uri in uris if uri in ("full://text", TEXT_OF_B)],
        "read": [each.text if isinstance(each, TextResourceContents) else each.blob for each in read],
        "templates": [template.uri_template for template in templates][:2],
        "updated": updated,
        "prompts": [name for name in prompts if name.endswith("greet")],
        "prompt": [message.content.type for message in prompt.messages],
        "completed": completed.completion.values,
    }


async def test_the_python_sdk_uses_all_that_two_servers_offer(config: Path) -> None:
    person = Person()
    async with client_of(person, config) as client:
        assert await _diary(client, person) == DIARY
        assert client.protocol_version == "2025-11-25"


async def test_the_python_sdk_uses_all_that_everything_offers(tmp_path: Path) -> None:
    command = shutil.which("mcp-server-everything")
    if command is None:
        pytest.skip("the command `mcp-server-everything` is not on the PATH of this machine")
    config, person = tmp_path / "c.json", Person()
    config.write_text(json.dumps({"mcpServers": {"everything": {"command": command, "args": ["stdio"]}}}))
    async with client_of(person, config) as client:
        asked = await _call(client, "everything", "trigger-elicitation-request")
        assert any(isinstance(block, TextContent) and "- Name: for Please" in block.text for block in asked.content)
        sampled = await _call(client, "everything", "trigger-sampling-request", prompt="p")
        assert "sampled for Resource" in _text(sampled)
        assert "file:///home" in _text(await _call(client, "everything", "get-roots-list"))
        assert (await person.logged.get()).logger == "everything/everything-server"
        weather = await _call(client, "everything", "get-structured-content", location="Chicago")
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


async def _diary_of(*command: str, config: Path) -> Json:
    """Run a client, which starts the proxy with the arguments that it gets, and return the diary that it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, *window_command(str(config))],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_an_older_python_sdk_uses_all_that_two_servers_offer(config: Path) -> None:
    python = os.environ.get("DYNAMIC_MCP_TEST_MCP1_PYTHON")
    if not python:
        pytest.skip("DYNAMIC_MCP_TEST_MCP1_PYTHON does not name a Python that has `mcp<2`")
    assert await _diary_of(python, str(HERE / "older_client.py"), config=config) == DIARY


async def test_the_typescript_sdk_uses_all_that_two_servers_offer(config: Path) -> None:
    node, modules = shutil.which("node"), os.environ.get("DYNAMIC_MCP_TEST_NODE_MODULES", "")
    if node is None:
        pytest.skip("the command `node` is not on the PATH of this machine")
    if not (Path(modules) / "@modelcontextprotocol" / "sdk").is_dir():
        pytest.skip("DYNAMIC_MCP_TEST_NODE_MODULES does not name a folder with `@modelcontextprotocol/sdk`")
    assert await _diary_of(node, str(HERE / "typescript_client.mjs"), config=config) == DIARY
