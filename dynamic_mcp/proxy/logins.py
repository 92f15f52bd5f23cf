"""Logins of users: the client shows the link if it can (URL elicitation), else a browser opens once.

A user who comes over HTTP is sent a link to a page of ours instead, in the error if the client cannot show it.
Nothing else waits for it: only the request that needs the login does, and only where the client was asked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import LoginNeeded, TokenNeeded
from dynamic_mcp.groups.group import Group
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import MAY_ASK
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView

log = logging.getLogger(__name__)

_NOT_OURS = "the administrator of dynamic-mcp must log in there"
_NO_LINKS = "no link to log in, since `settings.http.public_url` is not set; tell the administrator of dynamic-mcp"


class _Login(Protocol):
    """A login in progress."""

    async def wait_for_url(self) -> str | None:
        """Return the URL of the login page; None if the login cannot begin."""
        ...

    async def wait_for_end(self) -> bool:
        """Wait for the end of the login; return whether it succeeded."""
        ...


class LoginOffers:
    """Offers the logins of groups to users."""

    def __init__(self, logins: Logins | None, clients: Iterable[Client]) -> None:
        self.logins = logins
        self._clients = clients
        self._asking: dict[tuple[Client, str], asyncio.Task[bool]] = {}
        self._declined: set[tuple[Client, str]] = set()

    def open_browser_if_needed(self, group: Group) -> None:
        """Open a browser for a login, but not for commands, nor where a client that uses the group can show the link.

        Commands tell the user how to log in.
        """
        remote = group.config.upstream
        if self.logins is None or not isinstance(remote, Remote):
            return
        clients = list(self._clients)
        is_for_command = bool(clients) and all(client.is_command for client in clients)
        if not is_for_command and not any(
            _takes_links(each) and group.current_for(each) is group for each in clients
        ):
            self.logins.open_browser(group.name, remote)

    async def wait_for_browser(self, group: Group) -> bool:
        """Wait while a browser is open for a login to the group; return whether there was one."""
        remote = group.config.upstream
        if self.logins is None or not isinstance(remote, Remote):
            return False
        return await self.logins.wait_for_browser(group.name, remote)

    async def offer(self, request: Request, group: str) -> bool:
        """Offer a login to the client, and wait until it is done; return whether it is."""
        key = (request.client, group)
        if request.revision.is_stateless and request.method not in MAY_ASK:
            return False
        if self.logins is None or not _takes_links(request.client) or key in self._declined:
            return False
        if key not in self._asking:
            pending = self._begin(request.client, request.view[group])
            if pending is None:
                return False
            task = self._asking[key] = asyncio.create_task(self._ask(request, group, pending))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(self._asking[key])

    def explain(self, client: Client, group: GroupView, error: LoginNeeded) -> LoginNeeded:
        """Return the error for this client: only the local user can use the command."""
        if client.authentication.is_local or isinstance(error, TokenNeeded):
            return error
        remote = group.config.upstream
        if self.logins is None or not isinstance(remote, Remote) or remote.login_of != client.principal:
            return error.with_hint(_NOT_OURS)
        link = self.logins.send_link(group.name, remote)
        return error.with_hint(_NO_LINKS if link is None else f"log in at {link.url} and then try again")

    def forget(self, person: Principal) -> None:
        """Forget the credentials of a user who has disconnected."""
        if self.logins is not None:
            self.logins.forget(person)

    def release(self, client: Client) -> None:
        """Called when a client disconnects."""
        for key in [key for key in self._asking if key[0] is client]:
            self._asking[key].cancel()
        self._declined = {key for key in self._declined if key[0] is not client}

    def close(self) -> None:
        """Cancel all offers."""
        for task in self._asking.values():
            task.cancel()

    def _begin(self, client: Client, group: GroupView) -> _Login | None:
        """Begin a login for the client's user; None if that user may not log in."""
        remote = group.config.upstream
        if self.logins is None or not isinstance(remote, Remote):
            return None
        if client.authentication.is_local:
            return self.logins.begin(group.name, remote)
        return self.logins.send_link(group.name, remote) if remote.login_of == client.principal else None

    async def _ask(self, request: Request, group: str, pending: _Login) -> bool:
        url = await pending.wait_for_url()
        if url is None:
            return False
        id = secrets.token_urlsafe(16)
        message = f"The MCP server `{group}` needs you to log in."
        params = {"mode": "url", "elicitationId": id, "url": url, "message": message}
        question = Frame(method="elicitation/create", params=Raw(wire.encode(params)))
        answer = await request.ask(question, lambda _: None)
        if wire.text(wire.member(answer.result, "action")) != "accept":
            self._declined.add((request.client, group))
            group_logger(log, group).info("group %s: the client does not want to log in", group)
            return False
        is_done = await pending.wait_for_end()
        if is_done:
            over = Raw(wire.encode({"elicitationId": id}))
            request.notify(Frame(method="notifications/elicitation/complete", params=over))
        return is_done


def _takes_links(client: Client) -> bool:
    hello = client.hello
    return hello.revision.has_url_elicitation and bool(len(wire.member(hello.capabilities, "elicitation", "url")))
