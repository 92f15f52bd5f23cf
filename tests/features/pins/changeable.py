"""A server that offers what a JSON file says: version and instructions when it starts, and its lists at any time.

When a tool is called after the file has changed, it says first that its tools have. It answers the methods in
`fails` with an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def read() -> dict[str, Any]:  # Any: JSON
    """Return what is offered now."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def send(**members: object) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def answer(method: str) -> object:
    """Return the result of a request."""
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
                "serverInfo": {"name": "changeable", "version": offered.get("version", "1")},
                "instructions": offered.get("instructions", ""),
            }
        case "tools/list":
            return {"tools": offered.get("tools", [])}
        case "prompts/list":
            return {"prompts": offered.get("prompts", [])}
        case "resources/list":
            return {"resources": []}
        case "resources/templates/list":
            return {"resourceTemplates": offered.get("templates", [])}
        case "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
    return {}


offered = read()
for line in sys.stdin:
    asked = json.loads(line)
    before, offered = offered, read()
    if asked.get("method") == "tools/call" and offered != before:
        send(method="notifications/tools/list_changed")
    if asked.get("method") in offered.get("fails", []):
        send(id=asked["id"], error={"code": -32603, "message": "out of order"})
    elif "id" in asked:
        send(id=asked["id"], result=answer(asked["method"]))
