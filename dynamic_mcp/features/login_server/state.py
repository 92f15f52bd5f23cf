"""What the login server keeps: clients, requests in progress, codes, logins, keys and what was revoked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct

from dynamic_mcp.features.login_server import grants, store
from dynamic_mcp.features.login_server.clients import OAuthClient
from dynamic_mcp.features.login_server.database import Database, DatabaseError
from dynamic_mcp.features.login_server.grants import Family, GrantError, Lifetimes
from dynamic_mcp.features.login_server.records import AccessGrant
from dynamic_mcp.system.shared_store import StoreUnavailable
from dynamic_mcp.web.signed_token import SignedToken, TokenError, parse_token

if TYPE_CHECKING:
    from dynamic_mcp.web.jwk import SigningKey

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

# What all methods of a `LoginState` raise if what is kept cannot be read or changed.
UNAVAILABLE = (DatabaseError, StoreUnavailable)

# Creates the answer with new tokens for a login and its newest refresh token. Called in a thread.
IssueTokens = Callable[["SigningKey", Family, str | None], bytes]


class TokenRequest(Struct, frozen=True):
    """A request for tokens by a client, which is registered unless it has a document."""

    client_id: str
    has_document: bool
    lifetimes: Lifetimes
    now: float
    issue: IssueTokens


class LoginState(Protocol):
    """The state of one login server. All methods raise one of UNAVAILABLE."""

    async def add_client(self, client: OAuthClient, now: float) -> None: ...

    async def find_client(self, id: str) -> OAuthClient | None: ...

    async def keep_document(self, client: OAuthClient, kept_s: float, now: float) -> None:
        """Cache the client that a document describes."""
        ...

    async def find_document(self, url: str, now: float) -> OAuthClient | None: ...

    async def add_request(self, pending: Struct, now: float, *, secret: str | None = None) -> str:
        """Store a request for ten minutes, and return the secret that finds it, which may be given."""
        ...

    async def take_request(self, secret: str, kind: type[R], now: float, may_take: Callable[[R], bool]) -> R | None:
        """Return a request in progress and end it, if it may be taken: each is decided once."""
        ...

    async def add_code(self, grant: AccessGrant, now: float) -> str:
        """Return a new code for a grant, and record the login of its client."""
        ...

    async def redeem_code(
        self, code: str, fits: Callable[[AccessGrant], bool], request: TokenRequest
    ) -> bytes | GrantError:
        """Start the login for a code, and return its first tokens; a code that does not fit is spent."""
        ...

    async def refresh(self, token: str, request: TokenRequest) -> bytes | GrantError:
        """Return new tokens, or repeat the last answer, which a client may not have received."""
        ...

    async def revoke(self, token: str, client_id: str, lifetimes: Lifetimes, now: float) -> None:
        """End the login of a client's refresh or access token, if it is one."""
        ...

    async def forget_answers(self, now: float) -> bool:
        """Delete answers that are not repeated any more; return whether there are others."""
        ...

    async def list_keys(self, now: float, tokens_last_s: float) -> list[SigningKey]:
        """Return the keys whose tokens are valid, among them one that signs now."""
        ...

    async def close(self) -> None: ...


