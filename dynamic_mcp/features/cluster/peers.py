"""The other replicas: at which addresses they are, and which name each one has.

The config says where to look. Each address is asked for its name, when a session names a replica that is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dynamic_mcp.features.cluster.config import DNS
from dynamic_mcp.features.cluster.peer_connection import ConnectionPool, Endpoint, NoConnectionLeft
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

# How long an address may take to say its name, and how often unknown names make us look again.
_ANSWER_WITHIN_S, _LOOK_EVERY_S = 2.0, 1.0
# How long a request waits for that; a name server may take longer.
_FOUND_WITHIN_S = 10.0
_MAX_PEERS = 1000
_MAX_BYTES = 4096


class Introduction(Struct, frozen=True):
    """What a replica says of itself."""

    name: str
    version: str = ""
    process: str = ""  # in the states of calls that wait


class ReplicaFacts(Struct, frozen=True):
    """How a replica is run: a digest of its config, and what its clock says, in seconds since 1970."""

    name: str
    version: str
    config: str = ""
    now: float = 0.0


class NoIntroduction(Enum):
    """Why an address has not said which replica it is."""

    FULL = auto()
    """It, or this machine, has no connection left."""
    SILENT = auto()
    """It does not answer: it may be busy, or hang."""
    GONE = auto()
    """No replica of this service is there."""


class ReplicaFinder:
    """Finds replicas by their names. `question` returns the head of the request that asks an address for its name."""

    def __init__(self, urls: Sequence[str], question: Callable[[Endpoint], bytes]) -> None:
        self._urls = urls
        self._question = question
        self._pools: dict[Endpoint, ConnectionPool] = {}
        self._addresses: dict[str, list[Endpoint]] = {}  # by URL
        self._introductions: dict[Endpoint, Introduction] = {}
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
        return sorted(name for name, endpoint in self._names.items() if endpoint not in self._unreachable)

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
        await asyncio.wait([self._next_look], timeout=_FOUND_WITHIN_S)

    async def is_alive(self, name: str) -> bool:
        """Return whether a replica answers, twice asked."""
        pool = self.known(name)
        if pool is None:
            return False
        for _ in range(2):
            said = await self._ask(pool)
            if said is NoIntroduction.FULL or (isinstance(said, Introduction) and said.name == name):
                return True
        return False

    def forget(self, name: str) -> None:
        """Look for a replica again, since its address does not answer."""
        endpoint = self._names.pop(name, None)
        if endpoint is not None:
            self._introductions.pop(endpoint, None)
            self._unreachable.add(endpoint)
            log.warning("the replica `%s` at %s does not answer", name, endpoint)

    async def _look_soon(self) -> None:
        """Ask all addresses again: the name may be that of a replica that has just begun."""
        passed_s = asyncio.get_running_loop().time() - self._looked_at
        await asyncio.sleep(max(0.0, _LOOK_EVERY_S - passed_s))
        async with self._looking:
            self._next_look = None  # whoever asks from now on may need a later one
            await self._look()

    async def look(self) -> None:
        """Ask all addresses for their names."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        try:
            found = [each for urls in await asyncio.gather(*map(self._resolve, self._urls)) for each in urls]
            endpoints = self._open_pools(found[:_MAX_PEERS])
            answers = await asyncio.gather(*(self._ask(self._pools[each]) for each in endpoints))
            self._record(dict(zip(endpoints, answers, strict=True)))
        finally:
            self._looked_at = asyncio.get_running_loop().time()

    def _open_pools(self, found: Sequence[Endpoint]) -> list[Endpoint]:
        """Have connections to each address; return these, with those in use: what drains may be listed no more."""
        used = [each for each, pool in self._pools.items() if pool.is_used]
        endpoints = [*dict.fromkeys((*found, *used))]
        for gone in self._pools.keys() - set(endpoints):
            self._pools.pop(gone).close()
        for endpoint in endpoints:
            if endpoint not in self._pools:
                self._pools[endpoint] = ConnectionPool(endpoint, self._find_tls(endpoint))
        return endpoints

    def _record(self, answers: Mapping[Endpoint, Introduction | NoIntroduction]) -> None:
        """Take over what the addresses have said. One that is only busy is who it was before."""
        introductions: dict[Endpoint, Introduction] = {}
        for endpoint, said in answers.items():
            if isinstance(said, Introduction):
                introductions[endpoint] = said
            elif said is not NoIntroduction.GONE and endpoint in self._introductions:
                introductions[endpoint] = self._introductions[endpoint]
        names: dict[str, Endpoint] = {}
        for endpoint, said in introductions.items():
            if names.setdefault(said.name, endpoint) != endpoint:
                log.warning("two replicas have the name `%s`: %s and %s", said.name, names[said.name], endpoint)
        unreachable = {each for each, said in answers.items() if not isinstance(said, Introduction)}
        for endpoint in (unreachable - self._unreachable) & self._introductions.keys():
            log.warning("the replica `%s` at %s does not answer", self._introductions[endpoint].name, endpoint)
        for endpoint in self._unreachable & introductions.keys() - unreachable:
            log.info("the replica `%s` at %s answers again", introductions[endpoint].name, endpoint)
        self._unreachable = unreachable
        self._introductions, self._names = introductions, names
        self._processes = {each.process: each.name for each in introductions.values() if each.process}

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
        except (OSError, UnicodeError) as exc:
            log.warning("the replicas at `%s` cannot be found: %s", url, exc)
            return self._addresses.get(url, [])
        self._addresses[url] = [Endpoint(str(address[0]), endpoint.port, endpoint.host) for *_, address in found]
        return self._addresses[url]

    async def ask_others(self, own_name: str, question: Callable[[Endpoint], bytes]) -> list[bytes]:
        """Return what the other replicas answer to a question, of those that do, in 4 KiB at most."""
        if not self._names:
            await self._look_again()
        pools = [self._pools.get(endpoint) for name, endpoint in self._names.items() if name != own_name]
        answers = await asyncio.gather(*(_ask(pool, question(pool.endpoint)) for pool in pools if pool is not None))
        return [each.body for each in answers if isinstance(each, _Answer) and each.status == 200]

    async def ask_facts(self, question: Callable[[Endpoint], bytes]) -> dict[str, ReplicaFacts | str]:
        """Return what each address answers to a question about itself, or why it does not."""
        await self.look()
        answers = await asyncio.gather(*(_ask(pool, question(pool.endpoint)) for pool in self._pools.values()))
        return {str(each): _read_facts(answer) for each, answer in zip(self._pools, answers, strict=True)}

    async def _ask(self, pool: ConnectionPool) -> Introduction | NoIntroduction:
        """Ask a replica what it says of itself."""
        answer = await _ask(pool, self._question(pool.endpoint))
        if isinstance(answer, NoIntroduction):
            return answer
        if answer.status == 200:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                return decode_as(answer.body, Introduction)
        return NoIntroduction.FULL if answer.status == 503 else NoIntroduction.GONE

    def _find_tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if endpoint.host is None:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Answer(Struct, frozen=True):
    """What a replica has answered to a question, as much as is read of it."""

    status: int
    body: bytes


