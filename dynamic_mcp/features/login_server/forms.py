"""Parses queries and forms from clients and browsers, and formats errors (RFC 6749, sections 3.1 and 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON, NO_STORE, Headers

NAME = "login"  # of this provider
_DENIALS = frozenset(("invalid_grant", "invalid_client", "invalid_target", "access_denied"))
_MAX_FIELDS = 60
_MAX_CHARS = 8192
_FORM = b"application/x-www-form-urlencoded"


class OAuthError(Exception):
    """A refused request, with an OAuth error code and a reason without secrets.

    `is_denial` marks the refusal of a client or user, not only of malformed input.
    """

    def __init__(self, error: str, why: str, status: int = 400, *, is_denial: bool = False) -> None:
        super().__init__(why)
        self.is_denial = is_denial or error in _DENIALS
        self.error = error
        self.why = why
        self.status = status

    def to_json(self) -> Response:
        """Return the error as JSON, as the token endpoint sends it."""
        return json_response({"error": self.error, "error_description": self.why}, self.status)


class Fields(Struct, frozen=True):
    """The fields of a query or a form. An empty field counts as missing; only `resource` may be repeated."""

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def need(self, name: str) -> str:
        """Return a field. Raises OAuthError if it is missing."""
        value = self.values.get(name)
        if value is None:
            raise OAuthError("invalid_request", f"`{name}` is missing")
        return value


def parse_fields(encoded: bytes) -> Fields:
    """Parse form-encoded fields. Raises OAuthError."""
    try:
        pairs = parse_qsl(
            encoded.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise OAuthError("invalid_request", "the fields are not form-encoded UTF-8, or too many") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name == "resource" or not value:
            continue
        if name in values:
            raise OAuthError("invalid_request", f"duplicate field `{ascii(name[:40])[1:-1]}`")
        if len(value) > _MAX_CHARS:
            raise OAuthError("invalid_request", f"`{ascii(name[:40])[1:-1]}` is too long")
        values[name] = value
    return Fields(values, tuple(dict.fromkeys(value for name, value in pairs if name == "resource" and value)))


def parse_form(headers: Mapping[bytes, bytes], body: bytes) -> Fields:
    """Parse the body of a POST that must be a form. Raises OAuthError."""
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _FORM:
        raise OAuthError("invalid_request", f"`Content-Type` must be `{_FORM.decode()}`", 415)
    return parse_fields(body)


def json_response(content: object, status: int = 200, headers: Headers = NO_STORE) -> Response:
    """Return a JSON response that must not be stored."""
    return Response(status, JSON + headers, msgspec.json.encode(content))
