"""A server whose calls last until they are released, by files in a folder; it also leaves orphans.

It needs nothing but Python: images have no package of the tests.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
_TOOLS = ["hold", "who", "orphan"]
_write = threading.Lock()


def answer(id: object, result: object) -> None:
    """Answer a request; calls end in any order."""
    with _write:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


def call(id: object, name: str, arguments: dict[str, str]) -> None:
    """Run a tool."""
    text = ""
    match name:
        case "hold":
            (FOLDER / f"held-{arguments['name']}").touch()
            while not (FOLDER / "release").exists():
                time.sleep(0.02)
            text = f"released {arguments['name']}"
        case "who":
            text = json.dumps({"pid": os.getpid(), "uid": os.getuid(), "host": os.uname().nodename,
                               "mark": sys.argv[2:], "environment": dict(os.environ)})  # fmt: skip
        case "orphan":
            subprocess.run(["/bin/sh", "-c", "setsid sleep 1000 & echo $!"], check=True, stdout=sys.stderr)
    answer(id, {"content": [{"type": "text", "text": text}]})


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            server = {"name": "holding", "version": "1"}
            answer(message["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
        case "tools/list":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            answer(message["id"], {"tools": [{"name": name, "inputSchema": schema} for name in _TOOLS]})
        case "tools/call":
            params = message["params"]
            words = (message["id"], params["name"], params.get("arguments", {}))
            threading.Thread(target=call, args=words, daemon=True).start()
        case _:
            answer(message["id"], {})
