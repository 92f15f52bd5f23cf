"""A server that writes down each call before it answers: for tests that compare this with what others have recorded.

    recording.py FILE

It imports nothing but the standard library, so that `python -I -S` can run it.
"""

import json
import os
import sys

TOOLS = [
    {"name": "change", "description": "Changes something.", "inputSchema": {"type": "object"}},
    {"name": "read", "description": "Reads something.", "inputSchema": {"type": "object"}},
]
executed = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def result_of(method: str, params: dict[str, object]) -> object:
    if method == "initialize":
        server = {"name": "recording", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        os.write(executed, json.dumps(params["arguments"]).encode() + b"\n")
        return {"content": [{"type": "text", "text": "done"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = result_of(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