def _read_facts(answer: _Answer | NoIntroduction) -> ReplicaFacts | str:
    if isinstance(answer, NoIntroduction):
        return "it does not answer" if answer is NoIntroduction.GONE else "it has no connection left, or hangs"
    try:
        if answer.status == 200:
            return decode_as(answer.body, ReplicaFacts)
        refusal = decode_as(answer.body, _Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return f"it answers {answer.status}, and is no replica"
    return refusal.error.message


class _RefusalReason(Struct, frozen=True):
    message: str


class _Refusal(Struct, frozen=True):
    error: _RefusalReason


async def _ask(pool: ConnectionPool, question: bytes) -> _Answer | NoIntroduction:
    """Ask a replica something, within a bound."""
    answer = _AnswerReader()
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            connection = pool.take() or await pool.connect()
            try:
                connection.send(question, b"", answer)
                return await answer.result
            except asyncio.CancelledError:
                connection.abort()
                raise
    except NoConnectionLeft:
        return NoIntroduction.FULL
    except TimeoutError:
        return NoIntroduction.SILENT
    except OSError:
        return NoIntroduction.GONE


class _AnswerReader:
    """Reads the answer to a question."""

    def __init__(self) -> None:
        self.result: asyncio.Future[_Answer | NoIntroduction] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = b""

    def request_sent(self) -> None:
        pass

    def answer_begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def answer_continued(self, data: bytes) -> None:
        if len(self._body) + len(data) <= _MAX_BYTES:
            self._body += data

    def answer_ended(self) -> None:
        if not self.result.done():
            self.result.set_result(_Answer(self._status, self._body))

    def answer_lost(self) -> None:
        if not self.result.done():
            self.result.set_result(NoIntroduction.GONE)
