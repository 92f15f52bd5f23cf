"""Sessions over HTTP at several processes that are one service, of which some are killed.

A client that learns that the process of its session is dead gives the session up, as the protocol says. Of each of
its requests it learns something: the answer, that it may have run, or that it has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.features.cluster.replicas import RoundRobin
from tests.history.client import Client
from tests.history.harness import Send
from tests.history.http_sessions import Habits, HttpLine, HttpSessions
from tests.history.record import History, Kind
from tests.http_client import Disconnected, HttpConnection, Response

T = TypeVar("T")


@dataclass(frozen=True)
class _Kill:
    name: str
    authority: str
    at: float

    def has_cut(self, connection: HttpConnection) -> bool:
        """Tell whether a connection may have been one to the process that was killed."""
        return connection.authority == self.authority and connection.opened_at <= self.at


class ReplicaSessions(HttpSessions):
    """Where clients connect: to each of these URLs in turn. `client` is the one that opens the next session."""

    def __init__(self, urls: Sequence[str], history: History, seed: object, habits: Habits | None = None) -> None:
        super().__init__(urls[0], history, seed, habits)
        self.client: Client
        self._urls = urls
        self._kills: list[_Kill] = []

    def make_line(self, take: Send, choose: random.Random) -> HttpLine:
        first = choose.randrange(len(self._urls))
        http = _Connections(self, *self._urls[first:], *self._urls[:first])
        return ReplicaLine(self, http, take, choose)

    @property
    def has_killed(self) -> bool:
        """Whether a process was killed so far."""
        return bool(self._kills)

    def count_sessions_of(self, name: str) -> int:
        """Return how many sessions a process has."""
        return sum(isinstance(each, ReplicaLine) and each.owner == name for each in self.lines)

    def note_kill(self, name: str, authority: str) -> None:
        """Take it that the process with this name is dead, which had connections to this host and port."""
        self._kills.append(_Kill(name, authority, asyncio.get_running_loop().time()))
        for line in self.lines:
            if isinstance(line, ReplicaLine) and line.owner == name:
                line.lose()

    def may_be_cut(self, connection: HttpConnection, owner: str = "") -> bool:
        """Tell whether a process is dead that may have been at the other end, and has had a session of this owner."""
        return any(each.has_cut(connection) and owner in ("", each.name) for each in self._kills)


class _Connections(RoundRobin):
    """Connections to each process in turn; one may have waited for a process to accept it that is dead now."""

    def __init__(self, host: ReplicaSessions, *urls: str) -> None:
        super().__init__(*urls)
        self._host = host

    async def begin(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        is_fresh: bool = False,
    ) -> HttpConnection:
        while True:
            try:
                return await super().begin(method, target, headers, body, is_fresh=is_fresh)
            except ConnectionResetError:
                if not self._host.has_killed:
                    raise


class ReplicaLine(HttpLine):
    """What a client has of its session. `is_over` is set once it gives the session up."""

    def __init__(self, host: ReplicaSessions, http: RoundRobin, take: Send, choose: random.Random) -> None:
        super().__init__(host, http, take, choose)
        self.is_over = asyncio.Event()
        self._replicas = host
        self._client = host.client

    @property
    def owner(self) -> str:
        """The process that has the session; empty before it has begun."""
        return self._mcp.id.split(".")[1] if self._mcp.id else ""

    def lose(self) -> None:
        """Take it that the session is lost, which the client does not know yet."""
        self.is_lost = True
        self._host.counts["lost"] += 1
        self._host.history.lose(self._client.name)

    async def until_all_ended(self) -> None:
        """Wait until something has become of each request of a session that is over."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- what may become of a request ------------------------------------------------------------------

    def _begun(self, response: Response) -> None:
        if self._replicas.may_be_cut(response.connection, self.owner):  # killed before the answer was read
            self.lose()

    def _may_refuse(self, response: Response, stream: str = "") -> bool:
        if self._is_closing or not (self.is_lost and response.status in (404, 502)):
            return super()._may_refuse(response, stream)
        if stream in self._sent:
            has_run = response.status != 404 or stream in self._last_ids
            self._lose_answer(stream, Kind.CUT if has_run else Kind.REFUSED)
        self._end_session()
        return True

    def _may_cut(self, exc: Disconnected) -> bool:
        return self._is_closing or self._replicas.may_be_cut(exc.connection)

    def _give_up(self, stream: str) -> None:
        """End a session of which a stream broke before it had an id: nothing says what was missed on it."""
        if stream in self._sent:
            self._lose_answer(stream, Kind.CUT)
        if not self._is_old(stream):
            self._end_session()

    def _lose_answer(self, stream: str, kind: Kind) -> None:
        self._host.counts[kind] += 1
        self._client.lose_answer(int(stream.removeprefix("POST ")), kind)

    def _end_session(self) -> None:
        """Begin no more: the client gives its session up."""
        self.is_over.set()
        self._listens.set()  # requests that wait for a stream learn of it too

    # --- requests --------------------------------------------------------------------------------------

    async def _initialize(self, line: bytes, stream: str) -> None:
        try:
            await super()._initialize(line, stream)
        except Disconnected as exc:
            if not self._may_cut(exc):
                raise
            self._lose_answer(stream, Kind.CUT)

    async def _begin(self, line: bytes) -> None:
        await self._again(super()._begin, line)

    async def _request(self, line: bytes, stream: str) -> None:
        try:
            await super()._request(line, stream)
        except Disconnected as exc:
            if not self._may_cut(exc):
                raise
            self._give_up(stream)
        finally:
            self._sent[stream].set()

    async def _listen(self) -> None:
        await self._again(super()._listen)

    async def _post_only(self, line: bytes, *, is_fresh: bool = False) -> None:
        await self._again(super()._post_only, line, is_fresh=is_fresh)

    async def _resume(self, stream: str) -> Response | None:
        return await self._again(super()._resume, stream)

    async def _again(self, send: Callable[..., Awaitable[T]], *args: object, **options: object) -> T | None:
        """Send what changes nothing the second time, until it has arrived."""
        while True:
            try:
                return await send(*args, **options)
            except Disconnected as exc:
                if not self._may_cut(exc):
                    raise
                if self._is_closing:
                    return None

    async def _read_end(self, response: Response, stream: str) -> None:
        with self._unless_cut():
            await super()._read_end(response, stream)

    async def _delete(self) -> None:
        if self._mcp.id:
            with self._unless_cut():  # whether it has arrived is seen by what is left
                await super()._delete()

    @contextlib.contextmanager
    def _unless_cut(self) -> Iterator[None]:
        try:
            yield
        except Disconnected as exc:
            if not self._may_cut(exc):
                raise
