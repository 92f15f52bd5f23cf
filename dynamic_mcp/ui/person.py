"""A person as a client of the proxy: a session in memory, which ends when the person has been away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp import __version__
from dynamic_mcp.errors import METHOD_NOT_FOUND, InvalidArguments
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import NEWEST
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.search import SearchExplanation
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.command_messages import upstream_error
from dynamic_mcp.session.legacy import Session

AWAY_AFTER_S = 600.0
_MOST_PERSONS = 200


class PersonClient:
    """The session of one person."""

    def __init__(self, proxy: Proxy, authentication: Authentication, address: str) -> None:
        self._proxy = proxy
        connection = ClientConnection(
            self._receive,
            origin=ClientOrigin(authentication, "http"),
            address=address,
            is_command=True,  # it uses the servers of others, instead of having its own
        )
        self._session = Session(connection, proxy)
        self._beginning: asyncio.Task[None] | None = None
        self._in_flight = 0
        self.used_at = 0.0

    @property
    def is_in_use(self) -> bool:
        return self._in_flight > 0

    @property
    def groups(self) -> Sequence[ViewedGroup]:
        return [ViewedGroup(group, self._session) for group in self._proxy.view_for(self._session)]

    def group(self, name: str) -> ViewedGroup:
        return ViewedGroup(self._proxy.view_for(self._session)[name], self._session)

    async def begin(self) -> None:
        self._in_flight += 1
        try:
            if self._beginning is None:
                self._beginning = asyncio.create_task(self._begin(), name="beginning of a person's session")
            await asyncio.shield(self._beginning)
        finally:
            self._in_flight -= 1

    async def explain_search(self, query: str, *, group: str = "") -> SearchExplanation:
        await self.begin()
        return await self._proxy.explain_search(self._session, query, group=group)

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        self._in_flight += 1
        try:
            await self.begin()
            return await self._ask(method, params, group)
        finally:
            self._in_flight -= 1

    def close(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
        self._session.close()

    async def _begin(self) -> None:
        info = {"name": "dynamic-mcp ui", "title": "dynamic-mcp in the browser", "version": __version__}
        await self._ask("initialize", {"protocolVersion": NEWEST.name, "capabilities": {}, "clientInfo": info}, "")

    async def _ask(self, method: str, params: Mapping[str, object], group: str) -> Raw:
        try:
            answer = await self._session.answer(Frame(method=method, params=Raw(wire.encode(params))))
        except wire.Malformed as exc:
            raise InvalidArguments(str(exc)) from exc
        if len(answer.error):
            raise upstream_error(answer.error, group)
        return answer.result

    def _receive(self, line: bytes) -> None:
        """Refuse a question of a server; progress and log messages are not shown."""
        frame = wire.parse(line)
        if len(frame.id) and frame.method:
            refusal = wire.error_frame(METHOD_NOT_FOUND, f"the page does not answer `{frame.method}`")
            asyncio.get_running_loop().call_soon(self._session.receive, wire.answer_line(frame.id, refusal))


class Persons:
    """The sessions of all people at the page."""

    def __init__(self, proxy: Proxy, now: Callable[[], float], *, away_after_s: float = AWAY_AFTER_S) -> None:
        self._proxy = proxy
        self._now = now
        self._away_after_s = away_after_s
        self._clients: dict[Authentication, PersonClient] = {}
        self._timer: asyncio.TimerHandle | None = None

    def find(self, authentication: Authentication, address: str) -> PersonClient:
        """Return the session of a person, which may be new."""
        self._end_idle()
        client = self._clients.pop(authentication, None)
        if client is None:
            client = PersonClient(self._proxy, authentication, address)
        self._clients[authentication] = client  # the last used one last
        client.used_at = self._now()
        self._look_later()
        return client

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _look_later(self) -> None:
        """Have those who stay away end also if nobody else comes."""
        if self._timer is None and self._clients:
            self._timer = asyncio.get_running_loop().call_later(self._away_after_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._end_idle()
        self._look_later()

    def _end_idle(self) -> None:
        idle_since = self._now() - self._away_after_s
        for authentication, client in [*self._clients.items()]:
            if client.is_in_use or (client.used_at > idle_since and len(self._clients) < _MOST_PERSONS):
                continue
            del self._clients[authentication]
            client.close()
