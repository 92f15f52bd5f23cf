"""A server made with the Python SDK that speaks both eras: `python sdk_modern.py PORT`, or over stdio without."""

from __future__ import annotations

import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("sdk-modern", instructions="Be kind.")


class Name(BaseModel):
    """What a person is asked for."""

    name: str


async def ask_for_name() -> Elicit[Name]:
    """Ask who is there."""
    return Elicit("who are you?", Name)


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def era(context: Context) -> str:
    """Return the revision that this request is of."""
    return str(context.request_context.protocol_version)


@server.tool()
def greet(who: Annotated[Name, Resolve(ask_for_name)]) -> str:
    """Ask for a name."""
    return f"hello {who.name}"


@server.tool()
async def touch(uri: str, context: Context) -> str:
    """Tell that a resource has changed."""
    await context.notify_resource_updated(uri)
    return "done"


@server.resource("sdk://note")
def note() -> str:
    """Return a note."""
    return "a note"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        server.run("stdio")
