"""A server that starts in a blink and answers everything with little: for tests that start very many.

It imports nothing but the standard library's JSON, so that `python -I -S` can run it.
"""

import json
import sys

TOOL = {
    "name": "echo",
    "description": "Answers with its arguments.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array"}, "o": {}},
    },
}
RESULTS = {
    "tools/list": {"tools": [TOOL]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": False}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
    "resources/list": {"resources": [{"uri": "tiny://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "tiny://a", "text": "it"}]},
}
CAPABILITIES: dict[str, dict[str, bool]] = {"tools": {}, "prompts": {}, "resources": {}}


def result_of(method: str, params: dict[str, object]) -> object:
    if method == "initialize":
        server = {"name": "tiny", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": server}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    return RESULTS.get(method, {})


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = result_of(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
