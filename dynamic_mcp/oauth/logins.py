"""The logins of all servers in one running proxy: their credentials, and those that a person is at work on."""

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


class Pending:
    """A login under way, which several may wait for."""

    def __init__(self, url: asyncio.Future[str], end: asyncio.Task[bool]) -> None:
        self._url = url
        self.end = end

    async def url(self) -> str | None:
        """Return where to send a person; None when the login cannot be begun."""
        ways: set[asyncio.Future[str] | asyncio.Future[bool]] = {self._url, self.end}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return self._url.result() if self._url.done() else None

    async def is_done(self) -> bool:
        """Wait for the end, and tell whether somebody has logged in."""
        return await asyncio.shield(self.end)


class Logins:
    """Credentials by the name of their group; `command` gives the words that start a login by hand.

    `environment` tells whether there is a browser; without it none is opened.
    """

    def __init__(self, folder: Path, command: Callable[[str], str], environment: Mapping[str, str] | None) -> None:
        self._folder = folder
        self._command = command
        self._environment = environment
        self._bearers: dict[str, Bearer] = {}
        self._pending: dict[str, Pending] = {}
        self._opened: set[str] = set()
        self._browsing = TaskSet(log)
        self._one_at_a_time = asyncio.Lock()

    def authorization(self, group: str, remote: Remote) -> Authorization:
        """Return the credentials of a group, the same for the same server."""
        from dynamic_mcp.oauth.bearer import Bearer

        known = self._bearers.get(group)
        if known is None or known.remote != remote:
            known = self._bearers[group] = Bearer(group, remote, self._folder, self._command(group))
        return known

    def begin(self, group: str) -> Pending | None:
        """Begin a login in the background, or join the one that is under way; None for a group without any."""
        bearer = self._bearers.get(group)
        if bearer is None or bearer.remote.oauth.is_client_credentials:
            return None
        pending = self._pending.get(group)
        if pending is None or pending.end.done():
            url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            end = asyncio.create_task(_log_in(bearer, url), name=f"login of {group}")
            pending = self._pending[group] = Pending(url, end)
        return pending

    def open_browser(self, group: str) -> None:
        """Open a browser for a group, once, where there is one and the config allows it; nothing is waited for."""
        bearer = self._bearers.get(group)
        if bearer is None or self._environment is None or group in self._opened:
            return
        if not bearer.remote.oauth.may_open_browser:
            return
        from dynamic_mcp.oauth.browser import has_browser

        if has_browser(self._environment):
            self._opened.add(group)
            self._browsing.create(self._browse(group, bearer.remote), name=f"browser for {group}")

    async def close(self) -> None:
        """Give logins up, but let renewals under way come to their end."""
        self._browsing.cancel_all()
        for pending in self._pending.values():
            pending.end.cancel()
        renewals = [asyncio.ensure_future(bearer.close()) for bearer in self._bearers.values()]
        if renewals:
            await asyncio.wait(renewals, timeout=CLOSE_S)

    async def _browse(self, group: str, remote: Remote) -> None:
        from dynamic_mcp.oauth.browser import open_link
        from dynamic_mcp.oauth.store import key

        async with self._one_at_a_time:
            lock = FileLock(self._folder / f"{key(remote)}.browser")
            try:
                if not lock.take():
                    return  # another proxy has asked the same person
            except OSError:
                group_logger(log, group).debug("group %s: other proxies may open a browser too", group)
            try:
                pending = self.begin(group)
                url = await pending.url() if pending else None
                if pending is not None and url is not None:
                    group_logger(log, group).info("group %s needs a login: opening a browser", group)
                    if await open_link(url):
                        await pending.is_done()
            finally:
                lock.leave()


async def _log_in(bearer: Bearer, shown: asyncio.Future[str]) -> bool:
    """Do one login, and tell whether it worked; why it did not is part of the group's reason from then on."""
    await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.login")
    from dynamic_mcp.oauth.login import Stopped, begun

    try:
        async with begun(bearer.remote, bearer.reach, bearer.demand, await bearer.login()) as attempt:
            shown.set_result(attempt.url)
            login = await attempt.finished()
        for warning in attempt.warnings:
            group_logger(log, bearer.group).warning("group %s: %s", bearer.group, warning)
    except Stopped as exc:
        bearer.trouble = f"a login was tried: {exc}"
        group_logger(log, bearer.group).warning("group %s is not logged in: %s", bearer.group, exc)
        return False
    await bearer.adopt(login)
    group_logger(log, bearer.group).info("group %s is logged in", bearer.group)
    return True
