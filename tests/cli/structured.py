"""A server whose one tool answers its arguments, as structured content and as the same in text."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def answer(message: dict[str, Any]) -> object:
    """Return the result of a request."""
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "structured", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "sum", "inputSchema": SCHEMA}]}
        case "tools/call":
            found = {"arguments": message["params"]["arguments"]}
            return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}
    return {}


for line in sys.stdin:
    received = json.loads(line)
    if "id" in received:
        print(json.dumps({"jsonrpc": "2.0", "id": received["id"], "result": answer(received)}), flush=True)
