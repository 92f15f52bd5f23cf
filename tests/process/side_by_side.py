"""One script of requests for a server itself and for the program in front of it, and what each answers."""

from __future__ import annotations

from typing import Protocol

from msgspec import Raw

from dynamic_mcp.mcp import wire
from tests.program import Json

HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
SCRIPT: list[tuple[str, Json]] = [
    ("initialize", HELLO),
    ("ping", None),
    ("tools/call", {"name": "rich", "arguments": {}}),
    ("tools/call", {"name": "fail"}),
    ("tools/call", {"name": "echo", "arguments": {"text": 7, "more": [1.0]}}),
    ("tools/call", {"name": "nothing"}),
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "full://text"}),
    ("resources/subscribe", {"uri": "full://text"}),
    ("resources/unsubscribe", {"uri": "full://text"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"city": "Oslo"}}),
    ("logging/setLevel", {"level": "error"}),
    ("tasks/list", {}),
    ("vendor/echo", {"n": 1.0}),
    ("vendor/nothing", {}),
]


class Server(Protocol):
    """Whatever answers."""

    async def exchange(self, method: str, params: Json = None) -> bytes: ...


async def play(server: Server) -> list[Json]:
    """Return all that is answered, with every value and every list entry as the bytes that came."""
    answers = []
    for method, params in SCRIPT:
        frame = wire.parse(await server.exchange(method, params))
        members = wire.members(frame.result if len(frame.result) else frame.error)
        answers.append((method, {name: _pieces(each) for name, each in members.items()}))
    return answers


def _pieces(data: Raw) -> list[bytes]:
    return [bytes(each) for each in (wire.elements(data) if bytes(data).startswith(b"[") else [data])]
