"""The authorization endpoint: identifies the user, and asks whether the client may act for them.

`/authorize` never redirects to a client before consent. Any program can register a client, so an automatic redirect,
even with an error, would lead from our address to any other (RFC 9700, section 4.11.2).
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Callable, Collection
from urllib.parse import urlencode

from dynamic_mcp.face.auth.pages import error_page
from dynamic_mcp.face.http.authenticator import AuthRejection, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.responses import NO_STORE
from dynamic_mcp.features.login_server import addresses, store
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.browser import Browsers
from dynamic_mcp.features.login_server.client_metadata import ClientDocuments, is_document_url
from dynamic_mcp.features.login_server.clients import ForbiddenClient, OAuthClient
from dynamic_mcp.features.login_server.consent import ALLOW, DENY, consent_page
from dynamic_mcp.features.login_server.forms import NAME, Fields, OAuthError, parse_fields, parse_form
from dynamic_mcp.features.login_server.identity import Identify, LoginIdentityProvider, NotIdentified, user_of
from dynamic_mcp.features.login_server.records import (
    AccessGrant,
    AuthorizationRequest,
    LoginUser,
    PendingConsent,
    PendingIdentification,
)
from dynamic_mcp.features.login_server.redirects import find_redirect
from dynamic_mcp.features.login_server.state import LoginState
from dynamic_mcp.system.rate_limiter import RateLimiter

log = logging.getLogger(__name__)

_CHALLENGE = re.compile(r"[A-Za-z0-9_\-]{43}", re.ASCII)
_MAX_STATE_CHARS = 4096
_MAX_RESOURCES = 5
_LONGEST_ID = 200
# How often one address may start a login, and have us fetch a document.
_LOGINS, _FETCHES = (60, 1.0), (20, 6.0)
_TOO_MANY = OAuthError("temporarily_unavailable", "too many logins; retry in a minute", 429, is_denial=True)
_EXPIRED_PAGE = OAuthError("invalid_request", "this page has expired or was already used", is_denial=True)


class AuthorizationEndpoint:
    """The pages from the authorization request of a client to the redirect with its code."""

    def __init__(
        self,
        at: Addresses,
        state: LoginState,
        documents: ClientDocuments,
        who: LoginIdentityProvider | Identify,
        *,
        scopes: Collection[str],
        forwarding: Forwarding,
        now: Callable[[], float],
    ) -> None:
        self._at = at
        self._state = state
        self._documents = documents
        self._who = who
        self._scopes = frozenset(scopes)
        self._forwarding = forwarding
        self._logins, self._fetches = RateLimiter[str](*_LOGINS), RateLimiter[str](*_FETCHES)
        self._browsers = Browsers(at.origin, is_https=at.is_https)
        self._now = now

    async def begin(self, request: PageRequest) -> Response:
        """Handle GET /authorize."""
        head = request.head
        if not self._logins.take(self._forwarding.site_of(head), self._now()):
            raise _TOO_MANY
        fields = _query(head)
        authorization = self._read(fields, await self._find_client(head, fields.need("client_id")))
        browser = self._browsers.name(head)
        if callable(self._who):
            return await self._ask(authorization, user_of(self._who(head)), browser)
        question = await self._who.begin()
        pending = PendingIdentification(authorization, store.hash_of(browser), question.kept)
        await self._state.add_request(pending, self._now(), secret=question.state)
        headers = ((b"location", question.url.encode()), self._browsers.cookie(browser))
        return Response(303, (*headers, *NO_STORE))

    async def go_on(self, request: PageRequest) -> Response:
        """Handle GET /login/callback, to which the identity provider redirects."""
        if callable(self._who):
            return error_page("not found", 404)
        head, fields = request.head, _query(request.head)

        def may_take(pending: PendingIdentification) -> bool:
            return not self._browsers.is_other(head, pending.browser)

        pending = await self._state.take_request(fields.need("state"), PendingIdentification, self._now(), may_take)
        if pending is None:
            raise _EXPIRED_PAGE
        user = await self._who.finish(pending.kept, fields.values)
        # a login may be started and finished in different browsers: from here on, only this one knows the secrets
        return await self._ask(pending.request, user, self._browsers.name(head))

    async def decide(self, request: PageRequest) -> Response:
        """Handle POST /consent."""
        head = request.head
        fields = parse_form(head.headers, request.body)
        id, csrf, decision = (fields.need(name) for name in ("request", "csrf", "decision"))
        if decision not in (ALLOW, DENY):
            raise OAuthError("invalid_request", f"`decision` must be `{ALLOW}` or `{DENY}`")
        subject = user_of(self._who(head)).subject if callable(self._who) else None

        def may_take(pending: PendingConsent) -> bool:
            if not hmac.compare_digest(pending.csrf, store.hash_of(csrf)):
                return False
            return self._browsers.may_decide(head, pending.browser) and subject in (None, pending.user.subject)

        pending = await self._state.take_request(id, PendingConsent, self._now(), may_take)
        if pending is None:
            raise _EXPIRED_PAGE
        authorization = pending.request
        code = None if decision == DENY else await self._state.add_code(_granted(pending), self._now())
        log.info(
            "a user %s the client %s access", "denied" if code is None else "granted", ascii(authorization.client.id)
        )
        if code is None:
            why = f"the user denied the client {authorization.client.id[:_LONGEST_ID]!a} access"
            return AuthRejection.of(self._send_back(authorization, {"error": "access_denied"}), why, NAME)
        return self._send_back(authorization, {"code": code})

    # --- the request ---------------------------------------------------------------------------------

    async def _find_client(self, head: RequestHead, id: str) -> OAuthClient:
        """Return the client with this id. Raises OAuthError."""
        if not is_document_url(id):
            client = await self._state.find_client(id)
            if client is None:
                why = (
                    "this server does not know the client id of your application: remove the server from the"
                    " application and add it again, so that it registers again"
                )
                raise OAuthError("invalid_client", why)
            return client
        try:
            cached = await self._documents.find_known(id)
            if cached is None and not self._fetches.take(self._forwarding.site_of(head), self._now()):
                raise _TOO_MANY
            return cached or await self._documents.fetch(id)
        except ForbiddenClient as exc:
            raise OAuthError("invalid_client", exc.why) from None

    def _read(self, fields: Fields, client: OAuthClient) -> AuthorizationRequest:
        """Return the authorization request in these fields. Raises OAuthError."""
        redirect_uri = find_redirect(client.redirect_uris, fields.get("redirect_uri"))
        if redirect_uri is None:
            raise OAuthError("invalid_request", "`redirect_uri` is not registered for this client")
        if fields.need("response_type") != "code":
            raise OAuthError("unsupported_response_type", "`response_type` must be `code`")
        if fields.get("response_mode") not in (None, "query"):
            raise OAuthError("invalid_request", "`response_mode` must be `query`")
        if fields.get("request") or fields.get("request_uri"):
            raise OAuthError("request_not_supported", "request objects are not supported")
        challenge = fields.get("code_challenge") or ""
        if fields.get("code_challenge_method") != "S256" or _CHALLENGE.fullmatch(challenge) is None:
            raise OAuthError("invalid_request", "PKCE with `code_challenge_method` `S256` is required")
        state = fields.get("state")
        if state is not None and len(state) > _MAX_STATE_CHARS:
            raise OAuthError("invalid_request", "`state` is too long")
        scopes = tuple(each for each in dict.fromkeys((fields.get("scope") or "").split()) if each in self._scopes)
        parts = self._read_resources(fields.resources)
        return AuthorizationRequest(client, redirect_uri, challenge, state, scopes, parts)

    def _read_resources(self, resources: tuple[str, ...]) -> tuple[str, ...]:
        parts = [self._at.find_part(each) for each in resources[: _MAX_RESOURCES + 1]]
        if None in parts or len(parts) > _MAX_RESOURCES:
            raise OAuthError("invalid_target", f"`resource` must be `{self._at.audience('')}` or a path below it")
        return tuple(dict.fromkeys(each for each in parts if each is not None)) or ("",)

    # --- the decision ----------------------------------------------------------------------------------

    async def _ask(self, request: AuthorizationRequest, user: LoginUser, browser: str) -> Response:
        csrf = secrets.token_urlsafe(32)
        pending = PendingConsent(request, store.hash_of(browser), store.hash_of(csrf), user)
        id = await self._state.add_request(pending, self._now())
        action, resources = self._at.url(addresses.CONSENT), [self._at.audience(each) for each in request.parts]
        headers = (self._browsers.cookie(browser),)
        return consent_page(pending, action, {"request": id, "csrf": csrf}, resources, headers)

    def _send_back(self, request: AuthorizationRequest, answer: dict[str, str]) -> Response:
        """Redirect to the client (RFC 6749, section 4.1.2), with our issuer (RFC 9207)."""
        if request.state is not None:
            answer["state"] = request.state
        answer["iss"] = self._at.issuer
        separator = "&" if "?" in request.redirect_uri else "?"
        location = f"{request.redirect_uri}{separator}{urlencode(answer)}"
        return Response(303, ((b"location", location.encode()), (b"referrer-policy", b"no-referrer"), *NO_STORE))


def _query(head: RequestHead) -> Fields:
    return parse_fields(head.target.partition(b"?")[2])


def _granted(pending: PendingConsent) -> AccessGrant:
    request = pending.request
    return AccessGrant(
        client_id=request.client.id,
        may_refresh=request.client.may_refresh,
        redirect_uri=request.redirect_uri,
        challenge=request.challenge,
        scopes=request.scopes,
        parts=request.parts,
        user=pending.user,
    )


def to_page(exc: OAuthError | NotIdentified) -> Response:
    """Return the page for a refused request."""
    if isinstance(exc, NotIdentified):
        return error_page(str(exc), 403)
    return error_page(exc.why, exc.status)
