"""Authenticates users by an OpenID Connect provider: the authorization code flow with PKCE, state and nonce.

An ID token is accepted only if its signature, issuer, audience, time and nonce are valid.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import Struct

from dynamic_mcp.config.auth import Oidc
from dynamic_mcp.config.section import Private
from dynamic_mcp.features.login_server.addresses import CALLBACK, Addresses
from dynamic_mcp.features.login_server.identity import IdentificationRequest, NotIdentified, check_size
from dynamic_mcp.features.login_server.records import LoginUser
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.web import signed_token
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.authorization_response import UnexpectedResponse, check_issuer, quote_error, read_response
from dynamic_mcp.web.jwks import FRESH_S, RETRY_S, KeyDirectory, KeysUnavailable
from dynamic_mcp.web.metadata import MetadataError, check_endpoints, fetch_metadata
from dynamic_mcp.web.signed_token import ALGORITHMS, TokenError

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Document, Documents

log = logging.getLogger(__name__)

LEEWAY_S = 60.0
LOGIN_S = 30.0  # how long a user who returns from the provider may have to wait
# No algorithms with a shared secret: ours is for the token endpoint only.
_ALGORITHMS = frozenset(each for algorithms in ALGORITHMS.values() for each in algorithms)
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
_ACCESS_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
# Claims that do not describe the user, or are of no use.
_IGNORED_CLAIMS = frozenset({"iss", "aud", "azp", "picture", "profile", "website", "locale", "zoneinfo"})
_UNAVAILABLE = "the identity provider is unavailable; retry later"


class OidcError(NotIdentified):
    """Raised if the provider does not identify the user; the message is for the user, and has no secrets."""


class AuthenticationRequest(Private, frozen=True):
    """A started login: redirect the browser to `url`, and store the rest until it returns with the `state`."""

    shown: ClassVar = ()
    url: str
    state: str
    nonce: str
    verifier: str


class OidcUser(Struct, frozen=True):
    """A user as the provider describes them; `claims` are the text claims, as in `Authentication`."""

    issuer: str
    subject: str
    claims: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _Metadata(Struct, frozen=True):
    """The used part of a provider's metadata."""

    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None


class OidcIdentityProvider:
    """An OpenID Connect provider, which redirects to `/login/callback`."""

    def __init__(self, config: Oidc, at: Addresses) -> None:
        self._client = OidcClient(config, at.url(CALLBACK))

    async def begin(self) -> IdentificationRequest:
        pending = await self._client.begin()
        return IdentificationRequest(pending.url, pending.state, msgspec.json.encode(pending).decode())

    async def finish(self, kept: str, parameters: Mapping[str, str]) -> LoginUser:
        user = await self._client.finish(decode_as(kept, AuthenticationRequest), parameters)
        claims = tuple(pair for pair in user.claims if pair[0] not in _IGNORED_CLAIMS)
        return check_size(LoginUser(user.subject, claims=claims))

    async def close(self) -> None:
        await self._client.close()


