"""An MCP server with as many tools as it is told, and a record of the calls that were in flight together.

It runs by its path, as `fleet.py NAME TOOLS`, and writes a line into `<its own path>.NAME.jsonl` for each call.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

Json = Any  # what a client sent
VERBS = ("list", "create", "update", "close", "search", "export", "merge", "archive", "restore", "assign")
READING = ("list", "search", "export")
NOUNS = ("invoices", "tickets", "branches", "customers", "shipments")
TOGETHER_S = 2.0


def tool_names(number: int) -> list[str]:
    """Return the names of so many tools."""
    names = [f"{verb}_{noun}" for noun in NOUNS for verb in VERBS]
    suffixes = ("", *(f"_{each}" for each in range(2, 3 + number // len(names))))
    return [names[each % len(names)] + suffixes[each // len(names)] for each in range(number)]


def _tool(server: str, name: str) -> Json:
    verb, _, noun = name.partition("_")
    return {
        "name": name,
        "description": f"{verb.capitalize()} {noun.replace('_', ' ')} of {server}. Returns the matching entries with"
        " their id, state and time of the last change; at most 100 at once.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "project": {"type": "string", "description": "The project, as `owner/name`"},
                "state": {"type": "string", "enum": ["open", "closed", "all"], "description": "Which to consider"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many at most"},
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Only those with all labels"},
            },
            "required": ["project"],
        },
        "annotations": {"readOnlyHint": verb in READING},
    }


class Fleet:
    """Answers each call once another one is in flight too, or after a bound."""

    def __init__(self, name: str, number: int) -> None:
        self._tools = [_tool(name, each) for each in tool_names(number)]
        self._name = name
        self._lock = threading.Condition()
        self._in_flight = 0
        self._most = 0

    def serve(self) -> None:
        """Serve until the end of the input."""
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                threading.Thread(target=self._call, args=(message,), daemon=True).start()
            elif "id" in message:
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": self._answer(message)})

    def _answer(self, message: Json) -> Json:
        if message["method"] == "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self._name, "version": "1"},
            }
        return {"tools": self._tools} if message["method"] == "tools/list" else {}

    def _call(self, message: Json) -> None:
        with self._lock:
            self._in_flight += 1
            self._most = max(self._most, self._in_flight)
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._most > 1, TOGETHER_S)
            self._in_flight -= 1
            most = self._most
        record = {"tool": message["params"]["name"], "together": most}
        with Path(f"{__file__}.{self._name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        result = {"content": [{"type": "text", "text": f"done: {message['params']['name']}"}]}
        self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _write(self, message: Json) -> None:
        with self._lock:
            print(json.dumps(message), flush=True)


if __name__ == "__main__":
    Fleet(sys.argv[1], int(sys.argv[2])).serve()
