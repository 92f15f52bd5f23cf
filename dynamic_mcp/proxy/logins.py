"""Getting a person to log in: the client shows the link if it can (URL elicitation), else a browser opens once.

Nothing else waits for it: only the request that needs the login does, and only where the client was asked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.logins import Logins, Pending
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.session.legacy import Session

log = logging.getLogger(__name__)

URL_ELICITATION = "2025-11-25"  # the first protocol version that has it


class LoginOffers:
    """Offers the logins of groups to whoever is there."""

    def __init__(self, logins: Logins | None, sessions: Sequence[Session]) -> None:
        self._logins = logins
        self._sessions = sessions
        self._asking: dict[tuple[Session, str], asyncio.Task[bool]] = {}
        self._declined: set[tuple[Session, str]] = set()

    def needed(self, group: str) -> None:
        """Learn that a group needs a login; a client that can show links is asked when it uses the group."""
        if self._logins is not None and not any(map(_takes_links, self._sessions)):
            self._logins.open_browser(group)

    async def accepted(self, session: Session, group: str) -> bool:
        """Offer a login to the client, and wait until it is done; tell whether it is."""
        key = (session, group)
        if self._logins is None or not _takes_links(session) or key in self._declined:
            return False
        if key not in self._asking:
            pending = self._logins.begin(group)
            if pending is None:
                return False
            task = self._asking[key] = asyncio.create_task(self._live_catalog(session, group, pending))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(self._asking[key])

    def close(self) -> None:
        """Ask nobody any more."""
        for task in self._asking.values():
            task.cancel()

    async def _live_catalog(self, session: Session, group: str, pending: Pending) -> bool:
        url = await pending.url()
        if url is None:
            return False
        id = secrets.token_urlsafe(16)
        message = f"The MCP server `{group}` needs you to log in."
        params = {"mode": "url", "elicitationId": id, "url": url, "message": message}
        asked = Frame(method="elicitation/create", params=Raw(wire.encode(params)))
        answer = await session.ask(asked, lambda _: None)
        if wire.text(wire.member(answer.result, "action")) != "accept":
            self._declined.add((session, group))
            group_logger(log, group).info("group %s: the client does not want to log in", group)
            return False
        is_done = await pending.is_done()
        if is_done:
            over = Raw(wire.encode({"elicitationId": id}))
            session.notify(Frame(method="notifications/elicitation/complete", params=over))
        return is_done


def _takes_links(session: Session) -> bool:
    declared = session.capabilities.get("elicitation")
    return session.version >= URL_ELICITATION and declared is not None and bool(len(wire.member(declared, "url")))
