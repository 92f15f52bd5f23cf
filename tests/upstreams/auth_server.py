"""An authorization server and a protected MCP server in one, on loopback, well-mannered unless told otherwise.

It registers clients, checks PKCE, redirect URIs and client secrets, rotates refresh tokens and takes a second use of
one for a theft, as real ones do. A test looks at `requests` to see what it was really sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

Json = Any  # whatever JSON a test writes down


@dataclass(frozen=True)
class Request:
    """What came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True)
class Answer:
    """What goes out."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Grant:
    """What a person has allowed a client, and the tokens that came of it."""

    client: str
    scope: str
    refresh: str = ""
    used: set[str] = field(default_factory=set)
    is_revoked: bool = False


@dataclass
class Manners:
    """How the server behaves; a test changes what it likes."""

    expires_in: float | None = 3600
    scope: str = "tools"  # what the MCP server needs
    scope_of_calls: str = ""  # what it needs for calls, if that is something else
    scopes_supported: list[str] | None = None
    rotates: bool = True
    registers: bool = True
    iss: str | None = ""  # of the callback: "" is the true one, None none
    granted: str | None = None  # other than asked
    prm: Json = field(default_factory=dict)  # changes to the resource's metadata
    metadata: Json = field(default_factory=dict)  # changes to the authorization server's; None removes
    challenges: bool = True  # name the metadata in WWW-Authenticate
    overrides: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)  # by path
    refuses_all_tokens: bool = False
    is_open: bool = False  # the MCP server asks for no token
    is_personal: bool = False  # it offers each grant a tool of its own, `tool_of_N`, and calls name the grant
    is_modern_only: bool = False  # it knows no `initialize`, which comes before the token
    token_delay_s: float = 0.0


class AuthServer:
    """Serves on 127.0.0.1 while it is entered as a context."""

    def __init__(self, manners: Manners | None = None) -> None:
        self.manners = manners or Manners()
        self.requests: list[Request] = []
        self.clients: dict[str, dict[str, Json]] = {}
        self.assertions: set[str] = set()  # those that are exchanged for tokens
        self.port = 0
        self._codes: dict[str, tuple[Grant, dict[str, str]]] = {}
        self._access: dict[str, tuple[Grant, float | None, str]] = {}
        self._grants: list[Grant] = []
        self._arrival = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._numbers = itertools.count(1)
        self._routes: dict[str, Callable[[Request], Answer]] = {
            "/mcp": self._mcp,
            "/.well-known/oauth-protected-resource/mcp": self._prm,
            "/.well-known/oauth-authorization-server": self._metadata,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
            "/revoke": self._revoke,
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    def requests_to(self, path: str) -> list[Request]:
        """Return the requests to a path."""
        return [request for request in self.requests if request.path == path]

    async def wait_for_request(self, path: str, times: int = 1) -> Request:
        """Wait until a path has had `times` requests, and return the last of them."""
        async with asyncio.timeout(60):  # far beyond what anything takes here, also on a busy machine
            while len(self.requests_to(path)) < times:
                await self._arrival.wait()
        return self.requests_to(path)[-1]

    def count_refreshes(self) -> int:
        """Return how often a refresh token was used."""
        return sum(request.form.get("grant_type") == "refresh_token" for request in self.requests_to("/token"))

    def serve_metadata_at(self, path: str) -> None:
        """Serve the metadata of the authorization server also at this path."""
        self._routes[path] = self._metadata

    def move(self, path: str, to: str) -> None:
        """Serve what is at one path at another."""
        self._routes[to] = self._routes.pop(path)

    def answer(self, path: str, document: Json) -> None:
        """Serve this document at a path."""
        self._routes[path] = lambda request: Answer(200, document)

    def remove(self, path: str) -> None:
        """Serve nothing at a path."""
        del self._routes[path]

    def expire(self) -> None:
        """Expire every access token."""
        self._access = {token: (grant, 0.0, scope) for token, (grant, _, scope) in self._access.items()}

    def revoke_all(self) -> None:
        """Revoke every grant, as a user can at the service."""
        for grant in self._grants:
            grant.is_revoked = True

    def revoke(self, number: int) -> None:
        """Revoke one grant, by its number."""
        self._grants[number].is_revoked = True

    def forget_clients(self) -> None:
        """Forget all clients."""
        self.clients.clear()

    def issue(self, client: str = "test", scope: str = "tools") -> dict[str, Json]:
        """Issue tokens without a login."""
        self.clients.setdefault(client, {"redirect_uris": []})
        grant = Grant(client, scope)
        self._grants.append(grant)
        return self._tokens(grant)

    async def __aenter__(self) -> AuthServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    # --- HTTP ------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async for request in read_requests(reader):
                self.requests.append(request)
                self._arrival.set()
                self._arrival = asyncio.Event()
                if request.path == "/token":
                    await asyncio.sleep(self.manners.token_delay_s)
                answer = self._answer(request)
                writer.write(encode_answer(answer))
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def _answer(self, request: Request) -> Answer:
        route = self.manners.overrides.get(request.path) or self._routes.get(request.path)
        return route(request) if route else Answer(404, {"error": "not found"})

    # --- metadata --------------------------------------------------------------------------------------

    def _prm(self, request: Request) -> Answer:
        document = {"resource": self.mcp_url, "authorization_servers": [self.url]}
        if self.manners.scopes_supported is not None:
            document["scopes_supported"] = self.manners.scopes_supported
        return Answer(200, {**document, **self.manners.prm})

    def _metadata(self, request: Request) -> Answer:
        document = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register" if self.manners.registers else None,
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.manners.metadata,
        }
        return Answer(200, {name: value for name, value in document.items() if value is not None})

    # --- the authorization server ----------------------------------------------------------------------

    def _register(self, request: Request) -> Answer:
        wanted = json.loads(request.body)
        client = {**wanted, "client_id": f"client-{next(self._numbers)}"}
        if wanted.get("token_endpoint_auth_method") != "none":
            client["client_secret"] = f"secret-{next(self._numbers)}"
        self.clients[client["client_id"]] = client
        return Answer(201, client)

    def _authorize(self, request: Request) -> Answer:
        asked = request.query
        client = self.clients.get(asked.get("client_id", ""))
        if client is None or asked.get("redirect_uri") not in client["redirect_uris"]:
            return Answer(400, {"error": "invalid_client"})
        grant = Grant(asked["client_id"], self.manners.granted or asked.get("scope", ""))
        self._grants.append(grant)
        code = f"code-{next(self._numbers)}"
        self._codes[code] = grant, asked
        back = {"code": code, "state": asked.get("state", "")}
        if self.manners.iss is not None:
            back["iss"] = self.manners.iss or self.url
        return Answer(302, headers={"Location": f"{asked['redirect_uri']}?{urlencode(back)}"})

    def _token(self, request: Request) -> Answer:
        form = request.form
        client = self._client(request)
        if client is None:
            return Answer(401, {"error": "invalid_client"})
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange(form)
            case "refresh_token":
                return self._refresh(form)
            case "client_credentials":
                grant = Grant(client, self.manners.granted or form.get("scope", ""))
                self._grants.append(grant)
                return Answer(200, self._tokens(grant, with_refresh=False))
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                if form.get("assertion") not in self.assertions:
                    return Answer(400, {"error": "invalid_grant"})
                grant = Grant(client, self.manners.granted or form.get("scope", ""))
                self._grants.append(grant)
                return Answer(200, self._tokens(grant, with_refresh=False))
        return Answer(400, {"error": "unsupported_grant_type"})

    def _client(self, request: Request) -> str | None:
        id, secret = request.form.get("client_id", ""), request.form.get("client_secret")
        kind, _, pair = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            id, secret = (unquote(part) for part in base64.b64decode(pair).decode().split(":", 1))
        client = self.clients.get(id)
        if "client_assertion" in request.form:  # its signature is looked at by the test
            return "assertion"
        return id if client is not None and client.get("client_secret") == secret else None

    def _exchange(self, form: dict[str, str]) -> Answer:
        grant, asked = self._codes.pop(form.get("code", ""), (None, {}))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        same = all(form.get(name) == asked.get(name) for name in ("redirect_uri", "resource"))
        if grant is None or not same or challenge.decode().rstrip("=") != asked.get("code_challenge"):
            return Answer(400, {"error": "invalid_grant"})
        return Answer(200, self._tokens(grant))

    def _refresh(self, form: dict[str, str]) -> Answer:
        shown = form.get("refresh_token", "")
        grant = next((each for each in self._grants if shown in {each.refresh, *each.used} - {""}), None)
        if grant is None or grant.is_revoked:
            return Answer(400, {"error": "invalid_grant", "error_description": "SECRET words of the server"})
        if shown in grant.used:
            grant.is_revoked = True  # RFC 9700, section 4.14.2: somebody has stolen it
            return Answer(400, {"error": "invalid_grant"})
        return Answer(200, self._tokens(grant))

    def _tokens(self, grant: Grant, *, with_refresh: bool = True) -> dict[str, Json]:
        access = f"access-{next(self._numbers)}"
        life = self.manners.expires_in
        self._access[access] = grant, None if life is None else time.time() + life, grant.scope
        tokens: dict[str, Json] = {"access_token": access, "token_type": "Bearer", "scope": grant.scope}
        if life is not None:
            tokens["expires_in"] = life
        if with_refresh and (self.manners.rotates or not grant.refresh):
            if grant.refresh:
                grant.used.add(grant.refresh)
            grant.refresh = f"refresh-{next(self._numbers)}"
            tokens["refresh_token"] = grant.refresh
        return tokens

    def _revoke(self, request: Request) -> Answer:
        token = request.form.get("token", "")
        for grant in self._grants:
            if token == grant.refresh or (token in self._access and self._access[token][0] is grant):
                grant.is_revoked = True
        return Answer(200, {})

    # --- the MCP server --------------------------------------------------------------------------------

    def _mcp(self, request: Request) -> Answer:
        if self.manners.is_modern_only and "mcp-method" not in request.headers:
            return Answer(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "no Mcp-Method"}})
        if self.manners.is_open:
            return _mcp_answer(request)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        grant, until, scope = self._access.get(token, (None, None, ""))
        is_over = until is not None and time.time() >= until
        if kind != "Bearer" or grant is None or grant.is_revoked or is_over or self.manners.refuses_all_tokens:
            where = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
            says = f'Bearer {where}, scope="{self.manners.scope}"' if self.manners.challenges else "Bearer"
            return Answer(401, {"error": "invalid_token"}, {"WWW-Authenticate": says})
        is_call = b'"tools/call"' in request.body
        needed = self.manners.scope_of_calls if is_call and self.manners.scope_of_calls else self.manners.scope
        if not set(needed.split()) <= set(scope.split()):
            says = f'Bearer error="insufficient_scope", scope="{needed}"'
            return Answer(403, {"error": "insufficient_scope"}, {"WWW-Authenticate": says})
        return _mcp_answer(request, self._grants.index(grant) if self.manners.is_personal else None)


def _mcp_answer(request: Request, number: int | None = None) -> Answer:
    if request.method != "POST":
        return Answer(200 if request.method == "DELETE" else 405)
    message = json.loads(request.body)
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    match message.get("method"):
        case "initialize":
            result: Json = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }
        case "tools/list":
            own = [] if number is None else [{**tool, "name": f"tool_of_{number}"}]
            result = {"tools": [tool, *own]}
        case "tools/call":
            text = json.dumps(message["params"].get("arguments")) if number is None else f"grant {number}"
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            return Answer(202)
    return Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


async def read_requests(reader: asyncio.StreamReader) -> AsyncIterator[Request]:
    """Yield the requests of one connection."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        yield Request(method, url.path, dict(parse_qsl(url.query)), headers, body)


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as it is sent."""
    is_raw = isinstance(answer.body, bytes)
    body = answer.body if is_raw else b"" if answer.body is None else json.dumps(answer.body).encode()
    headers = {"Content-Type": "application/json", **answer.headers, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
