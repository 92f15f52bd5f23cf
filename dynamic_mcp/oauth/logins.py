"""The logins of all servers in one running proxy: their credentials, and the logins in progress."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.authorization import Authorization
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.paths import FileLock
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.oauth.bearer import Bearer

log = logging.getLogger(__name__)

CLOSE_S = 2.0


class PendingLogin:
    """A login in progress; any number of tasks may wait for it."""

    def __init__(self, url: asyncio.Future[str], end: asyncio.Task[bool]) -> None:
        self._url = url
        self.end = end

    async def wait_for_url(self) -> str | None:
        """Return the URL to send the user to; None if the login could not be started."""
        first: set[asyncio.Future[str] | asyncio.Future[bool]] = {self._url, self.end}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        return self._url.result() if self._url.done() else None

    async def wait_for_end(self) -> bool:
        """Wait for the end of the login; return whether somebody has logged in."""
        return await asyncio.shield(self.end)


class Logins:
    """The credentials of each group; groups of one name have their own where their servers differ.

    `command` returns the command line that logs in to a group. A browser is opened only if `environment` says that
    there is one; None opens none.
    """

    def __init__(self, folder: Path, command: Callable[[str], str], environment: Mapping[str, str] | None) -> None:
        self._folder = folder
        self._command = command
        self._environment = environment
        self._bearers: dict[str, list[Bearer]] = {}
        self._pending: dict[Bearer, PendingLogin] = {}
        self._with_browser: dict[Bearer, asyncio.Task[None]] = {}
        self._browser_tasks = TaskSet(log)
        self._browser_lock = asyncio.Lock()

    def authorization(self, group: str, remote: Remote) -> Authorization:
        """Return the credentials of a group, the same for the same server."""
        from dynamic_mcp.oauth.bearer import Bearer

        known = self._find(group, remote)
        if known is None:
            known = Bearer(group, remote, self._folder, self._command(group))
            self._bearers.setdefault(group, []).append(known)
        return known

    def begin(self, group: str, remote: Remote) -> PendingLogin | None:
        """Start a login in the background, or join the one in progress; None for a group that has no logins."""
        bearer = self._find(group, remote)
        if bearer is None or not bearer.remote.oauth.needs_user:
            return None
        pending = self._pending.get(bearer)
        if pending is None or pending.end.done():
            url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            end = asyncio.create_task(_log_in(bearer, url), name=f"login of {group}")
            pending = self._pending[bearer] = PendingLogin(url, end)
        return pending

    def open_browser(self, group: str, remote: Remote) -> None:
        """Open a browser for a group, once, if there is one and the config allows it. Does not wait."""
        bearer = self._find(group, remote)
        if bearer is None or self._environment is None or bearer in self._with_browser:
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
        for task in [*self._browser_tasks, *(pending.end for pending in self._pending.values())]:
            task.cancel()
        bearers = (bearer for bearers in self._bearers.values() for bearer in bearers)
        renewals = [asyncio.ensure_future(bearer.close()) for bearer in bearers]
        if renewals:
            await asyncio.wait(renewals, timeout=CLOSE_S)

    def _find(self, group: str, remote: Remote) -> Bearer | None:
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


async def _log_in(bearer: Bearer, url: asyncio.Future[str]) -> bool:
    """Do one login and return whether it worked; if not, the group's reason says why from then on."""
    await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.login")
    from dynamic_mcp.oauth.login import LoginAborted, begin_login

    try:
        async with begin_login(bearer.remote, bearer.policy, bearer.challenge, await bearer.load_login()) as attempt:
            url.set_result(attempt.url)
            login = await attempt.finish()
        for warning in attempt.warnings:
            group_logger(log, bearer.group).warning("group %s: %s", bearer.group, warning)
    except LoginAborted as exc:
        bearer.last_failure = f"a login has failed: {exc}"
        group_logger(log, bearer.group).warning("group %s is not logged in: %s", bearer.group, exc)
        return False
    await bearer.adopt(login)
    group_logger(log, bearer.group).info("group %s is logged in", bearer.group)
    return True
