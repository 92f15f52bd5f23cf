"""A server that answers one method as its arguments say, however odd, and all others correctly."""

import json
import sys

METHOD, RESULT = sys.argv[1], json.loads(sys.argv[2])
OTHERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = RESULT if message["method"] == METHOD else OTHERS.get(message["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
