"""What the server of conformance_modern.py offers beyond conformance_offers.py: headers, tasks, guarded resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from . import conformance_offers as offers
    from .modern_questions import ask, elicitation
    from .modern_request import INVALID_PARAMS, META, Json, Refusal, Request
else:  # started by its path, as an upstream is
    import conformance_offers as offers
    from modern_questions import ask, elicitation
    from modern_request import INVALID_PARAMS, META, Json, Refusal, Request

CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
    "extensions": {f"{META}tasks": {}},
}


def _schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _tool(name: str, description: str, schema: Json = offers.NOTHING) -> Json:
    return {"name": name, "description": description, "inputSchema": schema}


_NESTED_HEADER = _schema(
    target=_schema(tenant={"type": "string", "x-mcp-header": "Tenant"}, path={"type": "string"}),
    note={"type": "string"},
)
_KEY = _schema(key={"type": "string"})
_SECONDS = _schema(seconds={"type": "number"}, label={"type": "string"})

TOOLS: list[Json] = [
    *offers.TOOLS,
    _tool("test_nested_header", "Repeats its arguments, one of which is also in a header", _NESTED_HEADER),
    _tool("test_wait", "Waits until it is cancelled", _KEY),
    _tool("test_cancelled", "Tells whether a wait was cancelled", _KEY),
    _tool("test_add_prompt", "Adds a prompt", _schema(name={"type": "string"})),
    _tool("greet", "Says hello", _schema(name={"type": "string"})),
    _tool("slow_compute", "Takes some seconds", _SECONDS),
    _tool("failing_job", "Fails in a task"),
    _tool("protocol_error_job", "Crashes in a task"),
    _tool("confirm_delete", "Asks in a task", _schema(filename={"type": "string"})),
    _tool("multi_input", "Asks twice in a task"),
    _tool("test_tool_with_task", "Asks before it starts a task"),
]
GUARDED = "test://guarded"
RESOURCES: list[Json] = [*offers.RESOURCES, {"uri": GUARDED, "name": "guarded", "mimeType": "text/plain"}]
_CONTEXT = {"user_context": elicitation("What context should the prompt use?", offers.form_with("context"))}
_PASSWORD = {"password": elicitation("What is the password?", offers.form_with("password"))}


async def read_resource(request: Request) -> Json:
    """Return what a resource contains; one of them asks the user first."""
    uri = request.params["uri"]
    if uri == GUARDED:
        ask(request, _PASSWORD, keeps_state=True)
    elif not offers.has_resource(uri):
        raise Refusal(INVALID_PARAMS, "there is no such resource", {"uri": uri})
    return {"contents": [offers.contents(uri)], "ttlMs": 1000, "cacheScope": "private"}


async def get_prompt(request: Request) -> Json:
    """Return the messages of a prompt; one of them asks the user first."""
    name = request.params["name"]
    if name == "test_input_required_result_prompt":
        answer = ask(request, _CONTEXT)["user_context"]
        return {"messages": [{"role": "user", "content": offers.text(f"The context is {answer.get('content')}.")}]}
    if name not in {prompt["name"] for prompt in offers.PROMPTS}:
        raise Refusal(INVALID_PARAMS, "there is no such prompt")
    return {"messages": offers.messages(name, request.arguments)}


async def complete(_request: Request) -> Json:
    """Return no suggestion."""
    return {"completion": {"values": [], "total": 0, "hasMore": False}}
