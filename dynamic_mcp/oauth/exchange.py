"""The credentials of one person at one server: the person's own token, exchanged for one that the server accepts.

Nothing is written: each process exchanges for itself. A token that was got is used no longer than the token that it
was got for is valid, so that access ends with the caller's own.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import TokenNeeded, Unreachable
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.oauth.caller_tokens import CallerToken, CallerTokens
from dynamic_mcp.oauth.challenges import parse_challenge
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.web.address_policy import AddressPolicy

if TYPE_CHECKING:
    from dynamic_mcp.web.endpoints import TokenDenied

log = logging.getLogger(__name__)

# After a failure while the current token is still valid, the next attempt waits this long.
RETRY_AFTER_S = 30.0
# A token of a caller that was refused is not shown again so soon.
REFUSED_FOR_S = 10.0
# If the server rejects a token this soon after it was issued, another one would not help.
_FRESH_S = 5.0
# How long a token is used that does not say when it expires, and how long any is.
_UNKNOWN_S, _LONGEST_S = 300.0, 24 * 3600.0
# How long the endpoint is used that the issuer's metadata has named.
_METADATA_S = 3600.0
_LONGEST_CLAIMS = 1000

# What is wrong with us, and not with a caller (RFC 6749, section 5.2).
_OUR_FAULTS = frozenset({"invalid_client", "unauthorized_client", "unsupported_grant_type"})
_NEEDS_PERSON = frozenset({"interaction_required", "login_required", "consent_required"})
_HINTS = {
    "invalid_grant": "show a new token: this one may have expired, be revoked, or be for another audience",
    "invalid_target": "check `audience` and `resource` in `oauth.exchange`: the issuer knows no such server",
    "invalid_scope": "check `oauth.scopes`: the issuer does not grant them",
}


@dataclass(frozen=True)
class _Endpoint:
    """Where tokens are exchanged, and how our client may authenticate there.

    `named_by` is the URL of whom named it: it may lead to no network that this one is not in.
    """

    url: str
    named_by: str
    issuer: str | None = None
    methods: tuple[str, ...] | None = None


class Exchanges:
    """The credentials of each person at each server that exchanges tokens."""

    def __init__(self, tokens: CallerTokens, now: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._now = now
        self._issuers: dict[str, _Issuer] = {}
        self._found: dict[tuple[str, Principal | None], list[ExchangedCredentials]] = {}

    def authorization(self, group: str, remote: Remote) -> ExchangedCredentials:
        """Return the credentials of a group, the same for the same server and person."""
        same = self._found.setdefault((group, remote.login_of), [])
        found = next((each for each in same if each.remote == remote), None)
        if found is None:
            name = remote.oauth.issuer or ""
            issuer = self._issuers.setdefault(name, _Issuer(name, self._now))
            found = ExchangedCredentials(group, remote, self._tokens, issuer, now=self._now)
            same.append(found)
        return found

    def forget(self, person: Principal) -> None:
        """Drop what was got for a person who has disconnected; a link that is closing has its own until it has."""
        for key in [each for each in self._found if each[1] == person]:
            del self._found[key]

    def close(self) -> None:
        """End the exchanges that run."""
        for credentials in (each for found in self._found.values() for each in found):
            credentials.close()
        for issuer in self._issuers.values():
            issuer.close()
        self._found.clear()


class _Issuer:
    """An issuer of tokens of callers, and where its metadata says that they are exchanged."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self._name = name
        self._now = now
        self._discovery: asyncio.Task[_Endpoint] | None = None
        self._endpoint: _Endpoint | None = None
        self._until = float("-inf")

    async def find_endpoint(self) -> _Endpoint:
        """Return the token endpoint. Raises DocumentError and MetadataError.

        All who wait share one request, and its failure: in turn, the last would wait as many times as long.
        """
        if self._endpoint is not None and self._now() < self._until:
            return self._endpoint
        if self._discovery is None or self._discovery.done():
            self._discovery = asyncio.create_task(self._discover(), name=f"metadata of {self._name}")
        self._endpoint = await asyncio.shield(self._discovery)
        self._until = self._now() + _METADATA_S
        return self._endpoint

    def close(self) -> None:
        """End a request that runs."""
        if self._discovery is not None:
            self._discovery.cancel()

    async def _discover(self) -> _Endpoint:
        from dynamic_mcp.web.documents import open_documents
        from dynamic_mcp.web.metadata import MetadataError, check_endpoints, fetch_metadata

        policy = AddressPolicy(self._name)
        async with open_documents(policy) as web:
            document = await fetch_metadata(web, self._name)
        check_endpoints(policy, document, ["token_endpoint"])
        url, methods = document.get("token_endpoint"), document.get("token_endpoint_auth_methods_supported")
        if not isinstance(url, str):
            raise MetadataError(f"the metadata of `{self._name}` names no token endpoint")
        names = tuple(each for each in methods if isinstance(each, str)) if isinstance(methods, list) else None
        return _Endpoint(url, self._name, self._name, names)


