"""An MCP server that writes down how it was started and greeted, and answers with every kind of result.

Over stdio it runs by its path, and writes a line into `<its own path>.jsonl` for each greeting. Tests also have it
answer over HTTP (witness_http.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

Json = Any  # what a client sent
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP8z4APMOGVHbHSAEEsAROxCnMTAAAAAElFTkSuQmCC"
FIGURES = {"height_m": 41, "lit": True, "name": "Slåtterøy"}
WRONG = "the lighthouse is closed: ask the keeper"
ASKED = {
    "message": "Which lighthouse?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
_NO_ARGUMENTS = {"type": "object", "properties": {}}
_OUTPUT = {
    "type": "object",
    "properties": {"height_m": {"type": "integer"}, "lit": {"type": "boolean"}, "name": {"type": "string"}},
    "required": ["height_m", "lit", "name"],
}
TOOLS: list[dict[str, Json]] = [
    {"name": "greet_keeper", "description": "Greet the keeper of the lighthouse", "inputSchema": _NO_ARGUMENTS},
    {"name": "paint_lighthouse", "description": "Paint a picture of the lighthouse", "inputSchema": _NO_ARGUMENTS},
    {
        "name": "measure_lighthouse",
        "description": "Measure the lighthouse",
        "inputSchema": _NO_ARGUMENTS,
        "outputSchema": _OUTPUT,
    },
    {"name": "climb_lighthouse", "description": "Climb the lighthouse", "inputSchema": _NO_ARGUMENTS},
    {"name": "choose_lighthouse", "description": "Let a person choose a lighthouse", "inputSchema": _NO_ARGUMENTS},
]
RESULTS: dict[str, dict[str, Json]] = {
    "greet_keeper": {"content": [{"type": "text", "text": "Good evening, says the keeper: «blåne» \U0001f5fc"}]},
    "paint_lighthouse": {
        "content": [
            {"type": "text", "text": "a picture"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ]
    },
    "measure_lighthouse": {
        "content": [{"type": "text", "text": json.dumps(FIGURES, ensure_ascii=False)}],
        "structuredContent": FIGURES,
    },
    "climb_lighthouse": {"content": [{"type": "text", "text": WRONG}], "isError": True},
}


def answered(message: Json) -> dict[str, Json]:
    """Return the answer to a request, but for a call that asks the person."""
    params = message.get("params") or {}
    results: dict[str, Json] = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "witness", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "tools/call": RESULTS.get(params.get("name", "")),
        "ping": {},
    }
    head = {"jsonrpc": "2.0", "id": message["id"]}
    result = results.get(message["method"])
    if result is None:
        return {**head, "error": {"code": -32601, "message": f"no {message['method']}"}}
    return {**head, "result": result}


def _write(message: Json) -> None:
    print(json.dumps(message), flush=True)


def _note(params: Json) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith(("V_", "AWS_"))}
    started = {"argv": sys.argv[1:], "env": dict(sorted(variables.items())), "cwd": str(Path.cwd())}
    with Path(f"{__file__}.jsonl").open("a") as file:
        file.write(json.dumps({**started, "greeting": params}) + "\n")


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def main() -> None:
    """Serve until the end of the input; a choice is answered with what the person said."""
    choosing: Json = None
    if "--until" in sys.argv:
        _wait_for(Path(sys.argv[sys.argv.index("--until") + 1]))
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            _note(message["params"])
        if message.get("method") == "tools/call" and message["params"]["name"] == "choose_lighthouse":
            choosing = message["id"]
            _write({"jsonrpc": "2.0", "id": "choice", "method": "elicitation/create", "params": ASKED})
        elif message.get("id") == "choice":
            text = json.dumps(message.get("result") or message.get("error"))
            _write({"jsonrpc": "2.0", "id": choosing, "result": {"content": [{"type": "text", "text": text}]}})
        elif "id" in message:
            _write(answered(message))


if __name__ == "__main__":
    main()
