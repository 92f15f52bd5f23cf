"""Ways to break what a window does when its daemon dies: each is a host that changes what passes between them."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable

from tests.history.harness import Host, Line, Send
from tests.history.record import NOWHERE, Came, is_interrupted, parse

# Takes a line for the client and a function that sends lines to the window; returns what the client gets instead.
Break = Callable[["BrokenWindow", bytes], list[bytes]]


class BrokenWindows:
    """A host whose windows do this to each line for their client."""

    def __init__(self, host: Host, damage: Break) -> None:
        self._host = host
        self._damage = damage

    async def open(self, take: Send) -> Line:
        window = BrokenWindow(take, self._damage)
        window.line = await self._host.open(window.take)
        return window

    async def close(self) -> None:
        await self._host.close()


class BrokenWindow:
    """A window; it remembers the requests of its client by their ids."""

    def __init__(self, take: Send, damage: Break) -> None:
        self.line: Line
        self.requests: dict[int, bytes] = {}
        self._take = take
        self._damage = damage

    def take(self, line: bytes, came: Came = NOWHERE) -> None:
        for each in self._damage(self, line) if line.endswith(b"\n") else [line]:
            self._take(each)

    def send(self, line: bytes) -> None:
        message = parse(line)
        if "method" in message and "id" in message:
            self.requests[message["id"]] = line
        self.line.send(line)

    async def close(self) -> list[weakref.ref[object]]:
        return await self.line.close()


def answer_twice(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Answer twice what was interrupted."""
    return [line, line] if _is_interrupted(line) else [line]


def lose_answer(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Answer nothing that was interrupted."""
    return [] if _is_interrupted(line) else [line]


def cut_line(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Write half a line of what the daemon wrote last, and a whole one after it."""
    return [line[: len(line) // 2] + line] if _is_interrupted(line) else [line]


def send_again(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Send a request again that was interrupted, as if it could not have run."""
    if not _is_interrupted(line):
        return [line]
    window.line.send(window.requests[parse(line)["id"]])
    return []


def withdraw_nothing(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Leave the questions of a dead daemon open."""
    return [] if b"has started anew" in line else [line]


def withdraw_twice(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Withdraw a question that was not asked with each that was."""
    other = line.replace(b'"requestId":', b'"requestId":9')
    return [line, other] if b"has started anew" in line else [line]


def refuse_everything(window: BrokenWindow, line: bytes) -> list[bytes]:
    """Say of results that their requests were interrupted, whether or not a daemon has died."""
    message = parse(line)
    if not isinstance(message.get("result"), dict) or message["id"] % 5:
        return [line]
    text = "`tools/call` may have run, and was not sent again"
    error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": text}}
    return [json.dumps(error).encode() + b"\n"]


def _is_interrupted(line: bytes) -> bool:
    return is_interrupted(parse(line))


# What is broken, and the rule that must see it.
BREAKS: dict[str, tuple[Break, str]] = {
    "answers twice after a kill": (answer_twice, "ANSWER"),
    "answers lost after a kill": (lose_answer, "UNANSWERED"),
    "half lines": (cut_line, "HALF_LINE"),
    "interrupted requests sent again": (send_again, "SENT_TWICE"),
    "questions of the dead left open": (withdraw_nothing, "NOT_WITHDRAWN"),
    "questions withdrawn that were not asked": (withdraw_twice, "CANCELLED_UNASKED"),
    "requests said to be interrupted": (refuse_everything, "INTERRUPTED"),
}
