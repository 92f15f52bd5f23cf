"""An authorization server without any socket, a person's browser, and a client that begins and ends logins."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from dynamic_mcp.config.auth import LoginAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.features.login_server.client_metadata import FetchedDocument, FetchError
from dynamic_mcp.features.login_server.identity import Identify, LoginIdentityProvider
from dynamic_mcp.features.login_server.provider import LoginProvider
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.shared_store import SharedStore

Json = Any  # whatever JSON a test writes down

ORIGIN = "https://mcp.example.com"
URL = f"{ORIGIN}/mcp"
is_shared = False
"""Whether `open_site` keeps what it knows in a store that replicas share."""
REDIRECT = "https://client.example/callback"
VERIFIER = "v" * 43
CHALLENGE = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


def forwarded(head: RequestHead) -> Authentication | None:
    """Tell who a reverse proxy says that this is."""
    user = head.headers.get(b"x-forwarded-user", b"").decode()
    claims = (("groups", ("dev", "ops")),)
    return (
        Authentication(Principal("forwarded", user), "forwarded", roles=("reader",), claims=claims) if user else None
    )


class Web:
    """The documents of clients that can be fetched, by their URLs; `fetched` are those that were."""

    def __init__(self) -> None:
        self.documents: dict[str, FetchedDocument] = {}
        self.fetched: list[str] = []

    def publish(self, url: str, content: Json, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.documents[url] = FetchedDocument(status, {"content-type": "application/json", **given}, body)

    async def fetch(self, url: str) -> FetchedDocument:
        self.fetched.append(url)
        if url not in self.documents:
            raise FetchError("did not answer in time")
        return self.documents[url]


class Site:
    """A server with its provider `login`, as programs reach it."""

    def __init__(self, provider: LoginProvider, clock: Clock, web: Web) -> None:
        self.provider = provider
        self.clock = clock
        self.web = web

    async def ask(
        self, method: str, target: str, body: bytes = b"", peer: str = "9.9.9.9", /, **headers: str
    ) -> Response:
        """Send a request."""
        path = target.encode().removeprefix(ORIGIN.encode())
        page = self.provider.find_page(method, path.partition(b"?")[0])
        assert page is not None, f"there is no {method} {target}"
        given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return await page(PageRequest(RequestHead(method, path, given, peer=peer), body))

    async def post_form(self, path: str, fields: Json, **headers: str) -> Response:
        """Post a form, as programs do."""
        headers = {"content-type": "application/x-www-form-urlencoded", **headers}
        return await self.ask("POST", path, urlencode(fields, doseq=True).encode(), **headers)

    async def register(self, *redirects: str, peer: str = "9.9.9.9", **metadata: Json) -> Response:
        """Register a client."""
        body = json.dumps({"redirect_uris": redirects or [REDIRECT], "client_name": "Client", **metadata}).encode()
        return await self.ask("POST", "/register", body, peer, content_type="application/json")

    async def client(self, *redirects: str, **metadata: Json) -> str:
        """Return the id of a new client."""
        response = await self.register(*redirects, **metadata)
        assert response.status == 201, response
        return str(json_of(response)["client_id"])

    async def log_in(self, user: str = "ann", client_id: str | None = None, **fields: str) -> Json:
        """Return the tokens of a login, and the id of its client beside them."""
        id = client_id or await self.client()
        code = await self.code(user, id, **fields)
        response = await self.redeem(id, code)
        assert response.status == 200, response
        return {**json_of(response), "client_id": id}

    async def code(self, user: str, client_id: str, **fields: str) -> str:
        """Return the code that a client gets when a person allows it."""
        browser = Browser(self, user)
        await browser.open(authorize_url(client_id, **fields))
        return query_of(await browser.submit("allow"))["code"]

    async def redeem(self, client_id: str, code: str, /, **fields: str) -> Response:
        """Post a code."""
        own = {"grant_type": "authorization_code", "code": code, "client_id": client_id, "code_verifier": VERIFIER}
        return await self.post_form("/token", {**own, **fields})

    async def refresh(self, tokens: Json, **fields: str) -> Response:
        """Post the refresh token of a login."""
        own = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        return await self.post_form("/token", {**own, "client_id": tokens["client_id"], **fields})

    async def authenticate(self, token: str, path: str = "/mcp") -> AuthResult:
        """Return what the server makes of an access token."""
        head = RequestHead("POST", path.encode(), {})
        if not self.provider.recognises(head, token):
            return CredentialDenial("invalid_token", "nobody recognises it")
        outcome = self.provider.authenticate(head, token)
        return outcome if isinstance(outcome, AuthResult) else await outcome

    async def is_good(self, token: str, path: str = "/mcp") -> bool:
        """Tell whether an access token lets somebody in."""
        return isinstance(await self.authenticate(token, path), Authentication)


@asynccontextmanager
async def open_site(
    folder: Path,
    *,
    who: LoginIdentityProvider | Identify = forwarded,
    clock: Clock | None = None,
    public_url: str = URL,
    scopes: tuple[str, ...] = ("files",),
    root_path: str = "",
    trusted: tuple[str, ...] = (),
    shared_store: SharedStore | None = None,
) -> AsyncIterator[Site]:
    """Open a server on the database in a folder, as one of its workers does, or on the store of replicas there."""
    http = Http(public_url=public_url, root_path=root_path, trusted_proxies=trusted)
    clock, web = clock or Clock(), Web()
    own = LocalStore(folder / "store.sqlite", clock=clock) if is_shared and shared_store is None else None
    provider = LoginProvider(
        LoginAuth(scopes=scopes),
        http,
        folder / "logins.sqlite",
        who,
        now=clock,
        fetch=web.fetch,
        shared_store=shared_store or own,
    )
    try:
        yield Site(provider, clock, web)
    finally:
        await provider.close()
        if own is not None:
            await own.close()


class Form(HTMLParser):
    """The form of a page, and all text that a person sees."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.tags: list[str] = []
        self.text = ""
        self.feed(response.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "form":
            self.action = given["action"]
        elif tag == "input":
            self.fields[given["name"]] = given["value"]

    def handle_data(self, data: str) -> None:
        self.text += data


class Browser:
    """A person's browser behind a reverse proxy that names the person; it keeps cookies unless it `loses` them."""

    def __init__(self, site: Site, user: str = "ann", *, loses_cookies: bool = False) -> None:
        self.site = site
        self.user = user
        self.loses_cookies = loses_cookies
        self.cookies: dict[str, str] = {}
        self.page = Response(0)

    @property
    def form(self) -> Form:
        return Form(self.page)

    async def open(self, url: str) -> Response:
        """Open a page, which stays on the screen."""
        self.page = self._keep(await self.site.ask("GET", url, **self._headers()))
        return self.page

    async def submit(self, decision: str, /, **changes: str) -> Response:
        """Press a button of the form on the screen."""
        form = self.form
        headers = {"origin": ORIGIN, "sec-fetch-site": "same-origin", **self._headers()}
        return await self.post({**form.fields, "decision": decision, **changes}, **headers)

    async def post(self, fields: dict[str, str], **headers: str) -> Response:
        """Post the form of a consent."""
        return self._keep(await self.site.post_form("/consent", fields, **headers))

    def _headers(self) -> dict[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"x-forwarded-user": self.user, **({"cookie": cookie} if cookie else {})}

    def _keep(self, response: Response) -> Response:
        cookie = header(response, "set-cookie")
        if cookie and not self.loses_cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response


def authorize_url(client_id: str, /, **fields: str) -> str:
    """Return where a client sends a browser; an empty field is left out."""
    own = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": REDIRECT,
        "state": "s-1",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    return f"/authorize?{urlencode({name: value for name, value in {**own, **fields}.items() if value})}"


def header(response: Response, name: str) -> str:
    """Return a header of a response; empty if there is none."""
    return next((value.decode() for key, value in response.headers if key == name.encode()), "")


def json_of(response: Response) -> Json:
    """Return the body, which is JSON."""
    return json.loads(response.body)


def query_of(response: Response) -> dict[str, str]:
    """Return the parameters with which a browser is redirected."""
    assert response.status == 303, response
    pairs = parse_qsl(urlsplit(header(response, "location")).query)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def error_of(response: Response) -> str:
    """Return the error code of an answer to a program."""
    return str(json_of(response)["error"])
