"""The journey of test_clients.py with the Python SDK before version 2: prints the diary of it as JSON.

    python older_client.py COMMAND [ARGUMENT]…
    python older_client.py URL

Runs in an environment of its own, where `mcp` is another one than here: to the type checker it is anything.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from typing import Any

import anyio

mcp: Any = importlib.import_module("mcp")
stdio: Any = importlib.import_module("mcp.client.stdio")
types: Any = importlib.import_module("mcp.types")

TEXT_OF_B = "dynamic-mcp://b/full%3A%2F%2Ftext"


class Person:
    """Whoever sits in front of a client: answers what servers ask, and hears what they say."""

    def __init__(self) -> None:
        self.progress: asyncio.Queue[float] = asyncio.Queue()
        self.logged: asyncio.Queue[Any] = asyncio.Queue()
        self.updated: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(self, context: object, params: Any) -> object:
        return types.ElicitResult(action="accept", content={"answer": f"for {params.message.split()[0]}"})

    async def sample(self, context: object, params: Any) -> object:
        words = f"sampled for {params.messages[0].content.text.split()[0]}"
        return types.CreateMessageResult(role="assistant", model="m", content={"type": "text", "text": words})

    async def list_roots(self, context: object) -> object:
        return types.ListRootsResult(roots=[{"uri": "file:///home", "name": "home"}])

    async def log(self, params: object) -> None:
        self.logged.put_nowait(params)

    async def hear(self, message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(message.root.params.uri))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.put_nowait(progress)


async def call(session: Any, group: str, name: str, **args: object) -> Any:
    """Call a tool of a group."""
    return await session.call_tool("call_dynamic_tool", {"group": group, "name": name, "args": args})


async def asked(session: Any, group: str, tool: str) -> Any:
    """Return what a server got when it asked the client for something."""
    return json.loads((await call(session, group, tool)).content[0].text)["result"]


async def tools(session: Any, person: Person) -> dict[str, object]:
    """Use the tools, and what comes back while they run."""
    shown = await session.call_tool("get_dynamic_tools", {"group": "a"})
    plain = await call(session, "b", "plain")
    elicited = await asyncio.gather(*(asked(session, group, "elicit") for group in ("a", "b")))
    sampled, roots = await asked(session, "b", "sample"), await asked(session, "a", "roots")
    await session.set_logging_level("debug")
    await call(session, "a", "log", level="error", logger="http")
    log = await person.logged.get()
    return {
        "tools": [tool.name for tool in (await session.list_tools()).tools],
        "shown": [tool["name"] for tool in json.loads(shown.content[0].text)["tools"]][:3],
        "content": [block.type for block in plain.content],
        "structured": plain.structuredContent,
        "progress": await progress(session, person),
        "elicited": {group: each["content"]["answer"] for group, each in zip("ab", elicited, strict=True)},
        "sampled": sampled["content"]["text"],
        "roots": roots["roots"][0]["uri"],
        "logged": [log.logger, log.level],
    }


async def progress(session: Any, person: Person) -> list[float]:
    """Let a call wait, and report progress before it may end."""
    wait = {"group": "a", "name": "wait", "args": {"key": "k"}}
    waiting = asyncio.create_task(session.call_tool("call_dynamic_tool", wait, progress_callback=person.report))
    first = await person.progress.get()
    await call(session, "a", "step", key="k", step=2)
    second = await person.progress.get()
    await call(session, "a", "release", key="k")
    await waiting
    return [first, second]


async def resources(session: Any, person: Person) -> dict[str, object]:
    """List, read and subscribe to resources."""
    uris = [str(resource.uri) for resource in (await session.list_resources()).resources]
    read = [(await session.read_resource(uri)).contents[0] for uri in ("full://text", TEXT_OF_B, "full://blob")]
    templates = (await session.list_resource_templates()).resourceTemplates
    await session.subscribe_resource(TEXT_OF_B)
    await call(session, "b", "update", uri="full://text")
    updated = await person.updated.get()
    await session.unsubscribe_resource(TEXT_OF_B)
    return {
        "resources": [uri for uri in uris if uri in ("full://text", TEXT_OF_B)],
        "read": [getattr(each, "text", None) or each.blob for each in read],
        "templates": [template.uriTemplate for template in templates][:2],
        "updated": updated,
    }


async def prompts(session: Any) -> dict[str, object]:
    """List, get and complete prompts."""
    names = [prompt.name for prompt in (await session.list_prompts()).prompts]
    prompt = await session.get_prompt("a__greet", {"city": "Köln"})
    ref = types.PromptReference(type="ref/prompt", name="b__greet")
    completed = await session.complete(ref, {"name": "city", "value": "K"})
    return {
        "prompts": [name for name in names if name.endswith("greet")],
        "prompt": [message.content.type for message in prompt.messages],
        "completed": completed.completion.values,
    }


def connect(target: str, *args: str) -> Any:
    """Reach the proxy: by starting it, or at its URL."""
    if target.endswith("/sse"):
        return importlib.import_module("mcp.client.sse").sse_client(target)
    if target.startswith("http"):
        return importlib.import_module("mcp.client.streamable_http").streamable_http_client(target)
    server = stdio.StdioServerParameters(command=target, args=args, env=dict(os.environ))
    return stdio.stdio_client(server)


async def main() -> None:
    """Make the journey."""
    person = Person()
    try:
        async with (
            connect(*sys.argv[1:]) as (read, write, *_),
            mcp.ClientSession(
                read,
                write,
                elicitation_callback=person.elicit,
                sampling_callback=person.sample,
                list_roots_callback=person.list_roots,
                logging_callback=person.log,
                message_handler=person.hear,
            ) as session,
        ):
            await session.initialize()
            diary = await tools(session, person) | await resources(session, person) | await prompts(session)
            print(json.dumps(diary))
    except* anyio.BrokenResourceError:  # this SDK cannot close while a message comes
        pass


if __name__ == "__main__":
    asyncio.run(main())
