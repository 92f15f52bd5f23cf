"""A server made with the Python SDK that speaks both eras: `python sdk_modern.py PORT`, or over stdio without."""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Annotated

import uvicorn
from mcp import MCPDeprecationWarning
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    ImageContent,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("sdk-modern", instructions="Be kind.")
cancelled: set[str] = set()


class Name(BaseModel):
    """What a person is asked for."""

    name: str


async def ask_for_name() -> Elicit[Name]:
    """Ask who is there."""
    return Elicit("who are you?", Name)


async def ask_model() -> Sample:
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="who are you?"))
    return Sample([question], max_tokens=10)


async def ask_for_roots() -> ListRoots:
    """Ask for the client's roots."""
    return ListRoots()


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """Return two kinds of content."""
    return [TextContent(type="text", text="a"), ImageContent(type="image", data="AAEC", mime_type="image/png")]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("as it was asked to")


@server.tool()
async def era(context: Context) -> str:
    """Return the revision that this request is of."""
    return str(context.request_context.protocol_version)


# --- while a tool runs ---------------------------------------------------------------------------------


@server.tool()
async def progress(context: Context) -> str:
    """Report progress three times."""
    for step in (1, 2, 3):
        await context.report_progress(step, 3)
    return "done"


@server.tool()
async def log(context: Context) -> str:
    """Send a log message."""
    await context.log("error", "words", logger_name="sdk")
    return "done"


@server.tool()
async def wait(key: str, context: Context) -> str:
    """Wait until the call is cancelled."""
    await context.report_progress(0, 1)
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.add(key)
    return "done"


@server.tool(name="cancelled")
def tell_cancelled(key: str) -> str:
    """Tell whether a wait was cancelled."""
    return "it was cancelled" if key in cancelled else "it waits"


# --- questions -----------------------------------------------------------------------------------------


@server.tool()
def greet(who: Annotated[Name, Resolve(ask_for_name)]) -> str:
    """Ask for a name."""
    return f"hello {who.name}"


@server.tool()
def sample(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Ask the client's model."""
    return said.model_dump_json()


@server.tool()
def roots(found: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
    """Ask for the client's roots."""
    return found.model_dump_json()


# --- resources and prompts -----------------------------------------------------------------------------


@server.tool()
async def touch(uri: str, context: Context) -> str:
    """Tell that a resource has changed."""
    await context.notify_resource_updated(uri)
    return "done"


@server.tool()
async def add_prompt(name: str, context: Context) -> str:
    """Add a prompt, and tell that the prompts have changed."""
    server.add_prompt(Prompt.from_function(ask, name=name))
    await context.notify_prompts_changed()
    await context.session.send_prompt_list_changed()
    return "done"


@server.resource("sdk://note")
def note() -> str:
    """Return a note."""
    return "a note"


@server.resource("sdk://notes/{name}")
def named_note(name: str) -> str:
    """Return the note of this name."""
    return f"a note of {name}"


@server.prompt()
def ask(city: str) -> str:
    """Ask about a city."""
    return f"What of {city}?"


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator] # as the SDK has it
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion:
    """Complete a city."""
    return Completion(values=[f"{argument.value}öln"])


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    if len(sys.argv) > 1:
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        server.run("stdio")
