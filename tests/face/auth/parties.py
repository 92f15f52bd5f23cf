"""Whoever authenticates clients in these tests, as a config says, in front of one upstream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dynamic_mcp.config.auth import BearerAuth, Forwarded, NamedToken, Provider
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.auth.token_store import TokenStore
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.host.http_face import make_options
from tests.face.http.parties import HttpClient, Reply, face_of
from tests.fakes import FakeUpstream, Opener

PUBLIC_URL = "https://mcp.example.com/mcp"
METADATA = "/.well-known/oauth-protected-resource"
TOKEN, OTHER_TOKEN = "token-of-the-config-0123456789", "other-token-of-the-config-0123"
BEARER = BearerAuth((NamedToken(TOKEN, "ann", ("reader",)), NamedToken(OTHER_TOKEN, "bob")))
FORWARDED = Forwarded(("10.0.0.0/8", "unix"))


def head_of(peer: str = "127.0.0.1", *, target: str = "/mcp", repeated: str = "", **headers: str) -> RequestHead:
    """Return the head of a request with these headers."""
    fields = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    names = frozenset({repeated.encode()}) if repeated else frozenset()
    return RequestHead(method="POST", target=target.encode(), headers=fields, repeated=names, peer=peer)


@contextlib.asynccontextmanager
async def guarded_face(
    file: Path, *providers: Provider, public_url: str | None = PUBLIC_URL, **options: Any
) -> AsyncIterator[HttpFace]:  # Any: those of `face_of`
    """Run a face that authenticates its clients, as the program does for a config file."""
    http = Http(auth=providers or (BEARER,), public_url=public_url)
    pool = ProviderPool()
    authenticator = pool.make_authenticator(http, file)
    async with face_of(Opener(up=[FakeUpstream()]), authenticator=authenticator, **options) as face:
        served = make_options(http, 1 << 20, own_hosts=("127.0.0.1", "localhost"), accepts_any_address=False)
        face.configure(served, authenticator)
        yield face
        await pool.close()


def client_of(face: HttpFace, token: str = TOKEN, path: str = "/mcp") -> TokenClient:
    """Return a client with a token."""
    return TokenClient(face, token, path)


class TokenClient(HttpClient):
    """A client of a face that sends its token with every request."""

    def __init__(self, face: HttpFace, token: str, path: str = "/mcp") -> None:
        super().__init__(face, path)
        self.token = token

    def send(self, method: str, path: str = "", body: bytes = b"", /, **headers: str) -> Reply:
        """Send a request; an empty `authorization` is none."""
        return super().send(method, path, body, **{"authorization": f"Bearer {self.token}", **headers})


def make_token(store: TokenStore, subject: str = "ann", *, lifetime_s: float | None = None, now: float = 0.0) -> str:
    """Make a token as the command does."""
    return store.create(subject, (), lifetime_s=lifetime_s, now=now)[0]
