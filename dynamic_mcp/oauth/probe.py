"""Asks a server whether it wants a login, by starting a session. Imports httpx2: for commands only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx2

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from dynamic_mcp.oauth.web import TIMEOUT_S, explain

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
class ProbeResult:
    """How a server has answered: the status and the challenge; without a status, `reason` says why."""

    status: int | None
    challenge: BearerChallenge = field(default_factory=BearerChallenge)
    reason: str = ""

    def is_open(self) -> bool:
        """Tell whether the server accepted the request."""
        return self.status is not None and self.status < 300


async def probe(remote: Remote, token: str | None = None) -> ProbeResult:
    """Start a session with a server, with or without a token, and end it at once."""
    headers = {**remote.headers, "Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
            async with client.stream("POST", remote.url, json=_HELLO, headers=headers) as answer:
                result = ProbeResult(answer.status_code, parse_challenge(answer.headers.get_list("www-authenticate")))
            if session := answer.headers.get("mcp-session-id"):
                await client.delete(remote.url, headers={**headers, "Mcp-Session-Id": session})
            return result
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as exc:
        return ProbeResult(None, reason=f"the server {explain(exc)}")
