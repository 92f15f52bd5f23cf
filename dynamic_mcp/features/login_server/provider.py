"""The provider `login`: an authorization server, and the access tokens that it has issued."""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config import auth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.forwarded import ForwardedProvider
from dynamic_mcp.face.auth.pages import error_page
from dynamic_mcp.face.auth.provider import AuthResult, Provider
from dynamic_mcp.face.http.authenticator import AuthRejection, OpenPage, Page, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.features.login_server import addresses, authorize
from dynamic_mcp.features.login_server.access_tokens import AccessTokens, DatabaseAccessTokens
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.authorize import AuthorizationEndpoint
from dynamic_mcp.features.login_server.client_metadata import ClientDocuments, Fetch, guarded_fetch
from dynamic_mcp.features.login_server.clients import OFFLINE
from dynamic_mcp.features.login_server.database import Database, file_for
from dynamic_mcp.features.login_server.forms import NAME, OAuthError
from dynamic_mcp.features.login_server.grants import Lifetimes
from dynamic_mcp.features.login_server.identity import Identify, LoginIdentityProvider, NotIdentified
from dynamic_mcp.features.login_server.metadata import Metadata
from dynamic_mcp.features.login_server.registration import Registration
from dynamic_mcp.features.login_server.state import UNAVAILABLE, DatabaseState, LoginState
from dynamic_mcp.features.login_server.tokens import TokenIssuer
from dynamic_mcp.identity import Authentication

if TYPE_CHECKING:
    from dynamic_mcp.system.shared_store import SharedStore


def make_provider(
    config: auth.LoginAuth, http: Http, config_file: Path, shared_store: SharedStore | None
) -> LoginProvider:
    """Return the provider of an entry of `settings.http.auth`."""
    file = file_for(config_file)
    if config.oidc is not None:
        from dynamic_mcp.features.login_server.oidc import OidcIdentityProvider

        who = OidcIdentityProvider(config.oidc, Addresses(http))
        return LoginProvider(config, http, file, who, shared_store=shared_store)
    forwarded = next((each for each in http.auth if isinstance(each, auth.Forwarded)), None)
    assert forwarded is not None, "validated with the config"
    return LoginProvider(config, http, file, ForwardedProvider(forwarded).identify, shared_store=shared_store)


class LoginProvider(Provider):
    """The login server as an authentication provider; `who` identifies users.

    Its state is in the `shared_store` of the replicas if there is one, and else in `file`.
    """

    name = NAME

    def __init__(
        self,
        login: auth.LoginAuth,
        http: Http,
        file: Path,
        who: LoginIdentityProvider | Identify,
        *,
        now: Callable[[], float] = time.time,
        fetch: Fetch | None = None,
        shared_store: SharedStore | None = None,
    ) -> None:
        assert http.public_url is not None
        at, forwarding = Addresses(http), Forwarding(http.forwarders)
        scopes = frozenset({OFFLINE, *login.scopes})
        self._who = who
        self._state, self._access = _open_state(at, file, shared_store, now)
        state = self._state
        fetch = fetch or guarded_fetch(http.public_url, may_be_local=login.has_local_documents)
        self._documents = ClientDocuments(state, fetch, now)
        self._tokens = tokens = TokenIssuer(
            at,
            state,
            Lifetimes(login.access_ttl_s, login.refresh_ttl_s),
            now=now,
            on_revoke=self._access.forget,
        )
        authorization = AuthorizationEndpoint(
            at, state, self._documents, who, scopes=scopes, forwarding=forwarding, now=now
        )
        self._pages = _list_pages(
            at,
            authorization,
            tokens,
            Registration(state, forwarding, now),
            Metadata(at, state, now=now, access_s=login.access_ttl_s),
        )

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        return token is not None and self._access.recognises(token)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        assert token is not None
        return self._access.authenticate(token, head.target)

    def is_valid(self, authentication: Authentication) -> bool:
        return self._access.is_valid(authentication)

    def find_page(self, method: str, path: bytes) -> Page | None:
        pages = self._pages.get(path)
        if pages is None:
            return None
        if method == "OPTIONS":
            return next((each for each in pages.values() if isinstance(each, OpenPage)), partial(_preflight, pages))
        return pages.get("GET" if method == "HEAD" else method) or partial(_refuse_method, pages)

    async def close(self) -> None:
        await self._documents.close()
        await self._access.close()
        await self._tokens.close()
        if not callable(self._who):
            await self._who.close()
        await self._state.close()


