"""The journey of a client through all that two servers offer, and the diary of it: the same for every client.

`older_client.py` and `typescript_client.mjs` write it with other SDKs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client import Transport
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

from dynamic_mcp.mcp.revisions import MODERN
from tests.program import BOUND_S, Json, full

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


def two_servers() -> Json:
    """Return the config of two servers that can do all that the protocol has."""
    return {name: full("--name", name) for name in ("a", "b")}


def diary_of_person(name: str) -> Json:
    """Return the diary of a client in front of which this person answers what servers ask."""
    elicited = {group: f"{name}{answer}" for group, answer in DIARY["elicited"].items()}
    return {**DIARY, "elicited": elicited, "sampled": f"{name}{DIARY['sampled']}"}


async def diary_printed_by(*command: str, person: str = "", within_s: float = BOUND_S) -> Json:
    """Run a client and return the diary that it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env={**os.environ, "DYNAMIC_MCP_TEST_PERSON": person},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Person:
    """Whoever sits in front of a client: answers what servers ask, and hears what they say."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.progress: asyncio.Queue[float] = asyncio.Queue()
        self.logged: asyncio.Queue[LoggingMessageNotificationParams] = asyncio.Queue()
        self.updated: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        words = f"{self.name}for {params.message.split()[0]}"
        return ElicitResult(action="accept", content={"answer": words, "name": words})

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        content = params.messages[0].content
        assert isinstance(content, TextContent)
        words = TextContent(type="text", text=f"{self.name}sampled for {content.text.split()[0]}")
        return CreateMessageResult(role="assistant", model="m", content=words)

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home"), name="home")])

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logged.put_nowait(params)

    async def hear(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.updated.put_nowait(message.params.uri)

    def client(self, server: Transport | StdioServerParameters | str, mode: str = "auto") -> Client:
        """Return a client of the server, in front of which this person sits."""
        return Client(
            server,
            mode=mode,
            log_level="debug",
            elicitation_callback=self.elicit,
            sampling_callback=self.sample,
            list_roots_callback=self.list_roots,
            logging_callback=self.log,
            message_handler=self.hear,
        )

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.put_nowait(progress)


def is_modern(client: Client) -> bool:
    """Tell whether a client speaks a revision without sessions."""
    return client.protocol_version == MODERN.name


async def call(client: Client, group: str, name: str, **args: Json) -> CallToolResult:
    return await client.call_tool("call_dynamic_tool", {"group": group, "name": name, "args": args})


def first_text(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


async def ask_through(client: Client, group: str, tool: str) -> Json:
    """Return what a server got when it asked the client for something."""
    return json.loads(first_text(await call(client, group, tool)))["result"]


async def write_diary(client: Client, person: Person) -> Json:
    shown = await client.call_tool("get_dynamic_tools", {"group": "a"})
    plain = await call(client, "b", "plain")
    progress = await _progress(client, person)  # before a server asks: then a modern client's calls to it take turns
    elicited = await asyncio.gather(*(ask_through(client, group, "elicit") for group in ("a", "b")))
    sampled, roots = await ask_through(client, "b", "sample"), await ask_through(client, "a", "roots")
    if not is_modern(client):
        await client.set_logging_level("debug")
    await call(client, "a", "log", level="error", logger="http")
    log = await person.logged.get()
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "shown": [tool["name"] for tool in json.loads(first_text(shown))["tools"]][:3],
        "content": [block.type for block in plain.content],
        "structured": plain.structured_content,
        "progress": progress,
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
    await call(client, "a", "step", key="k", step=2)
    second = await person.progress.get()
    await call(client, "a", "release", key="k")
    assert first_text(await waiting) == "waited"
    return [first, second]


@contextlib.asynccontextmanager
async def _subscribed(client: Client, uri: str) -> AsyncIterator[None]:
    """Hear of a resource's updates, in the way of the client's revision."""
    if is_modern(client):
        async with client.listen(resource_subscriptions=[uri]):
            yield
    else:
        await client.subscribe_resource(uri)
        yield
        await client.unsubscribe_resource(uri)


async def _resources_and_prompts(client: Client, person: Person) -> Json:
    uris = [resource.uri for resource in (await client.list_resources()).resources]
    read: list[Any] = [
        (await client.read_resource(uri)).contents[0] for uri in ("full://text", TEXT_OF_B, "full://blob")
    ]
    templates = (await client.list_resource_templates()).resource_templates
    async with _subscribed(client, TEXT_OF_B):
        await call(client, "b", "update", uri="full://text")
        updated = await person.updated.get()
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
