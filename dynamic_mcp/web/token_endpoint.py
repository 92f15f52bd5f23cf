"""Requests to a token endpoint: who the client is, and what the answer means.

RFC 6749, sections 2.3 and 5; RFC 7009; RFC 7523.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from dynamic_mcp.config.private import Private
from dynamic_mcp.web.code_flow import read_error_code

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Document, Documents
    from dynamic_mcp.web.jwk import SigningKey

ASSERTION_S = 300
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenDenied(Exception):
    """The authorization server has refused; `code` is its error code (RFC 6749, section 5.2), if it is one."""

    def __init__(self, error: object) -> None:
        self.code = read_error_code(error)
        what = f"the error `{self.code}`" if self.code else "an error, and does not say which"
        super().__init__(f"answered with {what}")


class TokenRequestFailed(Exception):
    """There was no usable answer; the message is the rest of a sentence that begins with the endpoint."""


class ClientAuthentication(Private, frozen=True):
    """Our client at an authorization server, and how it shows who it is.

    A `key` signs for the `audience`, which is the authorization server (`private_key_jwt`).
    """

    shown: ClassVar = ("id", "method")
    id: str
    method: str = "none"
    secret: str | None = None
    key: SigningKey | None = None
    audience: str = ""

    def apply(self, form: dict[str, str]) -> Mapping[str, str]:
        """Add what shows who the client is to a form; return the headers that do."""
        match self.method:
            case "client_secret_basic":  # both parts encoded (RFC 6749, section 2.3.1)
                pair = f"{quote(self.id, safe='')}:{quote(self.secret or '', safe='')}"
                return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
            case "private_key_jwt":
                form |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": self._sign_assertion()}
            case "client_secret_post":
                form |= {"client_id": self.id, "client_secret": self.secret or ""}
            case _:
                form["client_id"] = self.id
        return {}

    def _sign_assertion(self) -> str:
        assert self.key is not None
        now = int(time.time())
        claims = {"iss": self.id, "sub": self.id, "aud": self.audience, "iat": now, "exp": now + ASSERTION_S}
        return self.key.sign({**claims, "jti": secrets.token_urlsafe(32)})


def choose_method(supported: Collection[str] | None) -> str:
    """Return how a client with a secret authenticates, of what the server supports; None is not said."""
    only_post = supported is not None and "client_secret_basic" not in supported and "client_secret_post" in supported
    return "client_secret_post" if only_post else "client_secret_basic"


async def request_tokens(
    server: Documents, endpoint: str, form: Mapping[str, str], client: ClientAuthentication
) -> Document:
    """Return the answer to a request for tokens, whatever is in it. Raises TokenDenied and TokenRequestFailed."""
    status, answer = await _post(server, endpoint, form, client)
    if answer is not None and status < 500 and "error" in answer:
        raise TokenDenied(answer["error"])
    _check_status(status)
    if answer is None:
        raise TokenRequestFailed("sent something that is not a token")
    return answer


async def revoke_token(server: Documents, endpoint: str, token: str, kind: str, client: ClientAuthentication) -> None:
    """Revoke an `access_token` or `refresh_token`, which `kind` is. Raises TokenRequestFailed."""
    status, _ = await _post(server, endpoint, {"token": token, "token_type_hint": kind}, client)
    _check_status(status)


async def _post(
    server: Documents, endpoint: str, form: Mapping[str, str], client: ClientAuthentication
) -> tuple[int, Document | None]:
    from dynamic_mcp.web.documents import DocumentError

    fields = dict(form)
    headers = client.apply(fields)
    try:
        return await server.post(endpoint, form=fields, headers=headers)
    except DocumentError as exc:
        raise TokenRequestFailed(exc.why) from exc


def _check_status(status: int) -> None:
    if not 200 <= status < 300:
        redirect = ", a redirect that is not followed" if 300 <= status < 400 else ""
        raise TokenRequestFailed(f"answered with HTTP {status}{redirect}")
