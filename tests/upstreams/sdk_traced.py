"""A server made with the Python SDK that sends its spans to a collector: `python sdk_traced.py stdio|PORT`.

The SDK makes the spans, with the context in `_meta` as their parent; the variables of OpenTelemetry say where to.
"""

from __future__ import annotations

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from tests.journeys.tracing_sdk import send_spans

server = MCPServer("traced")


@server.tool()
def headers(context: Context) -> str:
    """Return the context that the request over HTTP came with."""
    request = context.request_context.request
    return "" if request is None else str(request.headers.get("traceparent", ""))


if __name__ == "__main__":
    with send_spans():
        if sys.argv[1] == "stdio":
            server.run("stdio")
        else:
            app = server.streamable_http_app()
            uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
