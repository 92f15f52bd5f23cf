"""A server with a banner on stdout and tools whose schemas are none; one tool says what the file ARGUMENT holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

GOOD = {"type": "object", "properties": {"a": {"type": "number"}}}


def tools() -> list[dict[str, Any]]:
    """Return the tools."""
    says = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) > 1 else ""
    return [
        {"name": "good", "description": says, "inputSchema": GOOD},
        {"name": "none"},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "nubmer"}}}},
    ]


def answer(message: dict[str, Any]) -> object:
    """Return the result of a request."""
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "untidy", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": tools()}
    return {}


print("hello from the banner", flush=True)
for line in sys.stdin:
    received = json.loads(line)
    if "id" in received:
        print(json.dumps({"jsonrpc": "2.0", "id": received["id"], "result": answer(received)}), flush=True)
