"""The response of an authorization server, as the browser's redirect has it.

OAuth 2.1, section 4.1.2; RFC 9207. authlib is not used here: it accepts duplicate parameters, and no error responses.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from msgspec import Struct

_CODE = re.compile(r"[\x20-\x7e]{1,8192}")
_ERROR = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_MAX_FIELDS = 50


class UnexpectedResponse(Exception):
    """Raised for a response that is invalid or belongs to another login; the message is for the user."""


class AuthorizationResponse(Struct, frozen=True):
    """The parameters of the redirect: a code or an error, and maybe the issuer."""

    code: str | None
    error: str | None
    iss: str | None


def parse_response(query: str, state: str) -> AuthorizationResponse:
    """Return the response in a query, if it belongs to the request with this state. Raises UnexpectedResponse."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise UnexpectedResponse("this is not a response to a login") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnexpectedResponse("it has a duplicate parameter")
    return read_response(fields, state)


def read_response(fields: Mapping[str, str], state: str) -> AuthorizationResponse:
    """Return the response in these parameters, if it belongs to the request with this state.

    Raises UnexpectedResponse.
    """
    if not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise UnexpectedResponse("it belongs to another login: its `state` is missing or different")
    code, error = fields.get("code") or None, fields.get("error") or None
    if error is None and (code is None or not _CODE.fullmatch(code)):
        raise UnexpectedResponse("it has no code and no error")
    return AuthorizationResponse(code, error, fields.get("iss"))


def check_issuer(response: AuthorizationResponse, issuer: str, *, is_promised: bool) -> None:
    """Check the issuer of a response (RFC 9207, section 2.4). Raises UnexpectedResponse, without its content.

    `is_promised`: according to its metadata, the authorization server always names itself.
    """
    if response.iss is None:
        if is_promised:
            raise UnexpectedResponse("it does not name its authorization server, although it should")
    elif response.iss != issuer:
        raise UnexpectedResponse("it is from another authorization server")


def read_error_code(error: object) -> str:
    """Return the error code of an authorization server; empty if it is not a valid code."""
    return error if isinstance(error, str) and _ERROR.fullmatch(error) else ""


def quote_error(error: object) -> str:
    """Return the error of an authorization server for a message."""
    code = read_error_code(error)
    return f"`{code}`" if code else "it gave no reason"
