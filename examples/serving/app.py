"""dynamic-mcp below /tools of an application in Starlette, for clients with a token; the same works in FastAPI.

TOOLS_TOKEN=… uvicorn --app-dir examples/serving app:app
"""

import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dynamic_mcp.asgi import app as dynamic_mcp

tools = dynamic_mcp(Path(__file__).with_name("app.json"))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Start and end the servers with the application: Starlette starts no mounted application."""
    async with tools.running():
        yield


async def ask_for_token(scope: Scope, receive: Receive, send: Send) -> None:
    """Authenticate requests; what protects the paths of a framework does not protect a mounted application."""
    given = Request(scope).headers.get("authorization", "").encode()
    if hmac.compare_digest(given, f"Bearer {os.environ['TOOLS_TOKEN']}".encode()):
        await tools(scope, receive, send)
    else:
        await Response(status_code=401, headers={"www-authenticate": "Bearer"})(scope, receive, send)


app = Starlette(lifespan=lifespan)
app.mount("/tools", ask_for_token)
