"""Requests to the endpoints of an authorization server: authorization URLs, tokens, and their revocation.

authlib writes the requests; this module interprets the answers (RFC 6749, RFC 7009, RFC 7523, RFC 7636). Imports
authlib and httpx2: load this in a thread, and only when a login starts or a token is needed.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import quote
from warnings import catch_warnings

from authlib.common.security import generate_token
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7009.parameters import prepare_revoke_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from dynamic_mcp.web.authorization_response import read_error_code
from dynamic_mcp.web.documents import Document, DocumentError, Documents

if TYPE_CHECKING:
    from dynamic_mcp.web.jwk import SigningKey

ASSERTION_S = 300
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class TokenDenied(Exception):
    """Raised if the authorization server refuses; `code` is its error code (RFC 6749, section 5.2), if valid.

    `answer` is the whole answer, which may repeat what was sent.
    """

    def __init__(self, error: object, answer: Document | None = None) -> None:
        self.code = read_error_code(error)
        self.answer = answer or {}
        what = f"the error `{self.code}`" if self.code else "an unknown error"
        super().__init__(f"answered with {what}")


class TokenRequestFailed(Exception):
    """Raised without a usable answer; the message is the rest of a sentence that starts with the endpoint."""


def create_secret() -> str:
    """Return a new `state`, `nonce` or code verifier."""
    return generate_token(48)


def authorization_url(endpoint: str, client_id: str, verifier: str, **more: str | None) -> str:
    """Return the URL for the browser; `more` are further parameters, without those that are None."""
    challenge = create_s256_code_challenge(verifier)  # type: ignore[no-untyped-call]
    pkce = {"code_challenge": challenge, "code_challenge_method": "S256"}
    url: str = prepare_grant_uri(endpoint, client_id, "code", **more, **pkce)
    return url


def authenticate(client_id: str, method: str, secret: str | None) -> ClientAuth:
    """Return the client authentication by a secret, or by none."""
    match method:
        case "client_secret_basic":  # authlib does not encode the parts (RFC 6749, section 2.3.1)
            return ClientAuth(quote(client_id, safe=""), quote(secret or "", safe=""), method)
        case "client_secret_post":
            return ClientAuth(client_id, secret, method)
    return ClientAuth(client_id, None, "none")


def authenticate_by_key(client_id: str, key: SigningKey, audience: str) -> ClientAuth:
    """Return the client authentication by a signature for an authorization server (`private_key_jwt`)."""
    from authlib.oauth2.rfc7523 import PrivateKeyJWT  # imports cryptography, as the key did

    claims = {"exp": int(time.time()) + ASSERTION_S}
    return ClientAuth(client_id, key.jose_key, PrivateKeyJWT(audience, claims, alg=key.algorithm))


def choose_method(secret: str | None, supported: Collection[str] | None) -> str:
    """Return the authentication method of a client; `supported` is None if the server does not list any."""
    if not secret:
        return "none"
    only_post = supported is not None and "client_secret_basic" not in supported and "client_secret_post" in supported
    return "client_secret_post" if only_post else "client_secret_basic"


async def request_tokens(
    server: Documents, endpoint: str, client: ClientAuth, grant: str, **params: str | None
) -> Document:
    """Return the answer to a token request, unchecked. Raises TokenDenied and TokenRequestFailed."""
    status, answer = await _post(server, endpoint, client, prepare_token_request(grant, "", **params))
    if answer is not None and status < 500 and "error" in answer:
        raise TokenDenied(answer["error"], answer)
    _check_status(status)
    if answer is None:
        raise TokenRequestFailed("returned no token")
    return answer


async def revoke_token(server: Documents, endpoint: str, client: ClientAuth, token: str, kind: str) -> None:
    """Revoke an `access_token` or `refresh_token`, as `kind` says. Raises TokenRequestFailed."""
    body, _ = prepare_revoke_token_request(token, kind)
    status, _ = await _post(server, endpoint, client, body)
    _check_status(status)


async def _post(server: Documents, endpoint: str, client: ClientAuth, body: str) -> tuple[int, Document | None]:
    with catch_warnings(action="ignore"):  # joserfc warns that RFC 9864 renamed `EdDSA`
        _, headers, body = client.prepare("POST", endpoint, {**_FORM}, body)  # type: ignore[no-untyped-call]
    try:
        return await server.post(endpoint, body, headers)
    except DocumentError as exc:
        raise TokenRequestFailed(exc.why) from exc


def _check_status(status: int) -> None:
    if not 200 <= status < 300:
        redirect = ", a redirect that is not followed" if 300 <= status < 400 else ""
        raise TokenRequestFailed(f"answered with HTTP {status}{redirect}")