class ExchangedCredentials:
    """Credentials of one person at one server, shared by all requests to it. Implements ServerCredentials."""

    def __init__(
        self,
        group: str,
        remote: Remote,
        tokens: CallerTokens,
        issuer: _Issuer,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.remote = remote
        self._group = group
        self._tokens = tokens
        self._issuer = issuer
        self._now = now
        self._token: Token | None = None
        self._replacement = ""
        self._retry_at = float("-inf")
        self._refusal: tuple[CallerToken, TokenNeeded, float] | None = None
        self._exchange: asyncio.Task[Token] | None = None

    def __repr__(self) -> str:
        return f"<ExchangedCredentials {self._group}>"

    def close(self) -> None:
        """Drop the token, and end an exchange that runs."""
        self._token = None
        if self._exchange is not None:
            self._exchange.cancel()

    # --- ServerCredentials -----------------------------------------------------------------------------

    async def get_header(self) -> str:
        """Return the header to send, after an exchange if it needs one. Raises TokenNeeded and Unreachable."""
        token, now = self._token, self._now()
        if token is None or token.is_expired(now):
            token = await self._share_exchange()
        elif token.is_due(now) and now >= self._retry_at:
            self._begin_exchange()  # until then, the current token is good enough
        return token.header

    async def handle_challenge(self, challenge: Challenge) -> bool:
        """Exchange again, once, if the server rejects the token. Raises TokenNeeded and Unreachable."""
        bearer_challenge = parse_challenge(challenge.www_authenticate)
        if challenge.status == 403 and bearer_challenge.error == "insufficient_scope":
            raise self._lacks_scope(bearer_challenge.scope)
        if challenge.status != 401:
            return False
        token = self._token
        if token is not None and token.header != challenge.authorization:
            return True
        is_replacement = token is not None and token.access == self._replacement
        if token is not None and is_replacement and self._now() - token.obtained_at < _FRESH_S:
            raise self._is_rejected()
        renewed = await self._share_exchange()
        if renewed.header == challenge.authorization:
            raise self._is_rejected()
        self._replacement = renewed.access
        return True

    # --- the exchange ----------------------------------------------------------------------------------

    async def _share_exchange(self) -> Token:
        """Start or join an exchange, and wait for it. It goes on if its caller is cancelled: others wait, too."""
        return await asyncio.shield(self._begin_exchange())

    def _begin_exchange(self) -> asyncio.Task[Token]:
        if self._exchange is None or self._exchange.done():
            self._exchange = asyncio.create_task(self._run(), name=f"token of {self._group}")
            self._exchange.add_done_callback(self._note_end)
        return self._exchange

    def _note_end(self, exchange: asyncio.Task[Token]) -> None:
        """Log a failure in case no caller waits for it."""
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            self._retry_at = self._now() + RETRY_AFTER_S
            group_logger(log, self._group).debug("%s", error)

    async def _run(self) -> Token:
        subject = self._find_subject()
        if subject is None:
            raise self._no_token()
        if self._refusal is not None:
            refused, error, until = self._refusal
            if refused is subject and self._now() < until:
                raise TokenNeeded(self._group, error.reason, hint=error.hint, is_done=error.is_done)
            self._refusal = None
        began = self._now()
        try:
            token = await self._ask(subject)
        except TokenNeeded as exc:
            self._token = None
            self._refusal = subject, exc, self._now() + REFUSED_FOR_S
            raise
        lasts_s = _UNKNOWN_S if token.expires_at is None else min(token.expires_at - token.obtained_at, _LONGEST_S)
        # it was issued after that; and it must not outlive the caller's own
        self._token = replace(token, obtained_at=began, expires_at=min(began + lasts_s, subject.expires_at))
        return self._token

    def _find_subject(self) -> CallerToken | None:
        """Return the token of the caller; one of another issuer may be kept, for another server."""
        person = self.remote.login_of
        is_ours = person is not None and person.issuer == self.remote.oauth.issuer
        return self._tokens.find(person) if person is not None and is_ours else None

    async def _ask(self, subject: CallerToken) -> Token:
        """Return the token for that of a caller. Raises TokenNeeded and Unreachable."""
        for module in ("oauth.tokens", "web.documents", "web.endpoints"):  # so that later imports do not block
            await asyncio.to_thread(importlib.import_module, f"dynamic_mcp.{module}")
        from dynamic_mcp.oauth.tokens import NoGrant
        from dynamic_mcp.web.documents import DocumentError
        from dynamic_mcp.web.endpoints import TokenDenied, TokenRequestFailed
        from dynamic_mcp.web.metadata import MetadataError

        try:
            endpoint = await self._find_endpoint()
        except (DocumentError, MetadataError) as exc:
            raise Unreachable(self._group, f"cannot exchange the caller's token: {exc}") from exc
        try:
            return await self._ask_at(endpoint, subject.value)
        except TokenDenied as exc:
            raise self._denied(endpoint.url, exc, subject) from None
        except (TokenRequestFailed, NoGrant) as exc:
            raise Unreachable(self._group, f"cannot exchange the caller's token: `{endpoint.url}` {exc}") from exc

    async def _ask_at(self, endpoint: _Endpoint, subject: str) -> Token:
        """Raises TokenDenied, TokenRequestFailed and NoGrant."""
        from dynamic_mcp.oauth.tokens import TokenEndpoint, configured_client
        from dynamic_mcp.web.documents import open_documents

        config, scope = self.remote.oauth, " ".join(self.remote.oauth.scopes) or None
        client = configured_client(config, endpoint.methods)
        login = Login(self.remote.url, endpoint.issuer, endpoint.url, resource=self._resource(), client=client)
        async with open_documents(AddressPolicy(endpoint.named_by)) as web:
            asked = TokenEndpoint(web, login, config)
            if config.grant == "on_behalf_of":
                return await asked.act_on_behalf(subject, scope)
            return await asked.exchange_token(subject, config.exchange, scope)

    async def _find_endpoint(self) -> _Endpoint:
        """Return where to exchange. Raises DocumentError and MetadataError."""
        url, is_entra = self.remote.oauth.exchange.token_endpoint, self.remote.oauth.grant == "on_behalf_of"
        endpoint = await self._issuer.find_endpoint() if url is None else _Endpoint(url, url)
        # as its documentation has it
        return replace(endpoint, methods=("client_secret_post",)) if is_entra else endpoint

    def _resource(self) -> str | None:
        """Return the `resource` of the request (RFC 8707), which Entra ID refuses beside a scope."""
        exchange = self.remote.oauth.exchange
        if self.remote.oauth.grant == "on_behalf_of" or exchange.resource or exchange.audience:
            return exchange.resource
        parts = urlsplit(self.remote.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # --- errors ----------------------------------------------------------------------------------------

    def _no_token(self) -> TokenNeeded:
        person, issuer = self.remote.login_of, self.remote.oauth.issuer
        reason = f"needs a token of `{issuer}` from each caller, to exchange it"
        if person is None:
            why = "this client is the local user, who shows none"
        elif person.issuer != issuer:
            why = f"this client is known by `{person.issuer}`, and shows none that could be exchanged"
        else:
            why = "this client has shown none that is still valid"
        hint = "connect over HTTP with such a token, which an entry `jwt` in `settings.http.auth` accepts"
        return TokenNeeded(self._group, f"{reason}; {why}", hint=hint, is_done=self._has_changed(None))

    def _denied(self, url: str, exc: TokenDenied, subject: CallerToken) -> TokenNeeded | Unreachable:
        """Return the error for a refusal, without any text of the answer that may repeat what was sent."""
        details = _details_of(exc)
        if exc.code in _OUR_FAULTS:
            return Unreachable(
                self._group,
                f"cannot exchange the caller's token: `{url}` {exc}{details}",
                hint="check `client_id` and the secret or key in `oauth`, and what this client may do at the issuer",
            )
        hint = _HINTS.get(exc.code, "ask the administrator of the issuer why")
        if exc.code in _NEEDS_PERSON or exc.answer.get("claims"):
            hint = f"log in to the issuer again, and show the new token{_claims_of(exc)}"
        return TokenNeeded(
            self._group,
            f"cannot exchange the caller's token: `{url}` {exc}{details}",
            hint=hint,
            is_done=self._has_changed(subject),
        )

    def _is_rejected(self) -> Unreachable:
        return Unreachable(
            self._group,
            "rejects the token that was got for the caller's (HTTP 401)",
            hint="check `exchange.audience` and `scopes` in `oauth`: the token must be for this server",
        )

    def _lacks_scope(self, scope: str | None) -> TokenNeeded:
        needed, asked = f"the scope `{scope}`" if scope else "more scope", " ".join(self.remote.oauth.scopes)
        return TokenNeeded(
            self._group,
            f"needs a token with {needed}; `oauth.scopes` asks for {f'`{asked}`' if asked else 'none'}",
            hint="the administrator of dynamic-mcp can add it there; the issuer may grant it to some people only",
            scope=scope or "more",
        )

    def _has_changed(self, before: CallerToken | None) -> Callable[[], bool]:
        """Return what tells cheaply whether the caller has shown another token since."""
        return lambda: self._find_subject() not in (None, before)


def _details_of(exc: TokenDenied) -> str:
    """Return what Entra ID says more, as far as it is numbers and words of a fixed list."""
    from dynamic_mcp.web.authorization_response import read_error_code

    codes = exc.answer.get("error_codes")
    numbers = [f"AADSTS{each}" for each in codes[:5] if isinstance(each, int)] if isinstance(codes, list) else []
    words = [*numbers, *filter(None, [read_error_code(exc.answer.get("suberror"))])]
    return f" ({', '.join(words)})" if words else ""


def _claims_of(exc: TokenDenied) -> str:
    """Return the claims that the next token must have, as a client asks for them at Entra ID."""
    claims = exc.answer.get("claims")
    if not isinstance(claims, str) or not claims.startswith("{") or not claims.isascii() or not claims.isprintable():
        return ""
    return f", asked for with the claims `{claims}`" if len(claims) <= _LONGEST_CLAIMS else ""
