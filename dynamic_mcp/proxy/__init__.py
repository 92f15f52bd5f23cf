"""The use cases of a session: what each MCP method means in front of many groups. Knows no transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dynamic_mcp import __version__, meta_tools, wire
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import METHOD_NOT_FOUND
from dynamic_mcp.group import Group, OpenLink
from dynamic_mcp.groups import Groups
from dynamic_mcp.proxy.tools import Tools
from dynamic_mcp.session import Session
from dynamic_mcp.upstream.open import PROTOCOL_VERSIONS, Greeting, open_link
from dynamic_mcp.wire import Frame

log = logging.getLogger(__name__)

# Changes that come together are announced together.
SETTLE_S = 0.05

UseCase = Callable[[Session, Frame], Awaitable[Frame]]


class Proxy:
    """Answers every session from the groups of one config, and tells the sessions what changes there."""

    def __init__(self, config: Config, *, opener: OpenLink = open_link) -> None:
        self.groups = Groups(config, self, opener=opener)
        self._sessions: list[Session] = []
        self._tools = Tools(self.groups)
        self._announced = b""
        self._announcing: asyncio.TimerHandle | None = None
        self._use_cases: dict[str, UseCase] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._tools.call,
        }

    def connect(self, send: Callable[[bytes], None]) -> Session:
        """Return a session for a new client, which is written to with `send`."""
        session = Session(send, self)
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        """End every group."""
        if self._announcing is not None:
            self._announcing.cancel()
        self._sessions.clear()
        await self.groups.close()

    # --- Server: what a session asks -------------------------------------------------------------------

    async def answer(self, session: Session, frame: Frame) -> Frame:
        """Answer a request by its method."""
        use_case = self._use_cases.get(frame.method)
        if use_case is None:
            return wire.error_frame(METHOD_NOT_FOUND, f"method not found: `{frame.method}`")
        return await use_case(session, frame)

    def hear(self, session: Session, frame: Frame) -> None:
        """Take a notification of a client; those that need an answer from nobody end here."""
        log.debug("the client sent %s", frame.method)

    async def _initialize(self, session: Session, frame: Frame) -> Frame:
        """Negotiate as the lifecycle of the MCP specification says, and let the groups begin."""
        params = wire.members(frame.params)
        asked = wire.text(params.get("protocolVersion"))
        session.version = asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
        session.capabilities = wire.members(params.get("capabilities", wire.EMPTY_OBJECT))
        self.groups.start(Greeting(session.version, home=session))
        self._announced = self._tools.listed()
        return wire.result_frame(
            {
                "protocolVersion": session.version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "dynamic-mcp", "version": __version__},
                "instructions": meta_tools.instructions(self._tools.rows()),
            }
        )

    async def _ping(self, session: Session, frame: Frame) -> Frame:
        return wire.result_frame(b"{}")

    async def _list_tools(self, session: Session, frame: Frame) -> Frame:
        return wire.result_frame(self._tools.listed())

    # --- Observer: what a group does -------------------------------------------------------------------

    def changed(self, group: Group) -> None:
        """Tell the sessions when what `tools/list` answers is another answer now."""
        if self._announcing is None and self._sessions:
            self._announcing = asyncio.get_running_loop().call_later(SETTLE_S, self._announce)

    def heard(self, group: Group, frame: Frame) -> None:
        """Take a notification of an upstream that belongs to no call."""
        log.debug("group %s sent %s", group.name, frame.method)

    def _announce(self) -> None:
        self._announcing = None
        listed = self._tools.listed()
        if listed != self._announced:
            self._announced = listed
            for session in self._sessions:
                if session.version:
                    session.notify(Frame(method="notifications/tools/list_changed"))
