"""A small server made with the Python SDK, over HTTP: `python sdk_http.py PORT http|sse`."""

from __future__ import annotations

import os
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("sdk")


class Name(BaseModel):
    """What a person is asked for."""

    name: str


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def pid() -> str:
    """Return the number of this process."""
    return str(os.getpid())


@server.tool()
async def greet(context: Context) -> str:
    """Ask for a name and report progress meanwhile."""
    await context.report_progress(1, 2, "asking")
    said = await context.elicit("who are you?", Name)
    return f"hello {said.data.name}" if said.action == "accept" and said.data else "hello"


if __name__ == "__main__":
    app = server.streamable_http_app() if sys.argv[2] == "http" else server.sse_app()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