class OidcClient:
    """Our client at one provider, which redirects to `redirect_uri`."""

    def __init__(
        self,
        config: Oidc,
        redirect_uri: str,
        *,
        keys: KeyDirectory | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._redirect_uri = redirect_uri
        self._keys = keys or KeyDirectory(config.issuer)
        self._now = now
        self._metadata: _Metadata | None = None
        self._metadata_until = self._failed_until = 0.0
        self._failure = ""
        self._asks = asyncio.Lock()

    async def begin(self) -> AuthenticationRequest:
        """Return the redirect for a browser. Raises OidcError."""
        metadata = await self._get_metadata()
        from dynamic_mcp.web.endpoints import authorization_url, create_secret

        state, nonce, verifier = (create_secret() for _ in range(3))
        url = authorization_url(
            metadata.authorization_endpoint,
            self._config.client_id,
            verifier,
            redirect_uri=self._redirect_uri,
            scope=" ".join(dict.fromkeys(("openid", *self._config.scopes))),
            state=state,
            nonce=nonce,
        )
        return AuthenticationRequest(url, state, nonce, verifier)

    async def finish(self, pending: AuthenticationRequest, parameters: Mapping[str, str]) -> OidcUser:
        """Return the user who has logged in; `parameters` are from the query of the redirect. Raises OidcError."""
        metadata = await self._get_metadata()
        code = self._check_callback(pending, parameters, metadata)
        async with self._open() as server:
            tokens = await self._exchange(server, metadata, code, pending)
            claims = await self._check_id_token(tokens.get("id_token"), pending)
            user_claims = await self._fetch_userinfo(server, metadata, tokens, claims)
        claims = {**user_claims, **claims}
        return OidcUser(self._config.issuer, self._subject(claims), signed_token.pair_claims(claims))

    async def close(self) -> None:
        await self._keys.close()

    # --- the authorization code -----------------------------------------------------------------------

    async def _get_metadata(self) -> _Metadata:
        async with self._asks:
            if self._metadata is not None and self._now() < self._metadata_until:
                return self._metadata
            if self._now() < self._failed_until:
                raise OidcError(self._failure)
            self._failed_until, self._failure = self._now() + RETRY_S, _UNAVAILABLE
            try:
                async with self._open() as server:
                    self._metadata = self._parse_metadata(await fetch_metadata(server, self._config.issuer))
            except OidcError as exc:
                self._failure = str(exc)
                raise
            self._failed_until, self._metadata_until = 0.0, self._now() + FRESH_S
            return self._metadata

    def _parse_metadata(self, document: Document) -> _Metadata:
        """Return metadata whose endpoints are allowed. Raises MetadataError."""
        check_endpoints(AddressPolicy(self._config.issuer), document, _ENDPOINTS)
        try:
            return msgspec.convert(document, _Metadata, strict=False)  # some write `true` as a text
        except msgspec.ValidationError as exc:
            raise MetadataError(str(exc)) from exc

    def _check_callback(
        self, pending: AuthenticationRequest, parameters: Mapping[str, str], metadata: _Metadata
    ) -> str:
        """Return the code from the provider's response. Raises OidcError."""
        try:
            response = read_response(parameters, pending.state)
            is_promised = metadata.authorization_response_iss_parameter_supported is True
            check_issuer(response, self._config.issuer, is_promised=is_promised)
        except UnexpectedResponse as exc:
            raise OidcError(f"invalid response from the identity provider: {exc}; start again") from None
        if response.error is not None or response.code is None:
            raise OidcError(f"the identity provider refused: {quote_error(response.error)}")
        return response.code

    async def _exchange(
        self, server: Documents, metadata: _Metadata, code: str, pending: AuthenticationRequest
    ) -> Document:
        from dynamic_mcp.web import endpoints

        secret = self._config.client_secret
        method = endpoints.choose_method(secret, metadata.token_endpoint_auth_methods_supported)
        try:
            return await endpoints.request_tokens(
                server,
                metadata.token_endpoint,
                endpoints.authenticate(self._config.client_id, method, secret),
                "authorization_code",
                code=code,
                redirect_uri=self._redirect_uri,
                code_verifier=pending.verifier,
            )
        except endpoints.TokenDenied as exc:
            raise OidcError(f"the identity provider refused the code: {quote_error(exc.code)}") from None
        except endpoints.TokenRequestFailed as exc:
            log.warning("the provider %s: `%s` %s", self._config.issuer, metadata.token_endpoint, exc)
            raise OidcError(_UNAVAILABLE) from exc

    # --- the user --------------------------------------------------------------------------------------

    async def _check_id_token(self, id_token: object, pending: AuthenticationRequest) -> Mapping[str, object]:
        """Return the claims of an ID token (OpenID Connect Core, section 3.1.3.7). Raises OidcError."""
        if not isinstance(id_token, str):
            raise OidcError("the identity provider sent no ID token")
        try:
            token = signed_token.parse_token(id_token)
            if token.algorithm not in _ALGORITHMS:
                raise TokenError("unsupported signature algorithm")
            claims = token.claims
            signed_token.check_claims(claims, issuer=self._config.issuer, now=self._now(), leeway_s=LEEWAY_S)
            self._check_client(claims)
            nonce = claims.get("nonce")
            if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), pending.nonce.encode()):
                raise TokenError("it belongs to another login")
            if signed_token.read_name(claims, "sub") is None:
                raise TokenError("it has no subject")
            if not await self._keys.verify(token):
                raise TokenError("invalid signature")
        except TokenError as exc:
            raise OidcError(f"invalid ID token: {exc}") from exc
        except KeysUnavailable as exc:
            raise OidcError("could not fetch the keys of the identity provider; retry later") from exc
        return claims

    def _check_client(self, claims: Mapping[str, object]) -> None:
        """Check that an ID token was issued to us, even if it has other audiences too. Raises TokenError."""
        client_id, audiences = self._config.client_id, signed_token.read_texts(claims.get("aud"))
        if client_id not in audiences:
            raise TokenError("it is for another audience")
        if claims.get("azp", client_id if len(audiences) == 1 else None) != client_id:
            raise TokenError("it was issued to another client")

    async def _fetch_userinfo(
        self, server: Documents, metadata: _Metadata, tokens: Document, claims: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Return further claims: many providers omit email and groups from the ID token."""
        access, url = tokens.get("access_token"), metadata.userinfo_endpoint
        if url is None or not isinstance(access, str) or not _ACCESS_TOKEN.fullmatch(access):
            return {}
        from dynamic_mcp.web.documents import DocumentError

        try:
            claims_of_user = await server.fetch(url, {"Authorization": f"Bearer {access}"})
        except DocumentError as exc:
            log.info("the provider %s returned no further claims: %s", self._config.issuer, exc)
            return {}
        # claims of another user must not be mixed in (OpenID Connect Core, section 5.3.2)
        return claims_of_user if claims_of_user.get("sub") == claims.get("sub") else {}

    def _subject(self, claims: Mapping[str, object]) -> str:
        """Return the name of the user. Raises OidcError."""
        if self._config.subject_claim is not None:
            subject = signed_token.read_name(claims, self._config.subject_claim)
            if subject is None:
                raise OidcError(f"the identity provider returned no claim `{self._config.subject_claim}`")
            return subject
        email, subject = (signed_token.read_name(claims, name) for name in ("email", "sub"))
        if email is not None and claims.get("email_verified") in (True, "true"):
            return email
        if subject is None or "@" in subject:  # it could be the email of another user
            raise OidcError("the identity provider has not verified this user's email; set `oidc.subject` to `sub`")
        return subject

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Documents]:
        """Connect to the provider, and convert errors. Raises OidcError."""
        documents = await asyncio.to_thread(import_module, "dynamic_mcp.web.documents")
        await asyncio.to_thread(import_module, "dynamic_mcp.web.endpoints")  # so that later imports do not block
        policy = AddressPolicy(self._config.issuer)
        try:
            async with asyncio.timeout(LOGIN_S), documents.open_documents(policy) as server:
                yield server
        except (documents.DocumentError, TimeoutError) as exc:
            log.warning("the provider %s: %s", self._config.issuer, str(exc) or "timed out")
            raise OidcError(_UNAVAILABLE) from exc
        except MetadataError as exc:
            log.warning("the provider %s: %s", self._config.issuer, exc)
            raise OidcError(f"invalid metadata of the identity provider: {exc}") from exc
