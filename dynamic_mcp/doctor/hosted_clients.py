"""Checks a service as claude.ai, ChatGPT and their like reach it: from the internet, with a login, by its URL alone.

It sends no credential and changes nothing. What these clients need is in their makers' documents:
https://claude.com/docs/connectors/building/authentication and https://developers.openai.com/apps-sdk/build/auth.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from dynamic_mcp import __version__
from dynamic_mcp.config.auth import Forwarded, Jwt, LoginAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.issuers import issuer_of
from dynamic_mcp.doctor.findings import Finding, Level, config_error, warning
from dynamic_mcp.doctor.front import LARGE_BYTES, WHERE
from dynamic_mcp.doctor.public_url import find_text
from dynamic_mcp.mcp.revisions import NEWEST
from dynamic_mcp.mcp.well_known import metadata_url
from dynamic_mcp.oauth.challenges import parse_challenge
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.system.text import one_line, os_reason
from dynamic_mcp.web.address_policy import resolve_host

_WITHIN_S = 10.0
_MOST_BYTES = 1 << 16
_BROWSER = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)", "accept": "text/html"}
_MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": NEWEST.name,
        "capabilities": {},
        "clientInfo": {"name": "dynamic-mcp doctor", "version": __version__},
    },
}
_ACCEPT = {"accept": "application/json, text/event-stream"}
# Of no client, so it is always refused; by that, it is seen to arrive.
_NO_CLIENT: Mapping[str, object] = {"redirect_uris": []}
# Where people and machines look after a service, below its root.
_PRIVATE_PATHS = ("/ui", "/metrics")
_NGROK = "ngrok-error-code"
_DNS = "add it to DNS, or wait until it is known"

_REDIRECTS = (
    "claude.ai has `https://claude.ai/api/mcp/auth_callback` and `https://claude.com/api/mcp/auth_callback`,"
    " ChatGPT shows its own where the connector is made"
)

# Returns the addresses of a host, or raises OSError.
LookUp = Callable[[str], Awaitable[Sequence[str]]]


class _Answer(Struct, frozen=True):
    """A response, as much as is used of it."""

    status: int
    headers: httpx2.Headers
    text: str

    @property
    def document(self) -> dict[str, object]:
        try:
            document = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


async def check_hosted_clients(
    http: Http, *, lacks_credential: bool = False, plain_port: int | None = None, look_up: LookUp | None = None
) -> list[Finding]:
    """Return what keeps such clients from the public URL, and what others reach through it.

    `lacks_credential`: nothing else looks at large messages. `plain_port` is that of HTTP without TLS: 80 beside 443.
    """
    assert http.public_url is not None
    parts = urlsplit(http.public_url)
    host = parts.hostname or ""
    try:
        async with asyncio.timeout(_WITHIN_S):
            addresses = await (look_up or _look_up)(host)
    except TimeoutError:
        return [warning(WHERE, f"the address of `{host}` was not found within {_WITHIN_S:.0f} s", _DNS)]
    except OSError as exc:
        return [warning(WHERE, f"`{host}` has no address: {os_reason(exc)}", _DNS)]
    is_public = all(ipaddress.ip_address(each.partition("%")[0]).is_global for each in addresses)
    found = [_judge_address(parts.scheme, host, addresses[0], is_public=is_public)]
    try:
        async with httpx2.AsyncClient(timeout=_WITHIN_S, follow_redirects=False) as client:
            visitor = _Visitor(client, http, http.public_url, is_public=is_public)
            found += await visitor.check_plain_http(plain_port)
            found += await visitor.check_endpoint()
            found += await visitor.check_private_places()
            found += await visitor.check_size() if lacks_credential else []
    except httpx2.ConnectError:
        pass  # `check_front` says why
    except REQUEST_ERRORS as exc:
        found.append(warning(WHERE, f"a request without a token failed: {one_line(str(exc)) or type(exc).__name__}"))
    return found


async def _look_up(host: str) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    return await resolve_host(host, 443)


def _judge_address(scheme: str, host: str, address: str, *, is_public: bool) -> Finding:
    if not is_public:
        what = f"`{host}` ({address}) is not reached from the internet, where claude.ai and ChatGPT connect from"
        return Finding(Level.NOTE, WHERE, what, "fine if only clients in this network are to connect")
    if scheme != "https":
        what = "has no TLS: tokens can be read on the way, and claude.ai and ChatGPT connect to `https://` only"
        return warning(WHERE, what, "put a reverse proxy or a tunnel with a certificate in front")
    return Finding(Level.OK, WHERE, f"`{host}` is {address}, an address of the internet")


class _Visitor:
    """A client that knows the URL and nothing else."""

    def __init__(self, client: httpx2.AsyncClient, http: Http, url: str, *, is_public: bool) -> None:
        self._client = client
        self._is_public = is_public
        self._http = http
        self._url = url
        self._root = issuer_of(http)

    async def check_plain_http(self, port: int | None) -> list[Finding]:
        """See whether what is served with TLS is served without it, too."""
        parts = urlsplit(self._url)
        port = 80 if port is None and parts.port in (None, 443) else port
        if parts.scheme != "https" or port is None:
            return []
        try:
            answer = await self._get(f"http://{parts.hostname}:{port}{parts.path}")
        except REQUEST_ERRORS:
            return []  # nothing is there, which is as good as a redirect
        if 300 <= answer.status < 400 and answer.headers.get("location", "").startswith("https://"):
            return [Finding(Level.OK, WHERE, "http leads to https")]
        hint = "redirect it: `return 301 https://$host$request_uri;` in nginx; Caddy does so by itself"
        what = f"`http://{parts.hostname}` answers {answer.status} without TLS, where tokens can be read on the way"
        return [warning(WHERE, what, hint)]

    async def check_endpoint(self) -> list[Finding]:
        """Ask the endpoint without a token, and follow what it says about logins."""
        answer = await self._post(self._url, _MESSAGE)
        if page := _find_interstitial(answer):
            return [page]
        if answer.status == 200:
            return [await self._judge_open_door(answer)]
        if answer.status in (401, 403) or 300 <= answer.status < 400:
            if "jsonrpc" not in answer.document:
                return [self._judge_front(answer)]
            if answer.status == 401:
                found = [self._judge_challenge(answer), *await self._check_names(), *await self._check_login()]
                return [each for each in found if each is not None]
        return []  # `check_front` says why

    async def _judge_open_door(self, answer: _Answer) -> Finding:
        await self._end_session(answer)
        if self._http.auth:
            hint = "does the reverse proxy set a name for everyone? It must set that of a person who has logged in"
            return warning(WHERE, "a request without a credential is let in", hint)
        what = "everyone who reaches it can use every server: no credential is asked for"
        level = Level.WARNING if self._is_public else Level.NOTE
        return Finding(level, WHERE, what, "set `auth` in `settings.http`")

    def _judge_front(self, answer: _Answer) -> Finding:
        """Return the finding about a login or a password of what is in front."""
        has_login = any(isinstance(each, Jwt | LoginAuth) for each in self._http.auth)
        what = f"what is in front asks for a login ({answer.status}), which claude.ai and ChatGPT cannot give"
        hint = "let all but the pages for people pass, since `login` authenticates"
        hint = hint if has_login else "they need `login` in `auth` instead"
        return Finding(Level.WARNING if has_login else Level.NOTE, WHERE, what, hint)

    def _judge_challenge(self, answer: _Answer) -> Finding | None:
        """Return what is wrong with the refusal, by which clients find where to log in."""
        named = parse_challenge(answer.headers.get_list("www-authenticate")).resource_metadata
        expected = metadata_url(self._url)
        if named == expected:
            return Finding(Level.OK, WHERE, f"a request without a token is told to read `{expected}`")
        if named is None:
            hint = "let the reverse proxy pass `WWW-Authenticate` on, and ask for no password itself"
            return warning(WHERE, "the answer 401 does not say where to log in", hint)
        if not urlsplit(named).scheme:
            return warning(WHERE, f"the answer 401 names `{named}`, which is not absolute", "it is not dynamic-mcp's")
        hint = "is `public_url` what clients write, to the last character? What is in front must not change it"
        return warning(WHERE, f"the answer 401 names `{named}`, not `{expected}`", hint)

    async def _check_names(self) -> list[Finding]:
        """See whether a client can give itself a name, as the reverse proxy does for people: tunnels let it pass."""
        for each in self._http.auth:
            if isinstance(each, Forwarded):
                header = each.user.decode()
                answer = await self._post(self._url, _MESSAGE, {header: "dynamic-mcp doctor"})
                if answer.status == 200 and _find_interstitial(answer) is None:
                    await self._end_session(answer)
                    what = f"whoever sends `{header}` has that name, and needs no credential"
                    hint = "let what is in front remove it; behind a tunnel, use `oidc` in the place of `forwarded`"
                    return [config_error(WHERE, what, hint)]
        return []

    async def _check_login(self) -> list[Finding]:
        """Read the metadata of each authorization server, as clients do before a login."""
        document = (await self._get(metadata_url(self._url))).document
        servers = document.get("authorization_servers")
        issuers = [each for each in servers if isinstance(each, str)] if isinstance(servers, list) else []
        if issuers:
            return [each for issuer in issuers for each in await self._check_issuer(issuer)]
        if any(isinstance(each, Jwt | LoginAuth) for each in self._http.auth):
            return []  # `check_public_url` says why there are none
        what = "clients need a token that you give them: claude.ai and ChatGPT take none, and log in"
        return [Finding(Level.NOTE, WHERE, what, "add `login` to `auth`")]

    async def _check_issuer(self, issuer: str) -> list[Finding]:
        for url in _list_metadata_urls(issuer):
            answer = await self._get(url)
            if page := _find_interstitial(answer):
                return [page]
            if answer.status == 200 and answer.document:
                found = [*_judge_server(issuer, answer.document)]
                return [*found, *await self._check_registration(issuer, answer.document)]
        hint = "let the reverse proxy pass `/.well-known/` on, with its path as it is and without a password"
        return [warning(WHERE, f"the metadata of the login server `{issuer}` is not there", hint)]

    async def _check_registration(self, issuer: str, document: Mapping[str, object]) -> list[Finding]:
        """See how clients become known, and that what is in front lets them and their users through."""
        endpoint = find_text(document, "registration_endpoint")
        has_documents = document.get("client_id_metadata_document_supported") is True
        if not endpoint and not has_documents:
            hint = f"register them there by hand ({_REDIRECTS}), or let `login` be the server"
            return [warning(WHERE, f"clients cannot register at `{issuer}` by themselves", hint)]
        if issuer != self._root:
            what = f"whether `{issuer}` lets clients register with their redirect URIs is decided there"
            return [
                Finding(Level.NOTE, WHERE, what, "docs/reach-from-anywhere.md has those of claude.ai and ChatGPT")
            ]
        found: list[Finding] = []
        answer = await self._post(endpoint, _NO_CLIENT)
        if not find_text(answer.document, "error"):
            hint = "let the reverse proxy pass `/register` and `/token` on without a password or a login"
            found.append(warning(WHERE, f"clients cannot register: `{endpoint}` is answered {answer.status}", hint))
        page = await self._get(find_text(document, "authorization_endpoint"), _BROWSER)
        if _NGROK in page.headers:
            what = "people see a page of ngrok before they log in, which they have to leave by a button"
            found.append(Finding(Level.NOTE, WHERE, what, "its paid plans have none"))
        return found or [Finding(Level.OK, WHERE, "clients can register, with any redirect URI of https, and log in")]

    async def check_size(self) -> list[Finding]:
        """See whether what is in front refuses a large message, before it is known whose it is."""
        answer = await self._post(self._url, {**_MESSAGE, "padding": "x" * LARGE_BYTES})
        if answer.status != 413 or "jsonrpc" in answer.document:
            return [Finding(Level.OK, WHERE, f"a message of {LARGE_BYTES / 1e6:.1f} MB passes")]
        hint = "`client_max_body_size 64m` in nginx, as `max_message_bytes` has it"
        return [warning(WHERE, f"a message of {LARGE_BYTES / 1e6:.1f} MB is answered 413 by what is in front", hint)]

    async def check_private_places(self) -> list[Finding]:
        """See whether others find what is for those who look after the service."""
        found = [each for path in _PRIVATE_PATHS for each in await self._check_private_place(path)]
        return found or [Finding(Level.OK, WHERE, f"{' and '.join(_PRIVATE_PATHS)} are not open to everyone")]

    async def _check_private_place(self, path: str) -> list[Finding]:
        answer = await self._get(f"{self._root}{path}")
        if answer.status != 200 or _find_interstitial(answer) is not None:
            return []
        hint = f"refuse it in front: `location ^~ {path} {{ return 404; }}` in nginx"
        return [warning(WHERE, f"`{self._root}{path}` is open to everyone, without a login", hint)]

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> _Answer:
        async with self._client.stream("GET", url, headers=headers or {"accept": "application/json"}) as response:
            return await _read(response)

    async def _post(
        self, url: str, document: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> _Answer:
        own = {**_ACCEPT, **(headers or {})}
        async with self._client.stream("POST", url, json=document, headers=own) as response:
            return await _read(response)

    async def _end_session(self, answer: _Answer) -> None:
        if session := answer.headers.get("mcp-session-id"):
            await self._client.delete(self._url, headers={"mcp-session-id": session})


def _list_metadata_urls(issuer: str) -> list[str]:
    """Return where an authorization server has its metadata (RFC 8414, section 3; OpenID Discovery, section 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ]


