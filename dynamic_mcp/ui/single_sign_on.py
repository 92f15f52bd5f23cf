"""Logs a person in by the login server of the config: the page is a client of it, like any AI tool.

It finds the server by its metadata, registers, and redeems the code inside of this process (RFC 8414, 7591, 7636).
The access token is kept in the cookie of the page, and renewed with the refresh token that is there too.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from dynamic_mcp.config.auth import LoginAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.http.authenticator import Authenticator, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.system.decoding import decode_as

CALLBACK = "login/callback"
_METADATA = b"/.well-known/oauth-authorization-server"
_FORM = {b"content-type": b"application/x-www-form-urlencoded"}


class SignOnAttempt(Struct, frozen=True):
    """A login that has begun in a browser, which keeps this in a sealed cookie."""

    state: str
    verifier: str
    client_id: str


class SignOnTokens(Struct, frozen=True):
    """What a login has given; the refresh token may be empty."""

    access_token: str
    refresh_token: str = ""


class _Endpoints(Struct, frozen=True):
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str


class _Registered(Struct, frozen=True):
    client_id: str


class SingleSignOn:
    """Logins by the login server of one version of a config; `redirect_uri` is where the browser comes back to."""

    def __init__(self, authenticator: Authenticator, redirect_uri: str) -> None:
        self._authenticator = authenticator
        self._redirect_uri = redirect_uri
        self._client_id = ""

    async def begin(self, head: RequestHead) -> tuple[str, SignOnAttempt]:
        """Return where the browser goes, and what it has to keep. Raises DynamicMcpError."""
        endpoints = await self._find_endpoints(head)
        if not self._client_id:
            metadata = {
                "redirect_uris": [self._redirect_uri],
                "client_name": "dynamic-mcp, the page for people",
                "grant_types": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_method": "none",
            }
            body = msgspec.json.encode(metadata)
            headers = {b"content-type": b"application/json"}
            answer = await self._send(head, "POST", endpoints.registration_endpoint, body, headers)
            self._client_id = decode_as(answer, _Registered).client_id
        pending = SignOnAttempt(secrets.token_urlsafe(24), secrets.token_urlsafe(48), self._client_id)
        challenge = urlsafe_b64encode(sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "state": pending.state,
            "scope": "offline_access",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoints.authorization_endpoint}?{urlencode(query)}", pending

    async def finish(self, head: RequestHead, query: Mapping[str, str], pending: SignOnAttempt) -> SignOnTokens:
        """Return the tokens for the code that a browser comes back with. Raises DynamicMcpError."""
        if not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise DynamicMcpError("the login was not begun in this browser", hint="begin it again")
        if "code" not in query:
            self._client_id = ""  # it may be the registration that is gone
            raise DynamicMcpError(f"the login was refused: {query.get('error', 'no code')[:200]}")
        fields = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self._redirect_uri,
            "client_id": pending.client_id,
            "code_verifier": pending.verifier,
        }
        return await self._ask_for_tokens(head, fields)

    async def renew(self, head: RequestHead, refresh_token: str, client_id: str) -> SignOnTokens | None:
        """Return new tokens; None if the login has ended."""
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
        try:
            return await self._ask_for_tokens(head, fields)
        except DynamicMcpError:
            return None

    async def _ask_for_tokens(self, head: RequestHead, fields: Mapping[str, str]) -> SignOnTokens:
        endpoints = await self._find_endpoints(head)
        answer = await self._send(head, "POST", endpoints.token_endpoint, urlencode(fields).encode(), _FORM)
        return decode_as(answer, SignOnTokens)

    async def _find_endpoints(self, head: RequestHead) -> _Endpoints:
        return decode_as(await self._send(head, "GET", _METADATA.decode(), b"", {}), _Endpoints)

    async def _send(
        self, head: RequestHead, method: str, url: str, body: bytes, headers: Mapping[bytes, bytes]
    ) -> bytes:
        """Have the login server in this process answer a request. Raises DynamicMcpError."""
        path = urlsplit(url).path.encode()
        page = self._authenticator.find_page(method, path)
        if page is None:
            raise DynamicMcpError("the login server is not there")
        own = {**headers, b"host": head.headers.get(b"host", b"")}
        request = RequestHead(method, path, own, peer=head.peer, is_secure=head.is_secure)
        response = await page(PageRequest(request, body))
        if response.status not in (200, 201):
            raise DynamicMcpError(f"the login server has refused it (status {response.status})", hint="log in again")
        return response.body


def find_sign_on(http: Http, authenticator: Authenticator, page_url: str) -> SingleSignOn | None:
    """Return the logins by the login server of a config; None if it has none. `page_url` is that of the page."""
    if http.public_url is None or not any(isinstance(each, LoginAuth) for each in http.auth):
        return None
    return SingleSignOn(authenticator, f"{page_url}/{CALLBACK}")
