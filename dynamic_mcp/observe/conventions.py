"""The names in traces and metrics: OpenTelemetry's semantic conventions for MCP, and this program's additions.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md (status: development)
"""

from __future__ import annotations

# The attributes of spans and measurements.
Value = str | int | float | bool
Attributes = dict[str, Value]

METHOD = "mcp.method.name"
PROTOCOL_VERSION = "mcp.protocol.version"
SESSION_ID = "mcp.session.id"
RESOURCE_URI = "mcp.resource.uri"
REQUEST_ID = "jsonrpc.request.id"
STATUS_CODE = "rpc.response.status_code"
ERROR_TYPE = "error.type"
TOOL = "gen_ai.tool.name"
PROMPT = "gen_ai.prompt.name"
OPERATION = "gen_ai.operation.name"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
TRANSPORT = "network.transport"
PROTOCOL = "network.protocol.name"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
CLIENT_ADDRESS = "client.address"
CLIENT_PORT = "client.port"
# Additions of this program.
GROUP = "dynamic_mcp.group"
DECISION = "dynamic_mcp.decision"
RULE = "dynamic_mcp.rule"
CACHE_HIT = "dynamic_mcp.cache.hit"
APPROVAL = "dynamic_mcp.approval.outcome"
APPROVAL_CHANNEL = "dynamic_mcp.approval.channel"
APPROVAL_WAIT = "dynamic_mcp.approval.wait"
ERA = "dynamic_mcp.era"

EXECUTE_TOOL = "execute_tool"
# The value that replaces all others, to limit the number of values.
OTHER = "_other"

SERVER_DURATION = "mcp.server.operation.duration"
CLIENT_DURATION = "mcp.client.operation.duration"
SERVER_SESSION = "mcp.server.session.duration"
CLIENT_SESSION = "mcp.client.session.duration"
# Seconds.
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

# The description and place of each attribute: on spans of requests to us (`server`), of requests to upstreams
# (`client`), or on both; and whether the metrics of operations have it.
ATTRIBUTES: dict[str, tuple[str, bool, str]] = {
    METHOD: (
        "both",
        True,
        "The method of MCP, such as `tools/call`; in metrics `_other` for one that MCP does not have.",
    ),
    TOOL: (
        "both",
        True,
        "The server's own name of the tool; of what is in no catalog nothing, and `_other` in metrics.",
    ),
    PROMPT: ("both", True, "The name of the prompt, in the same way."),
    OPERATION: ("both", True, "`execute_tool` on `tools/call`."),
    ERROR_TYPE: (
        "both",
        True,
        "The code of a server's error, `tool_error`, the name of one of our own, `cancelled`, or `internal_error`.",
    ),
    STATUS_CODE: ("both", True, "The code of the JSON-RPC error that the request was answered with."),
    REQUEST_ID: ("server", False, "The id of the client's request."),
    RESOURCE_URI: ("both", False, "The URI of a resource, without user info and the secrets in its query."),
    PROTOCOL_VERSION: ("server", True, "The revision that the client speaks."),
    SESSION_ID: ("server", False, "What names the session in the audit log, too; it is no credential."),
    TRANSPORT: ("both", True, "`pipe` for stdio, `tcp` for HTTP, `unix` for HTTP over a Unix socket."),
    PROTOCOL: ("both", True, "`http`, where it is."),
    SERVER_ADDRESS: ("client", True, "The host of a remote server."),
    SERVER_PORT: ("client", True, "Its port."),
    CLIENT_ADDRESS: ("server", False, "The address of a client over HTTP."),
    CLIENT_PORT: ("server", False, "Its port."),
    ARGUMENTS: ("server", False, "The arguments of a call, as JSON; only with `arguments: true`."),
    RESULT: ("server", False, "Its result, as JSON; only with `arguments: true`."),
    GROUP: ("both", True, "The server, by its name in the config."),
    DECISION: ("server", False, "What the access rules say: `allow`, `ask` or `deny`."),
    RULE: ("server", False, "The rule that decided."),
    CACHE_HIT: ("server", False, "True if a kept result was the answer."),
    APPROVAL: ("server", False, "What became of asking a person."),
    APPROVAL_CHANNEL: ("server", False, "How the person was asked."),
    APPROVAL_WAIT: ("server", False, "How long the call waited for that, in seconds."),
    ERA: ("client", False, "`modern` or `legacy`: which generation of the protocol the request is of."),
}

METRICS: dict[str, str] = {
    SERVER_DURATION: "The time from a client's request to its answer.",
    CLIENT_DURATION: "The time from a request to a server to its answer.",
    SERVER_SESSION: "How long clients were connected; not of clients of 2026-07-28, which have no sessions.",
    CLIENT_SESSION: "How long servers were connected.",
}