def _judge_server(issuer: str, document: Mapping[str, object]) -> Iterator[Finding]:
    """Return what clients refuse in the metadata of an authorization server."""
    stated = find_text(document, "issuer")
    if stated.rstrip("/") != issuer.rstrip("/"):
        hint = "clients refuse it: is another service at this URL?"
        yield warning(WHERE, f"the login server `{issuer}` calls itself `{stated}`", hint)
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        yield warning(WHERE, f"the login server `{issuer}` does not offer PKCE with S256, which MCP demands")
    for name in ("authorization_endpoint", "token_endpoint"):
        endpoint = find_text(document, name)
        if urlsplit(endpoint).scheme != urlsplit(issuer).scheme:
            yield warning(WHERE, f"the `{name}` of `{issuer}` is `{endpoint}`", "it must be absolute, with https")


def _find_interstitial(answer: _Answer) -> Finding | None:
    """Return a finding about a page that something on the way has put in the place of the answer."""
    headers = answer.headers
    if _NGROK in headers:
        what = f"ngrok answers with a page of its own ({one_line(headers[_NGROK], 40)})"
        return warning(WHERE, what, "does its agent run, and for this name?")
    if headers.get("cf-mitigated") == "challenge":
        hint = "skip bots and challenges for this host name, by a custom rule in Security of its zone"
        return warning(WHERE, "Cloudflare answers with a challenge, which no program passes", hint)
    is_page = headers.get("content-type", "").startswith("text/html")
    if is_page and answer.status < 300 and "content-security-policy" not in headers:
        hint = "a tunnel, a firewall or a portal on the way shows a page instead; does the URL lead to this service?"
        return warning(WHERE, f"a page of HTML comes instead of an answer ({answer.status})", hint)
    return None


async def _read(response: httpx2.Response) -> _Answer:
    """Read what is needed: an answer, or the first event of a stream that may stay open."""
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MOST_BYTES or b"\n\n" in body:
            break
    return _Answer(response.status_code, response.headers, body.decode("utf-8", "replace"))
