"""Dynamic client registration (RFC 7591). Any program can register, and can then only ask users for access."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.headers import is_json
from dynamic_mcp.features.login_server.clients import (
    CODE,
    REFRESH,
    ForbiddenClient,
    OAuthClient,
    make_client,
    read_metadata,
)
from dynamic_mcp.features.login_server.forms import OAuthError, json_response
from dynamic_mcp.features.login_server.state import LoginState
from dynamic_mcp.system.rate_limiter import RateLimiter

log = logging.getLogger(__name__)

# Enough for a company whose users all start on one morning behind one address.
_BURST, _EVERY_S = 60, 1.0


class Registration:
    """The registration endpoint."""

    def __init__(self, state: LoginState, forwarding: Forwarding, now: Callable[[], float]) -> None:
        self._state = state
        self._forwarding = forwarding
        self._now = now
        self._limiter = RateLimiter[str](_BURST, _EVERY_S)

    async def answer(self, request: PageRequest) -> Response:
        """Register a client. Raises OAuthError."""
        if not is_json(request.head.headers):
            raise OAuthError("invalid_client_metadata", "`Content-Type` must be `application/json`", 415)
        if not self._limiter.take(self._forwarding.site_of(request.head), self._now()):
            raise OAuthError("temporarily_unavailable", "too many registrations; retry in a minute", 429)
        try:
            client = make_client(secrets.token_urlsafe(16), read_metadata(request.body), has_document=False)
        except ForbiddenClient as exc:
            raise OAuthError(exc.error, exc.why) from None
        now = self._now()
        await self._state.add_client(client, now)
        log.info("registered the client %s: %s", client.id, ascii(client.name or "without a name"))
        return json_response(_describe(client, now), 201)


def _describe(client: OAuthClient, now: float) -> dict[str, object]:
    """Return the registered metadata, with unsupported values replaced (RFC 7591, section 3.2.1)."""
    described: dict[str, object] = {
        "client_id": client.id,
        "client_id_issued_at": int(now),
        "redirect_uris": client.redirect_uris,
        "grant_types": [CODE, REFRESH] if client.may_refresh else [CODE],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    return described if client.name is None else {**described, "client_name": client.name}
