"""What the official conformance suites want to find in a server: `python conformance.py PORT`, or over stdio without.

The names, texts and schemas are the ones that the suites' scenarios ask for. The server is the Python SDK's without
its modern half: it knows no revision after 2025-11-25, and asks in the middle of a call.
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
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING or __package__:
    from . import conformance_asks as asks
    from . import conformance_offers as offers
else:  # started by its path, as an upstream is
    import conformance_asks as asks
    import conformance_offers as offers

Json = Any  # a literal of the fixture, in the protocol's words
Context = ServerRequestContext[Any]
Tool = Callable[[Context, dict[str, Json]], Awaitable[list[Json]]]

BETWEEN_MESSAGES_S = 0.05  # the suite asks for pauses, so that messages arrive one by one
RETRY_MS = 500
NEWEST = "2025-11-25"
RESOURCE_NOT_FOUND = -32002  # MCP 2025-11-25, server/resources


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


async def repeat(_context: Context, arguments: dict[str, Json]) -> list[Json]:
    return [offers.text(json.dumps(arguments, sort_keys=True))]


async def change_tools(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    _toggle("tools")
    await context.session.send_tool_list_changed()
    return [offers.text("the tools have changed")]


async def change_prompts(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    _toggle("prompts")
    await context.session.send_prompt_list_changed()
    return [offers.text("the prompts have changed")]


async def change_resources(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    _toggle("resources")
    await context.session.send_resource_list_changed()
    return [offers.text("the resources have changed")]


async def update_resource(context: Context, arguments: dict[str, Json]) -> list[Json]:
    await context.session.send_resource_updated(arguments["uri"])
    return [offers.text("the resource has changed")]


TOOLS: dict[str, Tool] = {
    "test_tool_with_logging": log,
    "test_tool_with_progress": report_progress,
    "test_error_handling": fail,
    "test_logging_tool": log,
    "test_reconnection": drop_stream,
    "test_custom_headers": repeat,
    "test_trigger_tool_change": change_tools,
    "test_trigger_prompt_change": change_prompts,
    "test_trigger_resource_change": change_resources,
    "test_update_resource": update_resource,
    **asks.TOOLS,
}

has_extra = dict.fromkeys(offers.EXTRA, False)


def _toggle(kind: str) -> None:
    has_extra[kind] = not has_extra[kind]


def _extra(kind: str) -> list[Json]:
    """Return what a list has besides, now."""
    return [offers.EXTRA[kind]] if has_extra[kind] else []


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
    return types.ListToolsResult.model_validate({"tools": [*offers.TOOLS, *_extra("tools")]})


async def list_resources(_context: Context, _params: object) -> types.ListResourcesResult:
    return types.ListResourcesResult.model_validate({"resources": [*offers.RESOURCES, *_extra("resources")]})


async def list_templates(_context: Context, _params: object) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": offers.TEMPLATES})


async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    if not offers.has_resource(params.uri):
        raise MCPError(RESOURCE_NOT_FOUND, "Resource not found", {"uri": params.uri})
    return types.ReadResourceResult.model_validate({"contents": [offers.contents(params.uri)]})


async def list_prompts(_context: Context, _params: object) -> types.ListPromptsResult:
    return types.ListPromptsResult.model_validate({"prompts": [*offers.PROMPTS, *_extra("prompts")]})


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name == "test_input_required_result_prompt":
        message = {"role": "user", "content": offers.text(await asks.ask_for_context(context))}
        return types.GetPromptResult.model_validate({"messages": [message]})
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


class LegacyServer(Server[Any]):
    """A server that says that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Json]] | None = None,
        extensions: dict[str, dict[str, Json]] | None = None,
    ) -> InitializationOptions:
        changes = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(changes, experimental_capabilities, extensions)


class LegacyOnly:
    """An app that refuses requests of modern revisions, as servers did that did not know them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        if version > NEWEST:
            error = {"code": -32600, "message": f"Bad Request: Unsupported protocol version: {version}"}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, 400)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


server = LegacyServer(
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
    async with stdio_server() as (read, write), server.lifespan(server) as state:
        await serve_loop(server, read, write, lifespan_state=state)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
        uvicorn.run(LegacyOnly(app), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        asyncio.run(serve_stdio())
