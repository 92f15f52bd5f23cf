"""The cheapest stdio MCP server there can be: `echo` answers its text, `blob` as many bytes as it is asked for."""

import json
import sys

TOOLS = json.dumps(
    {
        "tools": [
            {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
            {"name": "blob", "inputSchema": {"type": "object", "properties": {"bytes": {"type": "integer"}}}},
        ]
    }
)
WELCOME = '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}'


def result(message: dict[str, object]) -> str:
    """Return the result of a request, as JSON."""
    match message:
        case {"method": "initialize"}:
            return WELCOME
        case {"method": "tools/list"}:
            return TOOLS
        case {"method": "tools/call", "params": {"name": "blob", "arguments": {"bytes": int(size)}}}:
            return json.dumps({"content": [{"type": "text", "text": "x" * size}]})
        case {"method": "tools/call", "params": {"arguments": {"text": text}}}:
            return json.dumps({"content": [{"type": "text", "text": text}]})
        case _:
            return "{}"


for line in sys.stdin.buffer:
    request = json.loads(line)
    if "id" in request:
        answer = f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{result(request)}}}\n'
        sys.stdout.buffer.write(answer.encode())
        sys.stdout.buffer.flush()
