"""A server that offers what a JSON file says when it starts: version, instructions, tools, prompts and templates."""

from __future__ import annotations

import json
import sys
from pathlib import Path

offer = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
hello = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    "serverInfo": {"name": "changeable", "version": offer.get("version", "1")},
    "instructions": offer.get("instructions", ""),
}
answers = {
    "initialize": hello,
    "tools/list": {"tools": offer.get("tools", [])},
    "prompts/list": {"prompts": offer.get("prompts", [])},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": offer.get("templates", [])},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
