"""A server over stdio whose era is odd: `python eras.py KIND LOG`; LOG gets a line for each message that comes.

`silent` ignores methods that it does not know, `crash` ends at one. Those that begin with `slow` answer nothing until
they have two messages: `slow` is modern, `slow-deaf` too and ignores what it does not know, `slow-both` is legacy
once it is greeted. `late` is modern, and reads nothing for longer than a program is given that may be legacy.
`newer` speaks only a revision that nobody knows, `broken` refuses everything, `empty` answers `{}` to all else.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

KIND, LOG = sys.argv[1:]
LEGACY = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": KIND, "version": "1"},
}
MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}


def say(id: object, **members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id, **members}), flush=True)


def answer(id: object, method: str) -> None:
    refusal = {"code": -32601, "message": "no such method"}
    newer = {"code": -32022, "message": "no", "data": {"supported": ["2099-01-01"], "requested": ""}}
    match KIND, method:
        case "newer", _:
            say(id, error=newer)
        case "broken", _:
            say(id, error=refusal)
        case (("late" | "slow" | "slow-both" | "slow-deaf"), "server/discover"):
            say(id, result=MODERN)
        case (("late" | "slow"), "initialize"):
            say(id, error=refusal)
        case "slow-deaf", "initialize":
            pass
        case _, "initialize":
            say(id, result=LEGACY)
        case _, "tools/list":
            say(id, result=TOOLS)
        case "silent", _:
            pass
        case "crash", _:
            sys.exit(3)
        case _:
            say(id, result={})


with Path(LOG).open("a", encoding="utf-8") as log:
    log.write("start\n")
    log.flush()
    messages: Iterator[str] = iter(sys.stdin.readline, "")
    if KIND.startswith("slow"):
        messages = itertools.chain([next(messages), next(messages)], messages)
    if KIND == "late":
        time.sleep(1.7)
    for line in messages:
        message = json.loads(line)
        log.write(f"{message['method']}\n")
        log.flush()
        if "id" in message:
            answer(message["id"], message["method"])
