"""A client made with the Python SDK that sends its spans to a collector.

    python -m tests.journeys.tracing_sdk TOOL COMMAND [ARGUMENT]…
    python -m tests.journeys.tracing_sdk TOOL URL

It calls a tool of the group `a`, prints the text of its result, and goes when its own input ends. The variables of
OpenTelemetry say where to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


@contextlib.contextmanager
def send_spans() -> Iterator[None]:
    """Send the spans of this process as they end."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    yield
    provider.shutdown()


async def call(tool: str, target: list[str]) -> None:
    """Call a tool of the group `a` through a proxy, within a span of our own."""
    env = {**os.environ, "OTEL_SERVICE_NAME": ""}
    stdio = StdioServerParameters(command=target[0], args=target[1:], env=env)
    async with Client(target[0] if len(target) == 1 else stdio_client(stdio)) as client:
        with trace.get_tracer("test").start_as_current_span("turn of a model"):
            result = await client.call_tool("call_dynamic_tool", {"group": "a", "name": tool})
        block = result.content[0] if result.content else None
        assert isinstance(block, TextContent)
        print(block.text, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with send_spans():
        asyncio.run(call(sys.argv[1], sys.argv[2:]))
