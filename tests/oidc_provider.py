"""An OpenID Connect provider on loopback, well-mannered unless told otherwise.

It logs its one user in without a form, checks redirect URIs, PKCE and client secrets, and signs tokens with real
keys, which it changes on demand. A test looks at `requests` to see what it was really asked.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote, urlencode

from tests.signing_keys import key_for, public_jwk, sign
from tests.upstreams.auth_server import Answer, Request, encode_answer, read_requests

Json = Any  # whatever JSON a test writes down

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
OPENID = "/.well-known/openid-configuration"
OAUTH = "/.well-known/oauth-authorization-server"
JWKS, AUTHORIZE, TOKEN, USERINFO = "/jwks", "/authorize", "/token", "/userinfo"
WAIT_S = 10.0


@dataclass
class Person:
    """Who logs in, and what is told about them; `claims` are further ones."""

    sub: str = "u-1"
    email: str | None = "ann@example.com"
    email_verified: bool | None = True
    groups: list[str] | None = None
    claims: dict[str, Json] = field(default_factory=dict)

    def all_claims(self) -> dict[str, Json]:
        """Return the claims that there are."""
        own = {"sub": self.sub, "email": self.email, "email_verified": self.email_verified, "groups": self.groups}
        return {name: value for name, value in {**own, **self.claims}.items() if value is not None}


@dataclass
class Manners:
    """How the provider behaves; a test changes what it likes. A change to None removes a member."""

    metadata: dict[str, Json] = field(default_factory=dict)
    id_token: dict[str, Json] = field(default_factory=dict)  # changes to its claims
    id_token_header: dict[str, Json] = field(default_factory=dict)
    id_token_algorithm: str = "RS256"
    token: dict[str, Json] = field(default_factory=dict)  # changes to the answer of the token endpoint
    callback: dict[str, Json] = field(default_factory=dict)  # changes to what the redirect carries
    refuses: str | None = None  # the error that comes instead of a login
    well_known: tuple[str, ...] = (OPENID,)  # where the metadata is, of `OPENID` and `OAUTH`
    overrides: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)  # by path


class OidcProvider:
    """Serves on 127.0.0.1 while it is entered as a context. The issuer may have a path, such as `/realms/test`."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.person = Person()
        self.manners = Manners()
        self.clients: dict[str, tuple[str | None, tuple[str, ...]]] = {}
        self.requests: list[Request] = []
        self.generation = 1
        self.port = 0
        self._published = {1}
        self._codes: dict[str, tuple[Person, dict[str, str]]] = {}
        self._access: dict[str, Person] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._numbers = itertools.count(1)
        self._arrival = asyncio.Event()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}{JWKS}"

    def register(self, client_id: str, *redirect_uris: str, secret: str | None = None) -> None:
        """Register a client, public if it has no secret."""
        self.clients[client_id] = secret, redirect_uris

    def rotate(self, *, keeps_old: bool = False) -> None:
        """Sign with new keys from now on, and publish only them, or the old ones, too."""
        self.generation += 1
        self._published = {*self._published, self.generation} if keeps_old else {self.generation}

    def kid(self, algorithm: str, generation: int | None = None) -> str:
        """Return the id of the key that signs by this algorithm now, or has signed in an earlier generation."""
        family = algorithm if algorithm.startswith("ES") else algorithm[:2]
        return f"{family}-{generation or self.generation}"

    def mint(
        self,
        audience: Json,
        *,
        algorithm: str = "RS256",
        life_s: float = 600,
        header: dict[str, Json] | None = None,
        **claims: Json,
    ) -> str:
        """Return an access token (RFC 9068) for the user; members and claims that are None are left out."""
        now = int(time.time())
        own = {"iss": self.issuer, "sub": self.person.sub, "aud": audience, "iat": now, "exp": now + life_s}
        return self._sign(algorithm, {"typ": "at+jwt", **(header or {})}, {**own, **claims})

    # --- what a test sees and does ---------------------------------------------------------------------

    def requests_to(self, path: str) -> list[Request]:
        """Return the requests to a path below the issuer's, such as `JWKS`, or to a path as it was sent."""
        return [request for request in self.requests if request.path in (path, self.path + path)]

    def count(self, path: str) -> int:
        """Return how many requests a path has had."""
        return len(self.requests_to(path))

    async def wait_for_request(self, path: str, times: int = 1) -> Request:
        """Wait until a path has had so many requests, and return the last of them."""
        async with asyncio.timeout(WAIT_S):
            while self.count(path) < times:
                await self._arrival.wait()
        return self.requests_to(path)[-1]

    def hold(self, path: str) -> None:
        """Answer no request to a path until `release`."""
        self._held[self.path + path] = asyncio.Event()

    def release(self, path: str) -> None:
        """Answer what was held, and what comes."""
        self._held.pop(self.path + path).set()

    def fail(self, path: str, status: int = 500) -> None:
        """Answer a path with an error until `mend`."""
        self.manners.overrides[self.path + path] = lambda request: Answer(status, {"error": "server_error"})

    def mend(self, path: str) -> None:
        """Answer a path as usual again."""
        self.manners.overrides.pop(self.path + path, None)

    # --- HTTP ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Be gone, as a provider that has crashed; entering it again brings it back at the same port."""
        self._server.close()
        tasks = list(self._connections)
        for task, writer in self._connections.items():
            task.cancel()
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                async for request in read_requests(reader):
                    writer.write(encode_answer(await self._take(request)))
                    await writer.drain()
        finally:
            del self._connections[task]
            writer.close()

    async def _take(self, request: Request) -> Answer:
        self.requests.append(request)
        self._arrival.set()
        self._arrival = asyncio.Event()
        if (held := self._held.get(request.path)) is not None:
            await held.wait()
        route = self.manners.overrides.get(request.path) or self._routes().get(request.path)
        return route(request) if route else Answer(404, {"error": "not found"})

    def _routes(self) -> dict[str, Callable[[Request], Answer]]:
        routes: dict[str, Callable[[Request], Answer]] = {
            self.path + JWKS: self._jwks,
            self.path + AUTHORIZE: self._authorize,
            self.path + TOKEN: self._token,
            self.path + USERINFO: self._userinfo,
        }
        for form in self.manners.well_known:
            # OpenID Connect Discovery appends to the issuer's path; RFC 8414 inserts before it.
            routes[self.path + form if form == OPENID else form + self.path] = self._metadata
        return routes

    # --- endpoints -------------------------------------------------------------------------------------

    def _metadata(self, request: Request) -> Answer:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}{AUTHORIZE}",
            "token_endpoint": f"{self.issuer}{TOKEN}",
            "userinfo_endpoint": f"{self.issuer}{USERINFO}",
            "jwks_uri": self.jwks_url,
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": list(ALGORITHMS),
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return Answer(200, _change(document, self.manners.metadata))

    def _jwks(self, request: Request) -> Answer:
        keys = [
            public_jwk(key_for(algorithm, generation), kid=self.kid(algorithm, generation), use="sig")
            for generation in sorted(self._published)
            for algorithm in ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
        ]
        return Answer(200, {"keys": keys})

    def _authorize(self, request: Request) -> Answer:
        asked = request.query
        client = self.clients.get(asked.get("client_id", ""))
        if client is None or asked.get("redirect_uri") not in client[1]:
            return Answer(400, {"error": "invalid_request"})
        back: dict[str, Json] = {"state": asked.get("state"), "iss": self.issuer}
        is_good = asked.get("response_type") == "code" and "openid" in asked.get("scope", "").split()
        if self.manners.refuses or not is_good or asked.get("code_challenge_method") != "S256":
            back["error"] = self.manners.refuses or "invalid_request"
        else:
            back["code"] = f"code-{next(self._numbers)}"
            self._codes[back["code"]] = self.person, asked
        query = urlencode(_change(back, self.manners.callback))
        joint = "&" if "?" in asked["redirect_uri"] else "?"
        return Answer(302, headers={"Location": f"{asked['redirect_uri']}{joint}{query}"})

    def _token(self, request: Request) -> Answer:
        form = request.form
        client_id = self._authenticate_client(request)
        if client_id is None:
            return Answer(401, {"error": "invalid_client"})
        person, asked = self._codes.pop(form.get("code", ""), (None, {}))
        is_same = form.get("redirect_uri") == asked.get("redirect_uri") and client_id == asked.get("client_id")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        is_proven = base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked.get("code_challenge")
        if form.get("grant_type") != "authorization_code" or person is None or not is_same or not is_proven:
            return Answer(400, {"error": "invalid_grant"})
        access = f"access-{next(self._numbers)}"
        self._access[access] = person
        answer = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": 600,
            "scope": asked["scope"],
            "id_token": self._id_token(person, client_id, asked.get("nonce")),
        }
        return Answer(200, _change(answer, self.manners.token), {"Cache-Control": "no-store"})

    def _authenticate_client(self, request: Request) -> str | None:
        client_id, secret = request.form.get("client_id", ""), request.form.get("client_secret")
        kind, _, pair = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            client_id, secret = (unquote(part) for part in base64.b64decode(pair).decode().split(":", 1))
        client = self.clients.get(client_id)
        return client_id if client is not None and client[0] == secret else None

    def _id_token(self, person: Person, client_id: str, nonce: str | None) -> str:
        now = int(time.time())
        own = {"iss": self.issuer, "aud": client_id, "iat": now, "exp": now + 300, "auth_time": now, "nonce": nonce}
        manners = self.manners
        claims = {**person.all_claims(), **own, **manners.id_token}
        return self._sign(manners.id_token_algorithm, {"typ": "JWT", **manners.id_token_header}, claims)

    def _userinfo(self, request: Request) -> Answer:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        person = self._access.get(token) if kind == "Bearer" else None
        return Answer(200, person.all_claims()) if person else Answer(401, {"error": "invalid_token"})

    def _sign(self, algorithm: str, header: dict[str, Json], claims: dict[str, Json]) -> str:
        own: dict[str, Json] = {"alg": algorithm, "kid": self.kid(algorithm)}
        key = key_for(algorithm, self.generation)
        return sign(_change(own, header), _change({}, claims), key, by=algorithm)


def _change(document: dict[str, Json], changes: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in {**document, **changes}.items() if value is not None}
