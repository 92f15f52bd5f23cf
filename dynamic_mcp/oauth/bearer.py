"""The credentials of one server: a stored token, renewed before it expires and when the server rejects it.

Only one renewal runs at a time, across all processes. It continues if its caller is cancelled, because the old
refresh token may already be invalid.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import LoginNeeded, Unreachable
from dynamic_mcp.oauth import predecessor
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from dynamic_mcp.oauth.credentials import ClientCredentials, Login, Token, covers, union
from dynamic_mcp.oauth.store import LoginStore, LoginUnavailable, StoredLogin
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web.address_policy import AddressPolicy, Resolver, is_same_host

if TYPE_CHECKING:
    from dynamic_mcp.oauth.discovery import DiscoveryResult

log = logging.getLogger(__name__)

# After a renewal has failed while the token is still valid, the next attempt waits this long.
RETRY_AFTER_S = 30.0
# If the server rejects a token this soon after it was issued, another one would not help.
FRESH_S = 5.0
# Longest wait for the metadata that makes an error of the server more precise.
METADATA_WITHIN_S = 3.0
# Requests for a login with more scope in one hour.
MAX_STEP_UPS, STEP_UPS_S = 3, 3600.0
# A link is for one user, so it is never part of the logs and the status of a group.
_LINK_HINT = "users receive a link to log in"


class BearerCredentials:
    """Credentials for one server, shared by all requests to it. Implements ServerCredentials."""

    def __init__(
        self,
        group: str,
        remote: Remote,
        folder: Path,
        command: str,
        *,
        resolve: Resolver | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.group = group
        self._logger = group_logger(log, group)
        self.remote = remote
        self.policy = AddressPolicy(remote.url, resolve)
        self.challenge = BearerChallenge()
        self.last_failure = ""  # why the latest login in this process has failed
        self.on_login: Callable[[], None] = lambda: None
        self._store: StoredLogin = LoginStore(folder, remote)
        self._command = command
        self._now = now
        self._login: Login | None = None
        self._stamp: object = None
        self._is_loaded = False
        self._version = 0
        self._renewal: asyncio.Task[Token | None] | None = None
        self._replacement = ""
        self._retry_at = float("-inf")
        self._step_ups: list[float] = []

    # --- ServerCredentials -----------------------------------------------------------------------------

    async def get_header(self) -> str | None:
        """Return the header to send, with a renewed token if necessary. Raises Unreachable."""
        try:
            login = await self.load_login()
        except Unreachable as exc:  # the server may need none; if it does, its challenge raises this again
            self._logger.debug("group %s: %s", self.group, exc.message)
            return None
        token = login.token if login else None
        if token is None:
            if self.remote.oauth.needs_user:
                return None
            token = await self._share_renewal(None)
        elif token.is_due(self._now()) and self._is_renewable(login):
            if token.is_expired(self._now()):
                token = await self._share_renewal(token.access) or token
            elif self._now() >= self._retry_at:
                self._begin_renewal(token.access)  # until then, the current token is good enough
        return None if token is None else token.header

    async def handle_challenge(self, challenge: Challenge) -> bool:
        """Get another header if possible; return whether there is one. Raises LoginNeeded and Unreachable."""
        bearer_challenge = parse_challenge(challenge.www_authenticate)
        is_step_up = challenge.status == 403 and bearer_challenge.error == "insufficient_scope"
        if challenge.status != 401 and not is_step_up:
            return False
        self.challenge = bearer_challenge
        login = await self.load_login()
        token = login.token if login else None
        if token is not None and token.header != challenge.authorization:
            return True
        if is_step_up:
            return await self._step_up(login, bearer_challenge)
        if token is not None and self._is_renewable(login) and not self._is_fresh(token):
            renewed = await self._share_renewal(token.access, is_rejected=True)
            if renewed is not None and renewed.header != challenge.authorization:
                self._replacement = renewed.access
                return True
        if not self.remote.oauth.needs_user:
            raise Unreachable(self.group, "rejects the token of the configured client (HTTP 401)")
        has_login = login is not None or await self._names_server(bearer_challenge.resource_metadata)
        raise self.login_needed_error(may_want_token=not has_login)

    # --- the login -------------------------------------------------------------------------------------

    async def load_login(self) -> Login | None:
        """Return the login, read again if another process has changed it."""
        store = self._store
        stamp = store.stamp()
        if stamp != self._stamp or not self._is_loaded or store.is_old():
            before = self._login
            try:
                self._login = await store.read()
            except OSError as exc:  # the login in memory may still work
                if store.is_shared and not self._is_loaded and self.remote.oauth.needs_user:
                    raise Unreachable(self.group, f"its login cannot be read: {os_reason(exc)}") from exc
                self._logger.warning("the login of group %s cannot be read: %s", self.group, exc)
            if stamp != self._stamp or self._login != before:
                self._version += 1
            self._stamp = stamp
            if self._login is None and not self._is_loaded and not store.is_shared:
                self._login = await asyncio.to_thread(predecessor.find_login, self.group, self.remote)
            self._is_loaded = True
        return self._login

    def use_store(self, store: StoredLogin) -> None:
        """Keep the login there from now on; a renewal that runs ends where it has begun."""
        if self._renewal is not None and not self._renewal.done():
            self._renewal.add_done_callback(lambda _: self.use_store(store))
            return
        self._store = store
        self._login, self._stamp, self._is_loaded = None, None, False
        self._version += 1

    async def adopt(self, login: Login) -> bool:
        """Use the login that a user has just done; return whether it was saved."""
        self.last_failure = ""
        try:
            async with self._store.lock():  # a renewal of the old login must not overwrite it
                return await self.save_login(login, is_new=True)
        except LoginUnavailable:  # used here, and saved later
            return await self.save_login(login, is_new=True)

    async def save_login(self, login: Login, *, is_new: bool = False) -> bool:
        """Replace the login; return whether it was saved."""
        self._version += 1
        login = self._login = replace(login, person=self.remote.login_of)
        is_saved = True
        try:
            self._login = await self._store.write(login, is_new=is_new)
        except OSError as exc:
            is_saved = False
            self._logger.warning("the login of group %s is not saved: %s", self.group, os_reason(exc))
        self._stamp = self._store.stamp()
        self._is_loaded = True
        return is_saved

    async def forget(self) -> None:
        """Delete the login. Raises OSError."""
        async with self._store.lock():
            await self._store.remove()
            self._login, self._stamp, self._is_loaded = (
                None,
                self._store.stamp() if self._store.is_shared else None,
                True,
            )
            if (
                not self._store.is_shared
                and await asyncio.to_thread(predecessor.find_login, self.group, self.remote) is not None
            ):
                await self.save_login(Login(self.remote.url))  # so that it is not imported again

    def login_needed_error(self, scope: str | None = None, *, may_want_token: bool = False) -> LoginNeeded:
        """Return the error that explains how to log in; its `is_done` returns whether the user has logged in."""
        version, stamp = self._version, self._store.stamp()

        def is_done() -> bool:
            return self._version != version or self._store.stamp() != stamp

        hint = "" if self.remote.login_of is None else _LINK_HINT
        return LoginNeeded(
            self.group,
            self._command,
            scope=scope,
            why=self.last_failure,
            is_done=is_done,
            hint=hint,
            may_want_token=may_want_token,
        )

    async def close(self) -> None:
        """Wait for a running renewal: its answer may be the only copy of the next refresh token."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    async def _names_server(self, metadata_url: str | None) -> bool:
        """Return whether the config, or the metadata that a challenge names, names an authorization server."""
        config = self.remote.oauth
        if config.issuer or config.metadata_url or config.client_id:
            return True
        if metadata_url is None:
            return False
        await asyncio.to_thread(importlib.import_module, "dynamic_mcp.web.documents")
        from dynamic_mcp.web.documents import DocumentError, open_documents

        try:
            async with asyncio.timeout(METADATA_WITHIN_S), open_documents(self.policy) as documents:
                return bool((await documents.fetch(metadata_url)).get("authorization_servers"))
        except (DocumentError, TimeoutError):
            return False

    # --- renewal ---------------------------------------------------------------------------------------

    def _is_renewable(self, login: Login | None) -> bool:
        has_refresh = login is not None and login.token is not None and login.token.refresh is not None
        return has_refresh or not self.remote.oauth.needs_user

    def _is_fresh(self, token: Token) -> bool:
        """Return whether a token has just replaced a rejected one."""
        is_new = token.access == self._replacement and self._now() - token.obtained_at < FRESH_S
        return is_new and not token.is_expired(self._now())

    async def _share_renewal(self, stale: str | None, *, is_rejected: bool = False) -> Token | None:
        """Start or join the renewal of a token, and wait for it; None if the token cannot be renewed."""
        return await asyncio.shield(self._begin_renewal(stale, is_rejected=is_rejected))

    def _begin_renewal(self, stale: str | None, *, is_rejected: bool = False) -> asyncio.Task[Token | None]:
        if self._renewal is None or self._renewal.done():
            renewal = self._renew(stale, is_rejected=is_rejected)
            self._renewal = asyncio.create_task(renewal, name=f"login of {self.group}")
            self._renewal.add_done_callback(_log_failure)
        return self._renewal

    async def _renew(self, stale: str | None, *, is_rejected: bool) -> Token | None:
        try:
            async with self._store.lock():
                return await self._renew_locked(stale, is_rejected=is_rejected)
        except LoginUnavailable as exc:
            self._retry_at = self._now() + RETRY_AFTER_S
            raise Unreachable(self.group, f"its login cannot be renewed: {os_reason(exc)}") from exc

    async def _renew_locked(self, stale: str | None, *, is_rejected: bool) -> Token | None:
        login = await self.load_login()
        token = login.token if login else None
        if token is not None and token.access != stale and not token.is_expired(self._now()):
            return token  # another task or process has renewed it
        if login is not None and token is not None and not await self._store.begin_spending(token):
            return await self._give_up(login, token, is_rejected=is_rejected)
        try:
            renewed = await self._fetch_login(login, is_rejected=is_rejected)
        except Unreachable:
            self._retry_at = self._now() + RETRY_AFTER_S
            await self._store.end_spending()
            raise
        if renewed is None or renewed.token is None:
            return None
        await self.save_login(renewed)
        return self._login.token if self._login is not None else None

    async def _give_up(self, login: Login, token: Token, *, is_rejected: bool) -> Token | None:
        """Return a token that cannot be renewed, as long as it is valid; then the user must log in again."""
        if not is_rejected and not token.is_expired(self._now()):
            self._retry_at = self._now() + RETRY_AFTER_S  # the replica that has sent it may still have the answer
            return token
        self._logger.warning(
            "group %s: its login cannot be renewed: a replica ended while it did so, and may have used the refresh"
            " token",
            self.group,
        )
        await self.save_login(_without_refresh(login, ""))
        return None

    async def _fetch_login(self, login: Login | None, *, is_rejected: bool) -> Login | None:
        """Return the login with a new token; None if the server refuses one. Raises Unreachable."""
        await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.tokens")
        from dynamic_mcp.oauth.tokens import NoGrant, TokenEndpoint, fetch_token
        from dynamic_mcp.web.documents import open_documents
        from dynamic_mcp.web.endpoints import TokenDenied, TokenRequestFailed

        login = await self._with_endpoints(login, is_rejected=is_rejected)
        try:
            async with open_documents(self.policy) as web:
                endpoint = TokenEndpoint(web, login, self.remote.oauth)
                return replace(login, token=await fetch_token(endpoint, login, self.remote.oauth))
        except NoGrant as exc:
            raise Unreachable(self.group, f"cannot log in: {exc}") from exc
        except TokenDenied as exc:
            if not self.remote.oauth.needs_user:
                raise self._unreachable_error(login, exc) from exc
            self._logger.warning(
                "group %s: its login cannot be renewed: `%s` %s", self.group, login.token_endpoint, exc
            )
            await self.save_login(_without_refresh(login, exc.code))
            return None
        except TokenRequestFailed as exc:
            raise self._unreachable_error(login, exc) from exc

    async def _with_endpoints(self, login: Login | None, *, is_rejected: bool) -> Login:
        """Return a login with endpoints; an imported login and the first login of a client have none.

        A client that logs in by itself discovers them again when the server rejects its token.
        """
        is_outdated = not self.remote.oauth.needs_user and (is_rejected or self._has_another_issuer(login))
        if login is not None and login.token_endpoint is not None and login.client is not None and not is_outdated:
            return login
        target, client = await self._discover()
        if login is not None:
            self._check_issuer(login, target.issuer)
        return Login(
            self.remote.url,
            target.issuer,
            target.endpoint("token_endpoint"),
            target.endpoint("revocation_endpoint"),
            target.resource,
            client,
            login.token if login else None,
            union(target.scope, login.wanted_scope if login else None),
        )

    def _has_another_issuer(self, login: Login | None) -> bool:
        """Return whether the config names another authorization server than the one of a login."""
        configured, current = self.remote.oauth.issuer, login.issuer if login is not None else None
        return configured is not None and current is not None and configured.rstrip("/") != current.rstrip("/")

    def _check_issuer(self, login: Login, issuer: str) -> None:
        """Use a login only at the authorization server that issued it. Raises LoginNeeded and Unreachable."""
        if self.remote.oauth.needs_user:
            if not is_same_host(issuer, self.remote.url):
                raise self.login_needed_error()  # the refresh token may be from another authorization server
        elif login.issuer not in (None, issuer) and self.remote.oauth.issuer is None:
            raise Unreachable(
                self.group,
                f"names another authorization server than before, `{issuer}`; the configured client is one of"
                f" `{login.issuer}`",
                hint="if the client is registered there, too, set `oauth.issuer`",
            )

    async def _discover(self) -> tuple[DiscoveryResult, ClientCredentials]:
        """Discover where to get tokens, and as which client, without a user. Raises Unreachable."""
        await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.discovery")
        from dynamic_mcp.oauth.discovery import Discovery, LoginAborted
        from dynamic_mcp.oauth.tokens import configured_client
        from dynamic_mcp.web.documents import open_documents

        try:
            async with open_documents(self.policy) as web:
                target = await Discovery(web, self.policy, self.remote).run(self.challenge)
        except LoginAborted as exc:
            raise Unreachable(self.group, f"cannot log in: {exc}") from exc
        client = configured_client(self.remote.oauth, target.metadata.token_endpoint_auth_methods_supported)
        if client is None:
            raise self.login_needed_error()
        return target, client

    def _unreachable_error(self, login: Login, exc: Exception) -> Unreachable:
        return Unreachable(self.group, f"its login could not be renewed: `{login.token_endpoint}` {exc}")

    # --- more scope ------------------------------------------------------------------------------------

    async def _step_up(self, login: Login | None, challenge: BearerChallenge) -> bool:
        """Request more scope, a few times an hour at most: a server may want more each time, or reject all of it."""
        token = login.token if login else None
        if login is None or token is None or challenge.scope is None or covers(token.scope, challenge.scope):
            return False
        scope = union(token.scope, login.requested_scope, login.wanted_scope, challenge.scope)
        if not covers(login.wanted_scope, scope):
            self._step_ups = [at for at in self._step_ups if self._now() - at < STEP_UPS_S]
            if len(self._step_ups) >= MAX_STEP_UPS:
                return False
            self._step_ups.append(self._now())
            await self._save_wanted_scope(login, scope)
        if not self.remote.oauth.needs_user:
            return await self._share_renewal(token.access) is not None
        raise self.login_needed_error(challenge.scope)

    async def _save_wanted_scope(self, login: Login, scope: str | None) -> None:
        if not self._store.is_shared:
            await self.save_login(replace(login, wanted_scope=scope))
            return
        try:
            async with self._store.lock():  # another replica may be renewing the token
                await self.save_login(replace(await self.load_login() or login, wanted_scope=scope))
        except LoginUnavailable as exc:
            raise Unreachable(self.group, f"its login cannot be changed: {os_reason(exc)}") from exc


def _without_refresh(login: Login, code: str) -> Login:
    """Return a login without its refresh token, and without its client if the server rejects the client."""
    token = login.token and replace(login.token, refresh=None)
    is_client_invalid = code in ("invalid_client", "unauthorized_client")
    return replace(login, token=token, client=None if is_client_invalid else login.client)


def _log_failure(task: asyncio.Task[Token | None]) -> None:
    """Log a failure in case no caller waits for it."""
    if not task.cancelled() and task.exception() is not None:
        log.debug("%s: %s", task.get_name(), task.exception())
