"""Asking a server whether it wants a login, as a client that begins would. Imports httpx2: only for a command."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx2

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.challenges import Demand, demand
from dynamic_mcp.oauth.web import TIMEOUT_S, explained

_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "dynamic-mcp", "version": __version__},
    },
}


@dataclass(frozen=True)
class Probed:
    """What a server said: its status, None when it said nothing (and `why`), and what it demands."""

    status: int | None
    demand: Demand = field(default_factory=Demand)
    why: str = ""

    def is_open(self) -> bool:
        """Tell whether it let us in."""
        return self.status is not None and self.status < 300


async def probed(remote: Remote, token: str | None = None) -> Probed:
    """Begin a session with a server, with this token or none, and end it at once."""
    headers = {**remote.headers, "Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
            async with client.stream("POST", remote.url, json=_HELLO, headers=headers) as answer:
                found = Probed(answer.status_code, demand(answer.headers.get_list("www-authenticate")))
            if session := answer.headers.get("mcp-session-id"):
                await client.delete(remote.url, headers={**headers, "Mcp-Session-Id": session})
            return found
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as exc:
        return Probed(None, why=f"the server {explained(exc)}")
