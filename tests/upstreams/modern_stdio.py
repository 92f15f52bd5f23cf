"""The server of conformance_modern.py over stdio: one message a line, requests side by side."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .modern_request import INVALID_REQUEST, Json, Refusal
    from .modern_server import ModernServer, read_message
    from .stdin_lines import stdin_lines
else:  # started by its path, as an upstream is
    from modern_request import INVALID_REQUEST, Json, Refusal
    from modern_server import ModernServer, read_message
    from stdin_lines import stdin_lines

_LINE_BYTES = 64 << 20


class _Lines:
    """The one client of this process, and its requests in flight."""

    def __init__(self) -> None:
        self._server = ModernServer()
        self._in_flight: dict[str, asyncio.Task[None]] = {}

    def receive(self, line: bytes) -> None:
        try:
            message = read_message(line)
        except Refusal as refusal:
            self._send({"jsonrpc": "2.0", "error": refusal.error})
            return
        if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
            key = json.dumps(message.get("params", {}).get("requestId"))
            if key in self._in_flight:
                self._in_flight[key].cancel()
            return
        key = json.dumps(message.get("id")) if isinstance(message, dict) else ""
        if key in self._in_flight:
            error = {"code": INVALID_REQUEST, "message": "a request with this id is in flight"}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        answering = self._in_flight[key] = asyncio.create_task(self._answer(message))
        answering.add_done_callback(lambda _: self._in_flight.pop(key))

    async def _answer(self, message: Json) -> None:
        _, answer = await self._server.answer(message, self._send)
        self._send(answer)

    def _send(self, message: Json) -> None:
        sys.stdout.buffer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        sys.stdout.buffer.flush()

    async def end(self) -> None:
        """Drop what is in flight: the client has closed its side."""
        self._server.close()
        tasks = [*self._in_flight.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def serve_stdio() -> None:
    """Serve what comes in on stdin, until it ends."""
    lines = _Lines()
    async for line in stdin_lines(limit=_LINE_BYTES):
        lines.receive(line)
    await lines.end()
