"""The token and revocation endpoints: access tokens for codes and refresh tokens (OAuth 2.1, section 4)."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON, NO_STORE
from dynamic_mcp.features.login_server import grants
from dynamic_mcp.features.login_server.addresses import Addresses, is_within
from dynamic_mcp.features.login_server.client_metadata import is_document_url
from dynamic_mcp.features.login_server.clients import CODE, REFRESH
from dynamic_mcp.features.login_server.forms import Fields, OAuthError, json_response, parse_form
from dynamic_mcp.features.login_server.grants import Family, GrantError, Lifetimes
from dynamic_mcp.features.login_server.records import AccessGrant
from dynamic_mcp.features.login_server.state import UNAVAILABLE, IssueTokens, LoginState, TokenRequest
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.web.jwk import SigningKey

log = logging.getLogger(__name__)

# The delay after which answers that are no longer repeated are deleted together.
_LATER_S = 1.0
_VERIFIER = re.compile(r"[A-Za-z0-9\-._~]{43,128}", re.ASCII)


class TokenIssuer:
    """Issues and revokes tokens. `on_revoke` is called when a login was revoked."""

    def __init__(
        self,
        at: Addresses,
        state: LoginState,
        lifetimes: Lifetimes,
        *,
        now: Callable[[], float],
        on_revoke: Callable[[], object],
    ) -> None:
        self._at = at
        self._state = state
        self._lifetimes = lifetimes
        self._now = now
        self._on_revoke = on_revoke
        self._tasks = TaskSet(log)
        self._forgetting: asyncio.TimerHandle | None = None

    async def answer(self, request: PageRequest) -> Response:
        """Handle POST /token. Raises OAuthError."""
        fields = parse_form(request.head.headers, request.body)
        grant_type = fields.need("grant_type")
        if grant_type not in (CODE, REFRESH):
            raise OAuthError("unsupported_grant_type", f"`grant_type` must be `{CODE}` or `{REFRESH}`")
        _refuse_secret(request, fields)
        client_id = fields.need("client_id")
        wanted = TokenRequest(
            client_id, is_document_url(client_id), self._lifetimes, self._now(), self._issuer(fields)
        )
        answer = await (self._redeem(fields, wanted) if grant_type == CODE else self._refresh(fields, wanted))
        if isinstance(answer, GrantError):
            if answer.is_client_unknown:  # with this error, it registers again
                raise OAuthError("invalid_client", answer.why, 401)
            if answer.was_reused:
                log.warning("the client %s: %s", ascii(client_id[:200]), answer.why)
                self._on_revoke()
            raise OAuthError("invalid_grant", answer.why)
        if grant_type == REFRESH:
            self._forget_answers_later()
        return Response(200, JSON + NO_STORE, answer)

    async def revoke(self, request: PageRequest) -> Response:
        """Handle POST /revoke (RFC 7009): 200, whatever the token was. Raises OAuthError."""
        fields = parse_form(request.head.headers, request.body)
        token, client_id = fields.need("token"), fields.need("client_id")
        await self._state.revoke(token, client_id, self._lifetimes, self._now())
        self._on_revoke()
        return json_response({})

    async def close(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _forget_answers_later(self) -> None:
        """Delete the answer from the database when it is not repeated any more."""
        if self._forgetting is None:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(grants.GRACE_S + _LATER_S, self._forget_answers)

    def _forget_answers(self) -> None:
        self._forgetting = None
        self._tasks.create(self._delete_answers(), name="delete answers with tokens")

    async def _delete_answers(self) -> None:
        try:
            has_more = await self._state.forget_answers(self._now())
        except UNAVAILABLE:
            return  # it was logged; the next refresh deletes them
        if has_more:
            self._forget_answers_later()

    # --- grants ----------------------------------------------------------------------------------------

    async def _redeem(self, fields: Fields, request: TokenRequest) -> bytes | GrantError:
        verifier, redirect_uri = fields.need("code_verifier"), fields.get("redirect_uri")

        def fits(grant: AccessGrant) -> bool:
            # optional in OAuth 2.1, but it must match if it is sent (RFC 6749, section 4.1.3)
            return redirect_uri in (None, grant.redirect_uri) and _fits(verifier, grant)

        return await self._state.redeem_code(fields.need("code"), fits, request)

    async def _refresh(self, fields: Fields, request: TokenRequest) -> bytes | GrantError:
        return await self._state.refresh(fields.need("refresh_token"), request)

    def _issuer(self, fields: Fields) -> IssueTokens:
        """Return the function that creates the answer with the requested tokens."""
        now = self._now()

        def issue(key: SigningKey, family: Family, refresh_token: str | None) -> bytes:
            grant = family.grant
            scopes = _narrow_scopes(fields.get("scope"), grant.scopes)
            audience = [self._at.audience(each) for each in self._narrow_parts(fields.resources, grant.parts)]
            answer = {
                "access_token": self._sign(key, family, scopes, audience, now),
                "token_type": "Bearer",
                "expires_in": int(self._lifetimes.access_s),
            }
            if scopes:
                answer["scope"] = " ".join(scopes)
            if refresh_token is not None:
                answer["refresh_token"] = refresh_token
            return msgspec.json.encode(answer)

        return issue

    def _narrow_parts(self, resources: tuple[str, ...], granted: tuple[str, ...]) -> tuple[str, ...]:
        """Return the parts of the server that a token is for (RFC 8707, section 2.2). Raises OAuthError."""
        requested = [self._at.find_part(each) for each in resources]
        parts = tuple(
            each for each in requested if each is not None and any(is_within(each, part) for part in granted)
        )
        if len(parts) < len(requested):
            raise OAuthError("invalid_target", "`resource` was not granted")
        return parts or granted

    def _sign(self, key: SigningKey, family: Family, scopes: tuple[str, ...], audience: list[str], now: float) -> str:
        """Return an access token (RFC 9068)."""
        from dynamic_mcp.features.login_server import keys

        user = family.grant.user
        claims = {
            "iss": self._at.issuer,
            "aud": audience if len(audience) > 1 else audience[0],
            "sub": user.subject,
            "client_id": family.grant.client_id,
            "iat": int(now),
            "exp": int(now + self._lifetimes.access_s),
            "jti": secrets.token_urlsafe(16),
            "sid": family.id,
            "scope": " ".join(scopes),
            "roles": list(user.roles),
            "claims": {name: list(texts) for name, texts in user.claims},
        }
        return keys.sign_claims(key, claims)


def _fits(verifier: str, grant: AccessGrant) -> bool:
    """Return whether a verifier matches the challenge (RFC 7636, section 4.6)."""
    if _VERIFIER.fullmatch(verifier) is None:
        return False
    from authlib.oauth2.rfc7636 import create_s256_code_challenge

    challenge: str = create_s256_code_challenge(verifier)  # type: ignore[no-untyped-call]
    return hmac.compare_digest(challenge.encode(), grant.challenge.encode())


def _narrow_scopes(scope: str | None, granted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of a token: the requested ones that were granted (RFC 6749, section 6)."""
    if scope is None:
        return granted
    requested = scope.split()
    return tuple(each for each in granted if each in requested)


def _refuse_secret(request: PageRequest, fields: Fields) -> None:
    """Refuse a client that authenticates: clients have no secrets here, so it is for another server."""
    if b"authorization" in request.head.headers or fields.get("client_secret") or fields.get("client_assertion"):
        raise OAuthError(
            "invalid_client", "client secrets are not supported: `token_endpoint_auth_method` is `none`", 401
        )
