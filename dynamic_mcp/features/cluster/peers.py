"""The other replicas: at which addresses they are, and which name each one has.

The config says where to look. Each address is asked for its name, when a session names a replica that is not known.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dynamic_mcp.features.cluster.config import DNS
from dynamic_mcp.features.cluster.peer_connection import ConnectionPool, Endpoint
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

# How long an address may take to say its name, and how often unknown names make us look again.
_ANSWER_WITHIN_S, _LOOK_EVERY_S = 2.0, 1.0
_MAX_PEERS = 1000


class Introduction(Struct, frozen=True):
    """What a replica says of itself."""

    name: str
    version: str = ""
    process: str = ""  # in the states of calls that wait


class ReplicaFinder:
    """Finds replicas by their names. `question` returns the head of the request that asks an address for its name."""

    def __init__(self, urls: Sequence[str], question: Callable[[Endpoint], bytes]) -> None:
        self._urls = urls
        self._question = question
        self._pools: dict[Endpoint, ConnectionPool] = {}
        self._names: dict[str, Endpoint] = {}
        self._processes: dict[str, str] = {}  # names by processes
        self._unreachable: set[Endpoint] = set()
        self._looked_at = float("-inf")
        self._next_look: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._tls: ssl.SSLContext | None = None
        self._work = TaskSet(log)

    @property
    def names(self) -> list[str]:
        """The replicas that are known, this one included if it is among the peers."""
        return sorted(self._names)

    @property
    def unreachable(self) -> int:
        """How many addresses have not answered."""
        return len(self._unreachable)

    def known(self, name: str) -> ConnectionPool | None:
        """Return the connections to a replica that is known."""
        endpoint = self._names.get(name)
        return None if endpoint is None else self._pools.get(endpoint)

    async def find(self, name: str) -> ConnectionPool | None:
        """Return the connections to a replica; None if no address has it."""
        if (pool := self.known(name)) is not None:
            return pool
        await self._look_again()
        return self.known(name)

    async def find_process(self, process: str) -> str:
        """Return the name of the replica whose process this is; empty if no address has it."""
        if process not in self._processes:
            await self._look_again()
        return self._processes.get(process, "")

    async def _look_again(self) -> None:
        if self._next_look is None:
            self._next_look = self._work.create(self._look_soon(), name="look for other replicas")
        await asyncio.wait([self._next_look])

    async def is_alive(self, name: str) -> bool:
        """Return whether a replica answers, twice asked."""
        pool = self.known(name)
        if pool is None:
            return False
        for _ in range(2):
            said = await self._ask(pool)
            if said is not None and said.name == name:
                return True
        return False

    def forget(self, name: str) -> None:
        """Look for a replica again, since its address does not answer."""
        self._names.pop(name, None)

    async def _look_soon(self) -> None:
        """Ask all addresses again: the name may be that of a replica that has just begun."""
        passed_s = asyncio.get_running_loop().time() - self._looked_at
        await asyncio.sleep(max(0.0, _LOOK_EVERY_S - passed_s))
        self._next_look = None  # whoever asks from now on may need a later one
        await self.look()

    async def look(self) -> None:
        """Ask all addresses for their names."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        try:
            found = [each for urls in await asyncio.gather(*map(self._resolve, self._urls)) for each in urls]
            endpoints = [*dict.fromkeys(found)][:_MAX_PEERS]
            for gone in self._pools.keys() - set(endpoints):
                self._pools.pop(gone).close()
            for endpoint in endpoints:
                if endpoint not in self._pools:
                    self._pools[endpoint] = ConnectionPool(endpoint, self._find_tls(endpoint))
            introductions = await asyncio.gather(*(self._ask(self._pools[each]) for each in endpoints))
            names: dict[str, Endpoint] = {}
            self._unreachable = set()
            for endpoint, said in zip(endpoints, introductions, strict=True):
                if said is None:
                    self._unreachable.add(endpoint)
                elif names.setdefault(said.name, endpoint) != endpoint:
                    log.warning("two replicas have the name `%s`: %s and %s", said.name, names[said.name], endpoint)
            self._names = names
            self._processes = {each.process: each.name for each in introductions if each is not None and each.process}
        finally:
            self._looked_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        self._work.cancel_all()
        await self._work.wait()
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        self._names.clear()

    async def _resolve(self, url: str) -> list[Endpoint]:
        """Return where the replicas of a URL are."""
        endpoint = Endpoint.of(url.removeprefix(DNS))
        if not url.startswith(DNS):
            return [endpoint]
        parts = urlsplit(url.removeprefix(DNS))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, endpoint.port, proto=6)  # TCP
        except OSError as exc:
            log.warning("the replicas at `%s` cannot be found: %s", url, exc)
            return []
        return [Endpoint(str(address[0]), endpoint.port, endpoint.host) for *_, address in found]

    async def _ask(self, pool: ConnectionPool) -> Introduction | None:
        """Return what a replica says of itself; None if it does not answer."""
        answer = _Introducing()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                connection = pool.take() or await pool.connect()
                try:
                    connection.send(self._question(pool.endpoint), b"", answer)
                    return await answer.result
                except asyncio.CancelledError:
                    connection.abort()
                    raise
        except OSError:  # of which TimeoutError is one
            return None

    def _find_tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if endpoint.host is None:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Introducing:
    """Reads the answer to the question for a name."""

    def __init__(self) -> None:
        self.result: asyncio.Future[Introduction | None] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = b""

    def answer_begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def answer_continued(self, data: bytes) -> None:
        self._body += data[:4096]

    def answer_ended(self) -> None:
        said = None
        if self._status == 200:
            try:
                said = decode_as(self._body[:4096], Introduction)
            except msgspec.MsgspecError:
                said = None
        if not self.result.done():
            self.result.set_result(said)

    def answer_lost(self) -> None:
        if not self.result.done():
            self.result.set_result(None)
