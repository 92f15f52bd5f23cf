"""What happened in a run: every line of every session and of every instance of an upstream, in one order."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

Json = Any  # whatever JSON a peer wrote

NONCE = re.compile(rb"nonce-(\w+)-(\d+)-")
# The mark of the server that wrote something.
ORIGIN = re.compile(rb"origin-(\w+)-")
# What the error says that answers a request which was in flight when the daemon died; and when the process died that
# had its session, or its server.
INTERRUPTED = "may have run, and was not sent again"
_INTERRUPTED = (INTERRUPTED, "; the call may have run", "may have run; it was not sent again")
_UNSERVED = "the process that runs this server"
RESULT_URI = re.compile(r"dynamic-mcp://results/[0-9A-Za-z._-]+")


class Kind(StrEnum):
    """What happened to a party: a session, or an instance of an upstream."""

    OPENED = "opened"
    SENT = "sent"  # by the party, to the proxy
    GOT = "got"  # by the party, from the proxy
    CLOSED = "closed"
    KILLED = "killed"  # the daemon that serves all sessions
    HOME_KILLED = "home killed"  # one of several processes, with the servers that ran in it
    LOST = "lost"  # the session, with the one of several processes that had it
    CUT = "cut"  # the connection of a request, with the process at its other end
    REFUSED = "refused"  # a request of a session that is lost, before it has run


class Nonce(NamedTuple):
    """The mark of one operation of one session."""

    session: str
    number: int

    def __str__(self) -> str:
        return f"nonce-{self.session}-{self.number}-"


class Came(NamedTuple):
    """How a message came over HTTP: on which stream, over which of its connections, and with which id.

    A stream is named after the request that it answers, by `answers`, or it is one that the client has opened. Its
    connections are counted from 0; those after the first are resumptions.
    """

    stream: str = ""
    connection: int = 0
    id: str = ""


def answers(id: Json) -> str:
    """Return the name of the stream that answers a request."""
    return f"POST {json.dumps(id)}"


NOWHERE = Came()  # as over stdio


class Expect(StrEnum):
    """What an answer must be."""

    NONCE = "a result with the operation's nonce"
    RESULT = "a result"
    ERROR = "an error"


@dataclass(frozen=True)
class Operation:
    """What a request is for. `subject` is what it asks about, `twin` the operation whose error must be the same."""

    nonce: Nonce
    name: str
    expect: Expect = Expect.NONCE
    about: Nonce | None = None  # whose nonce the answer carries, where it is not its own
    token: int | None = None
    logs: int = 0  # how many log lines must have arrived when the answer has
    steps: int = 0  # and how much progress
    # The servers whose marks the answer carries, each as often as it is here; that of a list may lack some.
    origins: tuple[str, ...] | None = None
    after: Nonce | None = None  # the request without which it is refused, which a dead daemon has forgotten
    may_be_refused: bool = False  # a question of it may be refused
    may_be_left: bool = False  # it needs no answer once its session's input has ended
    subject: str = ""
    twin: Nonce | None = None


# The details of events.
PART = "part"
INPUT_ENDED = "input ended"
ABRUPTLY = "abruptly"


@dataclass(frozen=True)
class Event:
    """One line, or the begin or end of a party.

    `detail` is the client's name where a session opened, how it left where one closed, `PART` where a line has no
    end, the servers of a home that is killed, and the id of a request that is cut or refused.
    """

    party: str
    kind: Kind
    line: bytes = b""
    operation: Operation | None = None
    detail: str = ""
    came: Came = NOWHERE

    def __str__(self) -> str:
        shown = self.line[:400].decode("utf-8", "replace") or self.detail
        came = f"[{self.came.stream}.{self.came.connection} {self.came.id}] " if self.came.stream else ""
        return f"{self.party:>10} {self.kind:<6} {came}{shown}"


# How the party of a killed daemon is named, before the id of its process.
DAEMON = "daemon"


class History:
    """The events of a run; wakes whoever waits for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sessions: set[str] = set()
        self.kills = 0
        self._upstream_nonces: set[Nonce] = set()
        self._change = asyncio.Event()

    def open(self, party: str, detail: str = "", *, is_session: bool) -> None:
        """Note the begin of a party."""
        if is_session:
            self.sessions.add(party)
        self._add(Event(party, Kind.OPENED, detail=detail))

    def close(self, party: str, detail: str = "") -> None:
        """Note the end of a party, and how a session left."""
        self._add(Event(party, Kind.CLOSED, detail=detail))

    def kill(self, party: str) -> None:
        """Note that the daemon of all sessions is killed; it must be dead before anything else is noted."""
        self.kills += 1
        self._add(Event(party, Kind.KILLED))

    def kill_home(self, pid: int, servers: Iterable[str]) -> None:
        """Note that a process is dead in which these servers ran; other processes go on."""
        self._add(Event(f"{DAEMON} {pid}", Kind.HOME_KILLED, detail=" ".join(servers)))

    def lose(self, party: str) -> None:
        """Note that the process is dead that had a session."""
        self._add(Event(party, Kind.LOST))

    def fail(self, party: str, kind: Kind, id: Json) -> None:
        """Note that a request is `CUT` or `REFUSED`."""
        self._add(Event(party, kind, detail=json.dumps(id)))

    def send(self, party: str, line: bytes, operation: Operation | None = None) -> None:
        """Note a line that a party writes to the proxy."""
        self._add(Event(party, Kind.SENT, line, operation))

    def get(self, party: str, line: bytes, detail: str = "", came: Came = NOWHERE) -> None:
        """Note a line that the proxy writes to a party."""
        if party not in self.sessions:
            self._upstream_nonces |= nonces_in(line)
        self._add(Event(party, Kind.GOT, line, detail=detail, came=came))

    async def reach_upstream(self, nonce: Nonce, answer: asyncio.Future[dict[str, Json]]) -> None:
        """Wait until an upstream has got a line with this nonce, or the request has been answered."""
        await self.until(lambda: nonce in self._upstream_nonces or answer.done())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for an event after which the condition holds."""
        while not condition():
            await self._change.wait()

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        self._change.set()
        self._change = asyncio.Event()


def nonces_in(line: bytes) -> set[Nonce]:
    """Return every nonce in a line."""
    return {Nonce(session.decode(), int(number)) for session, number in NONCE.findall(line)}


def origins_in(line: bytes) -> list[str]:
    """Return the servers whose marks are in a line, one for each mark."""
    return [name.decode() for name in ORIGIN.findall(line)]


def uris_in(data: Json) -> Iterator[str]:
    """Yield every URI of an answer."""
    match data:
        case dict():
            yield from (uri for uri in (data.get("uri"),) if isinstance(uri, str))
            for member in data.values():
                yield from uris_in(member)
        case list():
            for each in data:
                yield from uris_in(each)


def is_unserved(message: dict[str, Json]) -> bool:
    """Tell whether an answer says that the process is dead that ran the server, which has not got the request."""
    is_error = "error" in message or message.get("result", {}).get("isError") is True
    return is_error and _UNSERVED in json.dumps(message) and not is_interrupted(message)


def is_interrupted(message: dict[str, Json]) -> bool:
    """Tell whether an answer says that the request may have run, because a process died."""
    is_error = "error" in message or message.get("result", {}).get("isError") is True
    return is_error and any(each in json.dumps(message) for each in _INTERRUPTED)


def parse(line: bytes) -> dict[str, Json]:
    """Return the message of a line."""
    message: dict[str, Json] = json.loads(line)
    return message
