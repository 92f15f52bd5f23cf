"""What the official conformance suite wants to find in a server: `python conformance.py PORT`, or over stdio without.

The names, texts and schemas are the ones that the suite's scenarios ask for. The server is the Python SDK's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp.types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

if TYPE_CHECKING or __package__:
    from . import conformance_offers as offers
else:  # started by its path, as an upstream is
    import conformance_offers as offers

Json = Any  # a literal of the fixture, in the protocol's words
Context = ServerRequestContext[Any]
Tool = Callable[[Context, dict[str, Json]], Awaitable[list[Json]]]

BETWEEN_MESSAGES_S = 0.05  # the suite asks for pauses, so that messages arrive one by one
RETRY_MS = 500


# --- tools ---------------------------------------------------------------------------------------------


async def log(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", text, related_request_id=context.request_id)
        await asyncio.sleep(BETWEEN_MESSAGES_S)
    return [offers.text("Tool with logging executed successfully")]


async def report_progress(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    token = (context.meta or {}).get("progress_token", 0)
    for done in (0, 50, 100):
        request = str(context.request_id)
        message = f"Completed step {done} of 100"
        await context.session.send_progress_notification(token, done, 100, message, related_request_id=request)
        await asyncio.sleep(BETWEEN_MESSAGES_S)
    return [offers.text(str(token))]


async def fail(_context: Context, _arguments: dict[str, Json]) -> list[Json]:
    raise RuntimeError("This tool intentionally returns an error for testing")


async def drop_stream(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    """End the stream of this call, where there is one, and answer once the client may have come back."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(2 * BETWEEN_MESSAGES_S)
    return [offers.text("Reconnection test completed successfully")]


async def sample(context: Context, arguments: dict[str, Json]) -> list[Json]:
    words = types.SamplingMessage.model_validate({"role": "user", "content": offers.text(arguments["prompt"])})
    said = await context.session.create_message([words], max_tokens=100, related_request_id=context.request_id)
    block = said.content
    return [offers.text(f"LLM response: {block.text if isinstance(block, types.TextContent) else block}")]


async def elicit(context: Context, arguments: dict[str, Json]) -> list[Json]:
    return await ask(context, arguments["message"], offers.RESPONSE_FORM, "User response")


async def elicit_defaults(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    return await ask(context, "Please review and update the form", offers.DEFAULTS_FORM, "Elicitation completed")


async def elicit_enums(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    return await ask(context, "Please select options", offers.ENUMS_FORM, "Elicitation completed")


async def ask(context: Context, message: str, form: Json, label: str) -> list[Json]:
    said = await context.session.elicit_form(message, form, related_request_id=context.request_id)
    return [offers.text(f"{label}: action={said.action}, content={json.dumps(said.content)}")]


TOOLS: dict[str, Tool] = {
    "test_tool_with_logging": log,
    "test_tool_with_progress": report_progress,
    "test_error_handling": fail,
    "test_reconnection": drop_stream,
    "test_sampling": sample,
    "test_elicitation": elicit,
    "test_elicitation_sep1034_defaults": elicit_defaults,
    "test_elicitation_sep1330_enums": elicit_enums,
}


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name in offers.CONTENT:
        return types.CallToolResult.model_validate({"content": offers.CONTENT[params.name]})
    try:
        content = await TOOLS[params.name](context, params.arguments or {})
    except Exception as error:
        return types.CallToolResult.model_validate({"content": [offers.text(str(error))], "isError": True})
    return types.CallToolResult.model_validate({"content": content})


# --- everything else -----------------------------------------------------------------------------------


async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult.model_validate({"tools": offers.TOOLS})


async def list_resources(_context: Context, _params: object) -> types.ListResourcesResult:
    return types.ListResourcesResult.model_validate({"resources": offers.RESOURCES})


async def list_templates(_context: Context, _params: object) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": offers.TEMPLATES})


async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult.model_validate({"contents": [offers.contents(str(params.uri))]})


async def list_prompts(_context: Context, _params: object) -> types.ListPromptsResult:
    return types.ListPromptsResult.model_validate({"prompts": offers.PROMPTS})


async def get_prompt(_context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    return types.GetPromptResult.model_validate({"messages": offers.messages(params.name, params.arguments or {})})


async def complete(_context: Context, _params: object) -> types.CompleteResult:
    return types.CompleteResult.model_validate({"completion": {"values": [], "total": 0, "hasMore": False}})


async def accept(_context: Context, _params: object) -> types.EmptyResult:
    return types.EmptyResult()


class Events(EventStore):
    """The events of all streams, so that a client can go on where its stream broke."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        seen = int(last_event_id)
        stream = self._events[seen - 1][0]
        for number, (where, message) in enumerate(self._events[seen:], seen + 1):
            if where == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


server = Server(
    "conformance",
    version="1.0.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=accept,
    on_unsubscribe_resource=accept,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=accept,
)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        asyncio.run(serve_stdio())