class DatabaseState:
    """The state in a file of this machine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_client(self, client: OAuthClient, now: float) -> None:
        await self._database.run(lambda connection: store.add_client(connection, client, now))

    async def find_client(self, id: str) -> OAuthClient | None:
        return await self._database.run(lambda connection: store.find_client(connection, id))

    async def keep_document(self, client: OAuthClient, kept_s: float, now: float) -> None:
        await self._database.run(lambda connection: store.keep_document(connection, client, now + kept_s, now))

    async def find_document(self, url: str, now: float) -> OAuthClient | None:
        return await self._database.run(lambda connection: store.find_document(connection, url, now))

    async def add_request(self, pending: Struct, now: float, *, secret: str | None = None) -> str:
        return await self._database.run(lambda connection: store.add_request(connection, pending, now, secret=secret))

    async def take_request(self, secret: str, kind: type[R], now: float, may_take: Callable[[R], bool]) -> R | None:
        def work(connection: sqlite3.Connection) -> R | None:
            pending = store.find_request(connection, secret, kind, now)
            if pending is None or not may_take(pending):
                return None
            store.end_request(connection, secret, kind)
            return pending

        return await self._database.run(work)

    async def add_code(self, grant: AccessGrant, now: float) -> str:
        def work(connection: sqlite3.Connection) -> str:
            store.touch_client(connection, grant.client_id, now)
            return grants.add_code(connection, grant, now)

        return await self._database.run(work)

    async def redeem_code(
        self, code: str, fits: Callable[[AccessGrant], bool], request: TokenRequest
    ) -> bytes | GrantError:
        def work(connection: sqlite3.Connection) -> bytes | GrantError:
            if _is_unknown(connection, request):
                return UNKNOWN_CLIENT
            grant = grants.find_code(connection, code, request.client_id)
            if grant is not None and not fits(grant):
                grants.spend_code(connection, code)
                return UNPROVEN
            return grants.redeem_code(
                connection, code, request.client_id, request.lifetimes, request.now, _issue_for(request)
            )

        return await self._database.run(work)

    async def refresh(self, token: str, request: TokenRequest) -> bytes | GrantError:
        def work(connection: sqlite3.Connection) -> bytes | GrantError:
            if _is_unknown(connection, request):
                return UNKNOWN_CLIENT
            answer = grants.refresh(
                connection, token, request.client_id, request.lifetimes, request.now, _issue_for(request)
            )
            store.touch_client(connection, request.client_id, request.now)
            return answer

        return await self._database.run(work)

    async def revoke(self, token: str, client_id: str, lifetimes: Lifetimes, now: float) -> None:
        def work(connection: sqlite3.Connection) -> None:
            from dynamic_mcp.features.login_server import keys

            family = grants.find_family(connection, token)
            owner = None if family is None else (family.id, family.grant.client_id)
            login = owner or read_access_token(token, keys.all_keys(connection))
            if login is not None and login[1] == client_id:
                grants.revoke(connection, login[0], lifetimes, now)

        await self._database.run(work)

    async def forget_answers(self, now: float) -> bool:
        return await self._database.run(lambda connection: grants.forget_answers(connection, now))

    async def list_keys(self, now: float, tokens_last_s: float) -> list[SigningKey]:
        def work(connection: sqlite3.Connection) -> list[SigningKey]:
            from dynamic_mcp.features.login_server import keys

            keys.current_key(connection, now, tokens_last_s)
            return [*keys.all_keys(connection).values()]

        return await self._database.run(work)

    async def close(self) -> None:
        await self._database.close()


UNKNOWN_CLIENT = GrantError("unknown client: register it again", is_client_unknown=True)
UNPROVEN = GrantError("`code_verifier` or `redirect_uri` is wrong: the code is now invalid")


def read_access_token(token: str, known: Mapping[str, SigningKey]) -> tuple[str, str] | None:
    """Return the login and the client of one of our access tokens."""
    from dynamic_mcp.features.login_server import keys

    try:
        signed: SignedToken = parse_token(token)
    except TokenError:
        return None
    claims = keys.read_claims(signed, known)
    return None if claims is None else (str(claims.get("sid")), str(claims.get("client_id")))


def _is_unknown(connection: sqlite3.Connection, request: TokenRequest) -> bool:
    return not request.has_document and store.find_client(connection, request.client_id) is None


def _issue_for(request: TokenRequest) -> grants.Issue:
    def issue(connection: sqlite3.Connection, family: Family, refresh_token: str | None) -> bytes:
        from dynamic_mcp.features.login_server import keys

        key = keys.current_key(connection, request.now, request.lifetimes.access_s)
        return request.issue(key, family, refresh_token)

    return issue
