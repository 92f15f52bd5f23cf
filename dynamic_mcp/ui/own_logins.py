"""The logins of a person at remote servers: which there are, and beginning and ending one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import DynamicMcpError, LoginFailed, NotFound, Unreachable
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.oauth.user_logins import login_command
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.ui.section import UiContext, Visit

if TYPE_CHECKING:
    from dynamic_mcp.oauth.bearer import BearerCredentials

log = logging.getLogger(__name__)

_STARTED_WITHIN_S = 20.0

LoginState = Literal["in", "expired", "needed", "unknown"]


class ServerLogin(Struct, frozen=True):
    """A login at one server. With `is_own` it is of this person alone, else of all who use the server.

    `may_begin` and `may_end` say what this person may do here; `command` does the first in a terminal.
    """

    group: str
    host: str
    state: LoginState
    is_own: bool
    may_begin: bool
    may_end: bool
    command: str
    until: float | None = None
    scope: str = ""
    failure: str = ""


class _Login(Protocol):
    async def wait_for_end(self) -> bool: ...


class OwnLogins:
    """The logins that a person may see."""

    def __init__(self, context: UiContext) -> None:
        self._context = context
        self._tasks = TaskSet(log)

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()

    async def load(self, visit: Visit) -> Sequence[ServerLogin]:
        """Return the logins at all servers that may need one, those that do first."""
        found = await asyncio.gather(*(self._describe(visit, *each) for each in self._list_remotes(visit)))
        order: dict[LoginState, int] = {"needed": 0, "expired": 0, "in": 1, "unknown": 2}
        return sorted(found, key=lambda login: (order[login.state], login.group))

    def list_needed(self, visit: Visit) -> Sequence[str]:
        """Return the groups that wait for a login which this person can make. Cheap."""
        waiting = (each for each in self._list_remotes(visit) if each[0].state is State.NEEDS_LOGIN)
        return [group.name for group, remote in waiting if _may_begin(visit, remote)]

    async def begin(self, visit: Visit, name: str) -> str:
        """Begin a login; return the URL where it goes on, in any browser for one of this person alone.

        Raises DynamicMcpError.
        """
        group, remote, bearer = self._find(visit, name)
        logins = self._context.proxy.logins
        assert logins is not None
        if not _may_begin(visit, remote):
            hint = f"on the machine of the server, run `{login_command(self._context.config.file, name)}`"
            raise DynamicMcpError(f"`{name}` has one login for all, which its administrator makes", hint=hint)
        if remote.login_of is not None:
            link = logins.send_link(group.name, remote)
            if link is None:
                hint = "set `settings.http.public_url`: logins come back to it"
                raise LoginFailed(name, "people cannot log in, as the address of this page is not known", hint=hint)
            self._connect_after(link, group)
            return link.url
        pending = logins.begin(group.name, remote)
        url: str | None = None
        if pending is not None:
            try:
                async with asyncio.timeout(_STARTED_WITHIN_S):
                    url = await pending.wait_for_url()
            except TimeoutError:
                raise LoginFailed(name, "the server did not say in time where to log in", hint="try again") from None
        if url is None or not url.startswith(("https://", "http://")):
            raise LoginFailed(name, bearer.last_failure or "the login could not be started")
        assert pending is not None
        self._connect_after(pending, group)
        return url

    def _connect_after(self, login: _Login, group: ViewedGroup) -> None:
        """Connect to a server as soon as the person has logged in, and not with the next call alone."""

        async def connect() -> None:
            if await login.wait_for_end():
                with contextlib.suppress(DynamicMcpError):
                    await group.reread()

        self._tasks.create(connect(), name=f"connection after a login to {group.name}")

    async def end(self, visit: Visit, name: str) -> tuple[Remote, str]:
        """End a login; return its server, and a warning or an empty text. Raises DynamicMcpError."""
        from dynamic_mcp.oauth.logout import log_out

        _, remote, bearer = self._find(visit, name)
        if not _may_end(visit, remote):
            raise DynamicMcpError(f"`{name}` has one login for all, which its administrator ends")
        outcome = await log_out(bearer)
        if not outcome.was_logged_in:
            raise DynamicMcpError(f"there is no login at `{name}`")
        return remote, outcome.warning

    async def _describe(self, visit: Visit, group: ViewedGroup, remote: Remote) -> ServerLogin:
        bearer, failure = self._bearer(group, remote), ""
        try:
            login = await bearer.load_login()
        except Unreachable as exc:
            login, failure = None, exc.message
        token = None if login is None else login.token
        state: LoginState = "needed" if group.state is State.NEEDS_LOGIN else "unknown"
        if token is not None:
            has_ended = token.is_expired(time.time()) and token.refresh is None
            state = "expired" if has_ended else "in" if state == "unknown" else state
        return ServerLogin(
            group.name,
            urlsplit(remote.url).hostname or "",
            state,
            is_own=remote.login_of is not None,
            may_begin=_may_begin(visit, remote),
            may_end=token is not None and _may_end(visit, remote),
            command=login_command(self._context.config.file, group.name),
            until=None if token is None or token.refresh is not None else token.expires_at,
            scope=(token.scope or "") if token is not None else "",
            failure=failure or (bearer.last_failure if state in ("needed", "expired") else ""),
        )

    def _find(self, visit: Visit, name: str) -> tuple[ViewedGroup, Remote, BearerCredentials]:
        for group, remote in self._list_remotes(visit):
            if group.name == name:
                return group, remote, self._bearer(group, remote)
        raise NotFound("server with a login", name, [group.name for group, _ in self._list_remotes(visit)])

    def _bearer(self, group: ViewedGroup, remote: Remote) -> BearerCredentials:
        from dynamic_mcp.oauth.bearer import BearerCredentials

        logins = self._context.proxy.logins
        assert logins is not None
        bearer = logins.authorization(group.name, remote)
        assert isinstance(bearer, BearerCredentials)
        return bearer

    def _list_remotes(self, visit: Visit) -> Iterator[tuple[ViewedGroup, Remote]]:
        """Yield the servers of this person's view that may want a login of a person."""
        if self._context.proxy.logins is None:
            return
        for group in visit.client.groups:
            remote = group.config.upstream
            if isinstance(remote, Remote) and remote.oauth.needs_user and not remote.has_own_authorization:
                yield group, remote


def _may_begin(visit: Visit, remote: Remote) -> bool:
    """Return whether this person can log in from here: a login for all comes back to this machine."""
    if remote.login_of is None:
        return visit.authentication.is_local
    return remote.login_of == visit.authentication.principal


def _may_end(visit: Visit, remote: Remote) -> bool:
    return visit.is_operator if remote.login_of is None else remote.login_of == visit.authentication.principal
