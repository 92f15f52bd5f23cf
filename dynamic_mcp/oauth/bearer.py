"""The credentials of one server: a stored token, renewed before it expires and when it is refused.

One renewal at a time, here and in other processes; a caller that goes away does not end it, for the old refresh token
may be dead by then.
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
from dynamic_mcp.oauth import reference
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.oauth.challenges import Demand, demand
from dynamic_mcp.oauth.reach import Reach, Resolve, is_same_host
from dynamic_mcp.oauth.records import Client, Login, Token, covers, union
from dynamic_mcp.oauth.store import Stamp, Store
from dynamic_mcp.observe.log_output import group_logger

if TYPE_CHECKING:
    from dynamic_mcp.oauth.discovery import Found
    from dynamic_mcp.oauth.tokens import Tokens

log = logging.getLogger(__name__)

# A renewal that failed while the token is still good is tried again after this.
PAUSE_S = 30.0
# A token that is refused so soon after it was made is not refused for its age.
FRESH_S = 5.0
# So often in an hour is more scope asked for.
MAX_STEP_UPS, STEP_UPS_S = 3, 3600.0


class Bearer:
    """Credentials for one server, shared by all requests to it. Implements Authorization."""

    def __init__(
        self,
        group: str,
        remote: Remote,
        folder: Path,
        command: str,
        *,
        resolve: Resolve | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.group = group
        self._logger = group_logger(log, group)
        self.remote = remote
        self.reach = Reach(remote.url, resolve)
        self.demand = Demand()
        self.trouble = ""  # what came of the latest login that was tried here
        self._store = Store(folder, remote)
        self._command = command
        self._now = now
        self._login: Login | None = None
        self._stamp: Stamp | None = None
        self._looked = False
        self._version = 0
        self._renewal: asyncio.Task[Token | None] | None = None
        self._remedy = ""
        self._pause_until = float("-inf")
        self._step_ups: list[float] = []

    # --- Authorization ---------------------------------------------------------------------------------

    async def header(self) -> str | None:
        """Return the header to send now, renewed if it must be. Raises Unreachable."""
        login = await self.login()
        token = login.token if login else None
        if token is None:
            if not self.remote.oauth.is_client_credentials:
                return None
            token = await self._renewed(None)
        elif token.is_due(self._now()) and self._is_renewable(login):
            if token.is_expired(self._now()):
                token = await self._renewed(token.access) or token
            elif self._now() >= self._pause_until:
                self._begin_renewal(token.access)  # this one will do meanwhile
        return None if token is None else _header(token)

    async def challenged(self, challenge: Challenge) -> bool:
        """Return whether there is another header to send now. Raises LoginNeeded and Unreachable."""
        wanted = demand(challenge.www_authenticate)
        is_step_up = challenge.status == 403 and wanted.error == "insufficient_scope"
        if challenge.status != 401 and not is_step_up:
            return False
        self.demand = wanted
        login = await self.login()
        token = login.token if login else None
        if token is not None and _header(token) != challenge.sent:
            return True
        if is_step_up:
            return await self._step_up(login, wanted)
        if token is not None and self._is_renewable(login) and not self._is_fresh(token):
            renewed = await self._renewed(token.access)
            if renewed is not None and _header(renewed) != challenge.sent:
                self._remedy = renewed.access
                return True
        if self.remote.oauth.is_client_credentials:
            raise Unreachable(self.group, "rejects the token of the configured client (HTTP 401)")
        raise self.login_needed()

    # --- the login -------------------------------------------------------------------------------------

    async def login(self) -> Login | None:
        """Return what is known of the login now; what another process has written counts at once."""
        stamp = self._store.stamp()
        if stamp != self._stamp or not self._looked:
            try:
                self._login = await asyncio.to_thread(self._store.load)
            except OSError as exc:  # what is in memory is better than nothing
                self._logger.warning("the login of group %s cannot be read: %s", self.group, exc)
            self._stamp = stamp
            self._version += 1
            if self._login is None and not self._looked:
                self._login = await asyncio.to_thread(reference.login_of, self.group, self.remote)
            self._looked = True
        return self._login

    async def adopt(self, login: Login) -> bool:
        """Take over the login that somebody has just done, and tell whether it could be saved too."""
        self.trouble = ""
        async with self._store.locked():  # a renewal of the old one must not come after it
            return await self.keep(login)

    async def keep(self, login: Login) -> bool:
        """Take over another login, and tell whether it could be saved too."""
        self._version += 1
        self._login = login
        is_saved = True
        try:
            await asyncio.to_thread(self._store.save, login)
        except OSError as exc:
            is_saved = False
            self._logger.warning("the login of group %s is not saved: %s", self.group, exc.strerror or exc)
        self._stamp = self._store.stamp()
        self._looked = True
        return is_saved

    async def forget(self) -> None:
        """Delete the login. Raises OSError."""
        async with self._store.locked():
            await asyncio.to_thread(self._store.delete)
            self._login, self._stamp, self._looked = None, None, True
            if await asyncio.to_thread(reference.login_of, self.group, self.remote) is not None:
                await self.keep(Login(self.remote.url))  # so that it is not found there again

    def login_needed(self, scope: str | None = None) -> LoginNeeded:
        """Say that somebody must log in, and how; the error can tell when that is done."""
        version, stamp = self._version, self._store.stamp()

        def is_done() -> bool:
            return self._version != version or self._store.stamp() != stamp

        return LoginNeeded(self.group, self._command, scope=scope, why=self.trouble, is_done=is_done)

    async def close(self) -> None:
        """Wait for a renewal under way: its answer may be the only copy of the next refresh token."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    # --- renewal ---------------------------------------------------------------------------------------

    def _is_renewable(self, login: Login | None) -> bool:
        has_refresh = login is not None and login.token is not None and login.token.refresh is not None
        return has_refresh or self.remote.oauth.is_client_credentials

    def _is_fresh(self, token: Token) -> bool:
        """Tell whether a token was made just now, because the one before was refused, and should be good."""
        is_new = token.access == self._remedy and self._now() - token.obtained_at < FRESH_S
        return is_new and not token.is_expired(self._now())

    async def _renewed(self, stale: str | None) -> Token | None:
        """Wait for the renewal of this token, which may be under way; None when nobody can renew it."""
        return await asyncio.shield(self._begin_renewal(stale))

    def _begin_renewal(self, stale: str | None) -> asyncio.Task[Token | None]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(stale), name=f"login of {self.group}")
            self._renewal.add_done_callback(_seen)
        return self._renewal

    async def _renew(self, stale: str | None) -> Token | None:
        async with self._store.locked():
            login = await self.login()
            token = login.token if login else None
            if token is not None and token.access != stale and not token.is_expired(self._now()):
                return token  # somebody else has done it
            try:
                renewed = await self._asked_anew(login)
            except Unreachable:
                self._pause_until = self._now() + PAUSE_S
                raise
            if renewed is None or renewed.token is None:
                return None
            await self.keep(renewed)
            return renewed.token

    async def _asked_anew(self, login: Login | None) -> Login | None:
        """Ask the authorization server for a token in the place of the one before. Raises Unreachable."""
        await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.tokens")
        from dynamic_mcp.oauth.tokens import Denied, Failed, Tokens

        login = await self._complete(login)
        asking = Tokens(self.reach, login, self.remote.oauth)
        try:
            return replace(login, token=await self._new_token(asking, login))
        except Denied as exc:
            if self.remote.oauth.is_client_credentials:
                raise self._unreachable(login, exc) from exc
            self._logger.warning(
                "group %s: its login cannot be renewed: `%s` %s", self.group, login.token_endpoint, exc
            )
            await self.keep(_without_refresh(login, exc.code))
            return None
        except Failed as exc:
            raise self._unreachable(login, exc) from exc

    async def _new_token(self, asking: Tokens, login: Login) -> Token:
        if self.remote.oauth.is_client_credentials:
            return await asking.as_client(login.wanted_scope)
        assert login.token is not None
        return await asking.refreshed(login.token)

    async def _complete(self, login: Login | None) -> Login:
        """Return a login with its endpoints, which one from another program, or a client's own first one, lacks."""
        if login is not None and login.token_endpoint is not None and login.client is not None:
            return login
        found, client = await self._discovered()
        if login is not None and not is_same_host(found.issuer, self.remote.url):
            raise self.login_needed()  # it may be another server's that gave this refresh token
        return Login(
            self.remote.url,
            found.issuer,
            found.endpoint("token_endpoint"),
            found.endpoint("revocation_endpoint"),
            found.resource,
            client,
            login.token if login else None,
            union(found.scope, login.wanted_scope if login else None),
        )

    async def _discovered(self) -> tuple[Found, Client]:
        """Find out where to ask for tokens, and as whom, with nobody there to log in. Raises Unreachable."""
        await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.discovery")
        from dynamic_mcp.oauth.discovery import Discovery, Stopped
        from dynamic_mcp.oauth.tokens import client_of
        from dynamic_mcp.oauth.web import web

        try:
            async with web(self.reach) as client:
                found = await Discovery(client, self.reach, self.remote).run(self.demand)
        except Stopped as exc:
            raise Unreachable(self.group, f"cannot log in: {exc}") from exc
        named = client_of(self.remote.oauth, found.metadata.token_endpoint_auth_methods_supported)
        if named is None:
            raise self.login_needed()
        return found, named

    def _unreachable(self, login: Login, exc: Exception) -> Unreachable:
        return Unreachable(self.group, f"its login could not be renewed: `{login.token_endpoint}` {exc}")

    # --- more scope ------------------------------------------------------------------------------------

    async def _step_up(self, login: Login | None, wanted: Demand) -> bool:
        """Ask for more scope, within a bound: a server that wants ever more, or is never content, is let be."""
        token = login.token if login else None
        if login is None or token is None or wanted.scope is None or covers(token.scope, wanted.scope):
            return False
        scope = union(token.scope, login.wanted_scope, wanted.scope)
        if not covers(login.wanted_scope, scope):
            self._step_ups = [at for at in self._step_ups if self._now() - at < STEP_UPS_S]
            if len(self._step_ups) >= MAX_STEP_UPS:
                return False
            self._step_ups.append(self._now())
            await self.keep(replace(login, wanted_scope=scope))
        if self.remote.oauth.is_client_credentials:
            return await self._renewed(token.access) is not None
        raise self.login_needed(wanted.scope)


def _header(token: Token) -> str:
    return f"Bearer {token.access}"


def _without_refresh(login: Login, code: str) -> Login:
    """Return what is left of a login whose refresh token, or whose client, is dead."""
    token = login.token and replace(login.token, refresh=None)
    is_client_dead = code in ("invalid_client", "unauthorized_client")
    return replace(login, token=token, client=None if is_client_dead else login.client)


def _seen(task: asyncio.Task[Token | None]) -> None:
    """Take note of a failure that nobody may be waiting for."""
    if not task.cancelled() and task.exception() is not None:
        log.debug("%s: %s", task.get_name(), task.exception())
