"""An MCP server over HTTP that takes only tokens which an issuer has exchanged for it, and says who called.

Its sessions belong to the person who began them: a request of another person in one is a breach, which it notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tests.upstreams.auth_server import Answer, Request, encode_answer, read_requests

Json = Any  # whatever JSON a test writes down

_VERSION = "2025-11-25"


@dataclass
class Manners:
    """How the server behaves; a test changes what it likes."""

    scope_of_calls: str = ""  # what calls need
    rejects: set[str] = field(default_factory=set)  # tokens that are refused although they are valid
    rejects_all: bool = False


class ExchangedMcp:
    """Serves on 127.0.0.1 while it is entered as a context."""

    def __init__(self, issuer: str, keys: KeySet, audience: str = "", *, port: int = 0) -> None:
        self.manners = Manners()
        self.port = port
        self.calls: dict[str, str] = {}  # who called, by the nonce of the call
        self.tokens: list[str] = []  # all that were shown
        self.claims: list[dict[str, Json]] = []  # of each call
        self.breaches: list[str] = []
        self._issuer, self._keys, self._audience = issuer, keys, audience
        self._sessions: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def audience(self) -> str:
        return self._audience or self.url

    @property
    def session_count(self) -> int:
        """How many sessions have not been ended."""
        return len(self._sessions)

    async def __aenter__(self) -> ExchangedMcp:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async for request in read_requests(reader):
                writer.write(encode_answer(self._answer(request)))
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def _answer(self, request: Request) -> Answer:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        self.tokens.append(token)
        claims = self._read(token) if kind == "Bearer" else None
        if claims is None or token in self.manners.rejects or self.manners.rejects_all:
            return Answer(401, {"error": "invalid_token"}, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        needed = self.manners.scope_of_calls if b'"tools/call"' in request.body else ""
        if needed and needed not in claims["scope"].split():
            says = f'Bearer error="insufficient_scope", scope="{needed}"'
            return Answer(403, {"error": "insufficient_scope"}, {"WWW-Authenticate": says})
        if refused := self._check_session(request, claims["sub"]):
            return refused
        if request.method == "DELETE":
            self._sessions.pop(request.headers["mcp-session-id"])
            return Answer(200)
        return self._answer_message(json.loads(request.body), claims) if request.method == "POST" else Answer(405)

    def _read(self, token: str) -> dict[str, Json] | None:
        """Return the claims of a token that is for this server; None for any other, also for that of the caller."""
        try:
            claims = dict(jwt.decode(token, self._keys, algorithms=["RS256"]).claims)
        except (JoseError, ValueError):
            return None
        is_ours = claims.get("iss") == self._issuer and claims.get("aud") == self.audience
        return claims if is_ours and "act" in claims and claims["exp"] > time.time() else None

    def _check_session(self, request: Request, person: str) -> Answer | None:
        id = request.headers.get("mcp-session-id")
        if id is None:
            return None
        owner = self._sessions.get(id)
        if owner is None:
            return Answer(404, {"error": "no such session"})
        if owner != person:
            self.breaches.append(f"{person} in a session of {owner}")
            return Answer(403, {"error": "a session of another person"})
        return None

    def _answer_message(self, message: Json, claims: dict[str, Json]) -> Answer:
        headers: dict[str, str] = {}
        match message.get("method"):
            case "initialize":
                id = f"session-{next(self._numbers)}"
                self._sessions[id] = claims["sub"]
                headers["Mcp-Session-Id"] = id
                result: Json = {
                    "protocolVersion": _VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "exchanged", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object", "properties": {"nonce": {"type": "string"}}}
                result = {"tools": [{"name": "whoami", "inputSchema": schema}]}
            case "tools/call":
                nonce = message["params"].get("arguments", {}).get("nonce", "")
                self.calls[nonce] = claims["sub"]
                self.claims.append(claims)
                text = f"{claims['sub']} by {claims['act']['sub']}"
                result = {"content": [{"type": "text", "text": text}]}
            case _:
                return Answer(202)
        return Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers)
