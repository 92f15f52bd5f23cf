"""A service with a login as it answers requests without a token; a test changes one answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.odd_http import Connection

Json = Any  # whatever JSON a document has


@dataclass(frozen=True)
class Reply:
    """One answer: a document, or else a text of this type."""

    status: int = 200
    document: Json = None
    text: str = ""
    kind: str = "text/html"
    headers: Mapping[str, str] = field(default_factory=dict)


REFUSAL = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "authentication required"}}
PAGE = Reply(text="<h1>somebody else's</h1>")
NOT_FOUND = Reply(404, {"error": "not_found"})
PROTECTED = "GET /.well-known/oauth-protected-resource/mcp"
SERVER = "GET /.well-known/oauth-authorization-server"


class HostedService:
    """What is asked of it is in `requests`, in order.

    `changes` are answers by method and path; the one to a `large` message, or to a client that is `named` by itself.
    """

    def __init__(self) -> None:
        self.origin = ""
        self.changes: dict[str, Reply] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def challenge(self, metadata_url: str) -> Reply:
        """Return the refusal of a request without a token."""
        return Reply(401, REFUSAL, headers={"www_authenticate": f'Bearer resource_metadata="{metadata_url}"'})

    def protected_resource(self, **members: Json) -> Reply:
        """Return the document that names the authorization server."""
        return Reply(document={"resource": self.url, "authorization_servers": [self.origin], **members})

    def server(self, **members: Json) -> Reply:
        """Return the document of the authorization server."""
        endpoints = {f"{name}_endpoint": f"{self.origin}/{path}" for name, path in _ENDPOINTS}
        methods = {"code_challenge_methods_supported": ["S256"], "client_id_metadata_document_supported": True}
        return Reply(document={"issuer": self.origin, **endpoints, **methods, **members})

    def answer(self, request: str) -> Reply:
        """Return the answer to a method and a path."""
        answers = {
            "POST /mcp": self.challenge(f"{self.origin}{PROTECTED.removeprefix('GET ')}"),
            PROTECTED: self.protected_resource(),
            SERVER: self.server(),
            "POST /register": Reply(400, {"error": "invalid_redirect_uri"}),
            "GET /authorize": Reply(400, text="<h1>This did not work</h1>"),
            "GET /ui": Reply(401, text="<h1>Log in</h1>"),
        }
        return {**answers, **self.changes}.get(request, NOT_FOUND)

    async def serve(self, connection: Connection) -> None:
        """Answer the requests of a connection."""
        try:
            while True:
                request = await connection.request()
                path = request.path.removesuffix("/") or "/"
                self.requests.append(f"{request.method} {path}")
                large = len(request.body) > 1_000_000 and self.changes.get("large")
                named = "x-forwarded-user" in request.headers and self.changes.get("named")
                reply = large or named or self.answer(f"{request.method} {path}")
                body = reply.text.encode() if reply.document is None else json.dumps(reply.document).encode()
                kind = reply.kind if reply.document is None else "application/json"
                await connection.respond(reply.status, body, content_type=kind, **reply.headers)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()


_ENDPOINTS = (("authorization", "authorize"), ("token", "token"), ("registration", "register"))


@contextlib.asynccontextmanager
async def hosting() -> AsyncIterator[HostedService]:
    """Serve at any port."""
    service, tasks = HostedService(), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(service.serve(Connection(reader, writer))))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=4_000_000)
    service.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
