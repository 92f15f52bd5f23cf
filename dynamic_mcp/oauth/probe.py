"""Finds out whether a server wants a login, by the first request of a legacy or a modern client.

Imports httpx2: for commands only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx2

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.mcp import envelope, revisions
from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.web.guarded_client import TIMEOUT_S, explain

_OURSELVES = {"name": "dynamic-mcp", "version": __version__}
_LEGACY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": revisions.NEWEST.name, "capabilities": {}, "clientInfo": _OURSELVES},
}
_META = {
    envelope.PROTOCOL_VERSION: revisions.MODERN.name,
    envelope.CLIENT_INFO: _OURSELVES,
    envelope.CLIENT_CAPABILITIES: {},
}
_MODERN = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _META}}
_MODERN_HEADERS = {"MCP-Protocol-Version": revisions.MODERN.name, "Mcp-Method": "server/discover"}
# Statuses with which a modern-only server may answer `initialize`.
_TRY_MODERN = frozenset({400, 404})


@dataclass(frozen=True)
class ProbeResult:
    """The answer of a server: its status and challenge; without a status, `reason` explains the failure."""

    status: int | None
    challenge: BearerChallenge = field(default_factory=BearerChallenge)
    reason: str = ""

    def is_open(self) -> bool:
        return self.status is not None and self.status < 300


async def probe(remote: Remote, token: str | None = None) -> ProbeResult:
    """Send a server its first request, with or without a token; a session that it starts is ended at once."""
    headers = {**remote.headers, "Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
            result = await _send(client, remote.url, _LEGACY, headers)
            if result.status in _TRY_MODERN:
                modern = await _send(client, remote.url, _MODERN, {**headers, **_MODERN_HEADERS})
                result = result if modern.status in _TRY_MODERN else modern
            return result
    except (*REQUEST_ERRORS, TimeoutError, ValueError) as exc:
        return ProbeResult(None, reason=f"the server {explain(exc)}")


async def _send(
    client: httpx2.AsyncClient, url: str, request: dict[str, object], headers: dict[str, str]
) -> ProbeResult:
    async with client.stream("POST", url, json=request, headers=headers) as answer:
        result = ProbeResult(answer.status_code, parse_challenge(answer.headers.get_list("www-authenticate")))
    if session := answer.headers.get("mcp-session-id"):
        await client.delete(url, headers={**headers, "Mcp-Session-Id": session})
    return result
