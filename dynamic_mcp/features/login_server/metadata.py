"""Public documents for clients: the endpoints and their capabilities (RFC 8414), and the public keys (RFC 7517)."""

from __future__ import annotations

from collections.abc import Callable

from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import Headers
from dynamic_mcp.features.login_server import addresses
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.clients import CODE, OFFLINE, REFRESH
from dynamic_mcp.features.login_server.forms import json_response
from dynamic_mcp.features.login_server.state import LoginState

_PUBLIC: Headers = ((b"cache-control", b"public, max-age=300"),)


class Metadata:
    """The documents about the authorization server."""

    def __init__(
        self,
        at: Addresses,
        state: LoginState,
        *,
        now: Callable[[], float],
        access_s: float,
    ) -> None:
        self._at = at
        self._state = state
        self._now = now
        self._access_s = access_s

    async def describe_server(self, request: PageRequest) -> Response:
        """Handle GET /.well-known/oauth-authorization-server."""
        return json_response(self._describe(), headers=_PUBLIC)

    async def describe_provider(self, request: PageRequest) -> Response:
        """Handle GET /.well-known/openid-configuration, which some clients request first.

        This document has further required members (OpenID Connect Discovery, section 3), although there are no ID
        tokens.
        """
        required = {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
        return json_response({**self._describe(), **required}, headers=_PUBLIC)

    async def list_keys(self, request: PageRequest) -> Response:
        """Handle GET /.well-known/jwks.json."""
        keys = await self._state.list_keys(self._now(), self._access_s)
        return json_response({"keys": [key.public_jwk() for key in keys]}, headers=_PUBLIC)

    def _describe(self) -> dict[str, object]:
        at = self._at
        return {
            "issuer": at.issuer,
            "authorization_endpoint": at.url(addresses.AUTHORIZE),
            "token_endpoint": at.url(addresses.TOKEN),
            "registration_endpoint": at.url(addresses.REGISTER),
            "revocation_endpoint": at.url(addresses.REVOKE),
            "jwks_uri": at.url(addresses.JWKS),
            # some clients request all scopes listed here: those of access rules are named where they are missing
            "scopes_supported": [OFFLINE],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": [CODE, REFRESH],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
