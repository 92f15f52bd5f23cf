"""A login in the background, which ends when the user has returned from the authorization server."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from dynamic_mcp.observe.log_output import group_logger

if TYPE_CHECKING:
    from dynamic_mcp.oauth.bearer import BearerCredentials
    from dynamic_mcp.oauth.login import Redirect

log = logging.getLogger(__name__)


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
        """Wait for the end of the login; return whether the user has logged in."""
        return await asyncio.shield(self.end)


def start_login(bearer: BearerCredentials, open_redirect: Callable[[], Redirect] | None = None) -> PendingLogin:
    """Start a login in the background. Without `open_redirect`, the browser is redirected to a port."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    end = asyncio.create_task(_log_in(bearer, url, open_redirect), name=f"login of {bearer.group}")
    return PendingLogin(url, end)


async def _log_in(
    bearer: BearerCredentials, url: asyncio.Future[str], open_redirect: Callable[[], Redirect] | None
) -> bool:
    """Do one login and return whether it worked; if not, the reason is kept for the errors of the group."""
    await asyncio.to_thread(importlib.import_module, "dynamic_mcp.oauth.login")
    from dynamic_mcp.oauth.login import LoginAborted, begin_login

    stored_login = await bearer.load_login()
    try:
        async with begin_login(
            bearer.remote, bearer.policy, bearer.challenge, stored_login, open_redirect
        ) as attempt:
            url.set_result(attempt.url)
            login = await attempt.finish()
        for warning in attempt.warnings:
            group_logger(log, bearer.group).warning("group %s: %s", bearer.group, warning)
    except LoginAborted as exc:
        bearer.last_failure = f"a login has failed: {exc}"
        group_logger(log, bearer.group).warning("group %s is not logged in: %s", bearer.group, exc)
        return False
    await bearer.adopt(login)
    bearer.on_login()
    group_logger(log, bearer.group).info("group %s is logged in%s", bearer.group, _whose(bearer))
    return True


def _whose(bearer: BearerCredentials) -> str:
    user = bearer.remote.login_of
    return "" if user is None else f" for `{user.subject}` of `{user.issuer}`"