def _open_state(
    at: Addresses, file: Path, shared_store: SharedStore | None, now: Callable[[], float]
) -> tuple[LoginState, AccessTokens]:
    if shared_store is None:
        database = Database(file)
        return DatabaseState(database), DatabaseAccessTokens(at, database, now)
    from dynamic_mcp.features.login_server.shared_state import SharedAccessTokens, SharedState

    state = SharedState(shared_store, now)
    return state, SharedAccessTokens(at, state, now)


_Answer = Callable[[PageRequest], Awaitable[Response]]
_Pages = dict[bytes, dict[str, Page]]


def _list_pages(
    at: Addresses,
    authorization: AuthorizationEndpoint,
    tokens: TokenIssuer,
    registration: Registration,
    metadata: Metadata,
) -> _Pages:
    """Return the pages by path and method."""
    pages: _Pages = {}

    def add(method: str, paths: tuple[str, ...], page: Page) -> None:
        pages.update({path.encode(): {method: page} for path in paths})

    add("GET", at.paths(addresses.AUTHORIZE), partial(_for_users, authorization.begin))
    add("GET", at.paths(addresses.CALLBACK), partial(_for_users, authorization.go_on))
    add("POST", at.paths(addresses.CONSENT), partial(_for_users, authorization.decide))
    add("POST", at.paths(addresses.TOKEN), partial(_for_programs, tokens.answer))
    add("POST", at.paths(addresses.REVOKE), partial(_for_programs, tokens.revoke))
    add("POST", at.paths(addresses.REGISTER), partial(_for_programs, registration.answer))
    add("GET", at.paths(addresses.JWKS), OpenPage(partial(_for_programs, metadata.list_keys)))
    add("GET", at.metadata_paths("oauth-authorization-server"), OpenPage(metadata.describe_server))
    add("GET", at.metadata_paths("openid-configuration"), OpenPage(metadata.describe_provider))
    return pages


async def _for_users(answer: _Answer, request: PageRequest) -> Response:
    try:
        return await answer(request)
    except (OAuthError, NotIdentified) as exc:
        return _as_denial(authorize.to_page(exc), exc)
    except UNAVAILABLE:
        return error_page("this server cannot use its database", 503, hint="Try again later.")


async def _for_programs(answer: _Answer, request: PageRequest) -> Response:
    try:
        return await answer(request)
    except OAuthError as exc:
        return _as_denial(exc.to_json(), exc)
    except UNAVAILABLE:
        return OAuthError("temporarily_unavailable", "the database is temporarily unavailable", 503).to_json()


def _as_denial(response: Response, exc: OAuthError | NotIdentified) -> Response:
    """Return a response as a rejection, if the error is one."""
    is_denial = isinstance(exc, NotIdentified) or exc.is_denial
    return AuthRejection.of(response, str(exc), NAME) if is_denial else response


async def _preflight(pages: dict[str, Page], request: PageRequest) -> Response:
    """Answer a preflight; the core decides whether a page may read the answer."""
    methods = _methods(pages)
    allowed = ((b"allow", methods), (b"access-control-allow-methods", methods))
    headers = ((b"access-control-allow-headers", b"content-type, mcp-protocol-version"),)
    return Response(204, (*allowed, *headers, (b"access-control-max-age", b"600")))


async def _refuse_method(pages: dict[str, Page], request: PageRequest) -> Response:
    return Response(405, ((b"allow", _methods(pages)), (b"content-type", b"text/plain")), b"method not allowed")


def _methods(pages: dict[str, Page]) -> bytes:
    return b", ".join((*(each.encode() for each in pages), b"OPTIONS"))
