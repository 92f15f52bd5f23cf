"""The logins to all servers in one running proxy: their credentials, and the logins in progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.authorization import ServerCredentials
from dynamic_mcp.oauth.pending import PendingLogin, start_login
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.paths import FileLock
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.oauth.bearer import BearerCredentials
    from dynamic_mcp.oauth.caller_tokens import CallerTokens
    from dynamic_mcp.oauth.exchange import Exchanges
    from dynamic_mcp.oauth.links import LoginLink, LoginLinks
    from dynamic_mcp.oauth.replica_logins import ReplicaLogins
    from dynamic_mcp.system.shared_store import SharedStore

log = logging.getLogger(__name__)

CLOSE_S = 2.0


class Logins:
    """The credentials of each group; groups of one name that differ in server or user have separate credentials.

    `command` returns the command line that logs in to a group. A browser is opened only if `environment` shows that
    there is one; None opens none. `base_url` is the address where browsers reach our HTTP server, if it is reachable.
    """

    def __init__(self, folder: Path, command: Callable[[str], str], environment: Mapping[str, str] | None) -> None:
        self.base_url: str | None = None
        self.on_login: Callable[[str, Principal | None], None] = lambda group, person: None
        """Called after each login with the group and the user, who is None for the local user."""
        self.link_mark: Callable[[], str] = str
        """Returns what names of links begin with, where several processes serve the same clients."""
        self._folder = folder
        self._command = command
        self._environment = environment
        self._bearers: dict[str, list[BearerCredentials]] = {}
        self._pending: dict[BearerCredentials, PendingLogin] = {}
        self._with_browser: dict[BearerCredentials, asyncio.Task[None]] = {}
        self._browser_tasks = TaskSet(log)
        self._renewals = TaskSet(log)
        self._browser_lock = asyncio.Lock()
        self._shared: ReplicaLogins | None = None

    def authorization(self, group: str, remote: Remote) -> ServerCredentials:
        """Return the credentials of a group, the same for the same server."""
        if remote.oauth.exchanges:
            return self.exchanges.authorization(group, remote)
        from dynamic_mcp.oauth.bearer import BearerCredentials

        bearer = self._find(group, remote)
        if bearer is None:
            bearer = BearerCredentials(group, remote, self._folder, self._command(group))
            bearer.on_login = lambda: self.on_login(group, remote.login_of)
            if self._shared is not None:
                bearer.use_store(self._shared.open(remote))
            self._bearers.setdefault(group, []).append(bearer)
        return bearer

    def share(self, store: SharedStore | None) -> None:
        """Keep logins in this store from now on, which other replicas share; None keeps them on this machine."""
        from dynamic_mcp.oauth.store import LoginStore

        old, self._shared = self._shared, None
        if store is not None:
            from dynamic_mcp.oauth.replica_logins import ReplicaLogins

            self._shared = ReplicaLogins(store)
        for bearer in (each for bearers in self._bearers.values() for each in bearers):
            shared = self._shared
            bearer.use_store(
                LoginStore(self._folder, bearer.remote) if shared is None else shared.open(bearer.remote)
            )
        if old is not None:
            self._renewals.create(old.close(), name="end of the logins of replicas")

    async def settle(self) -> None:
        """Let running renewals end, within a bound, and write what could not be written, before the store closes."""
        renewals = [asyncio.ensure_future(each.close()) for bearers in self._bearers.values() for each in bearers]
        if renewals:
            await asyncio.wait(renewals, timeout=CLOSE_S)
        if self._shared is not None:
            await self._shared.close()

    def begin(self, group: str, remote: Remote) -> PendingLogin | None:
        """Start a login in the background, or join the one in progress; None for a group without logins."""
        bearer = self._find(group, remote)
        if bearer is None or not bearer.remote.oauth.needs_user or remote.login_of is not None:
            return None
        pending = self._pending.get(bearer)
        if pending is None or pending.end.done():
            pending = self._pending[bearer] = start_login(bearer)
        return pending

    @cached_property
    def caller_tokens(self) -> CallerTokens:
        """The tokens that callers have shown, for servers that exchange them."""
        from dynamic_mcp.oauth.caller_tokens import CallerTokens

        return CallerTokens()

    def keep_tokens_of(self, issuers: Collection[str]) -> None:
        """Drop what callers have shown of other issuers than these."""
        if "caller_tokens" in self.__dict__:
            self.caller_tokens.keep_only(issuers)

    @cached_property
    def exchanges(self) -> Exchanges:
        """The credentials at servers that exchange the tokens of callers."""
        from dynamic_mcp.oauth.exchange import Exchanges

        return Exchanges(self.caller_tokens)

    @cached_property
    def links(self) -> LoginLinks:
        """The links by which users log in."""
        from dynamic_mcp.oauth.links import LoginLinks

        return LoginLinks(lambda: self.base_url, mark=lambda: self.link_mark())

    def send_link(self, group: str, remote: Remote) -> LoginLink | None:
        """Return a link for the user whose login the server gets; None if logins by link are not possible."""
        bearer = self._find(group, remote)
        return None if bearer is None or remote.login_of is None else self.links.send(bearer, remote.login_of)

    def forget(self, person: Principal) -> None:
        """Drop the credentials of a disconnected user from memory; stored logins stay."""
        if "caller_tokens" in self.__dict__:
            self.caller_tokens.forget(person)
        if "exchanges" in self.__dict__:
            self.exchanges.forget(person)
        for group, bearers in [*self._bearers.items()]:
            for bearer in bearers:
                if bearer.remote.login_of == person:
                    self._renewals.create(bearer.close(), name=f"renewal for {group}")
            self._bearers[group] = [each for each in bearers if each.remote.login_of != person]

    def open_browser(self, group: str, remote: Remote) -> None:
        """Open a browser for a group, once, if there is one and the config allows it. Does not wait."""
        bearer = self._find(group, remote)
        if bearer is None or self._environment is None or bearer in self._with_browser:
            return
        if remote.login_of is not None:  # the user is not at this machine
            return
        if not bearer.remote.oauth.may_open_browser:
            return
        from dynamic_mcp.oauth.browser import has_browser

        if has_browser(self._environment):
            browsing = self._browse(group, bearer.remote)
            self._with_browser[bearer] = self._browser_tasks.create(browsing, name=f"browser for {group}")

    async def wait_for_browser(self, group: str, remote: Remote) -> bool:
        """Wait while a browser is open for a login to a group; return whether one was."""
        bearer = self._find(group, remote)
        browsing = self._with_browser.get(bearer) if bearer is not None else None
        if browsing is None or browsing.done():
            return False
        await asyncio.wait([browsing])
        return True

    async def close(self) -> None:
        """Cancel logins, but let running renewals finish."""
        if "links" in self.__dict__:
            self.links.close()
        if "exchanges" in self.__dict__:
            self.exchanges.close()
        self.keep_tokens_of(())
        for task in [*self._browser_tasks, *(pending.end for pending in self._pending.values())]:
            task.cancel()
        bearers = (bearer for bearers in self._bearers.values() for bearer in bearers)
        renewals = [*(asyncio.ensure_future(bearer.close()) for bearer in bearers), *self._renewals]
        if renewals:
            await asyncio.wait(renewals, timeout=CLOSE_S)

    def _find(self, group: str, remote: Remote) -> BearerCredentials | None:
        return next((each for each in self._bearers.get(group, ()) if each.remote == remote), None)

    async def _browse(self, group: str, remote: Remote) -> None:
        from dynamic_mcp.oauth.browser import open_link
        from dynamic_mcp.oauth.store import key

        async with self._browser_lock:
            lock = FileLock(self._folder / f"{key(remote)}.browser")
            try:
                if not lock.try_acquire():
                    return  # another proxy has asked the same user
            except OSError:
                group_logger(log, group).debug("group %s: other proxies may open a browser, too", group)
            try:
                pending = self.begin(group, remote)
                url = await pending.wait_for_url() if pending else None
                if pending is not None and url is not None:
                    group_logger(log, group).info("group %s needs a login: opening a browser", group)
                    if await open_link(url):
                        await pending.wait_for_end()
            finally:
                lock.release()
