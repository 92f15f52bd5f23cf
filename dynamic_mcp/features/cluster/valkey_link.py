"""One connection to a Valkey server: commands of all callers go over it in order, and no caller waits long.

While the server cannot be used, commands fail at once, and one task looks for it again. This alone of the program
knows the client library `valkey`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from valkey.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from valkey.asyncio.retry import Retry
from valkey.asyncio.sentinel import Sentinel, SentinelConnectionPool
from valkey.backoff import NoBackoff
from valkey.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    ValkeyError,
)
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from dynamic_mcp.features.cluster.store_address import StoreAddress
from dynamic_mcp.system.clock import delays
from dynamic_mcp.system.shared_store import StoreFailure, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

# Commands in flight; further ones fail.
MOST_IN_FLIGHT = 1000
# How long a command may take, and connecting with all that belongs to it.
COMMAND_WITHIN_S, CONNECT_WITHIN_S = 0.3, 1.0
# How often a working connection is tried, and a lost one looked for.
_LOOK_EVERY_S = 1.0
_RETRY_FIRST_S, _RETRY_LONGEST_S = 0.1, 1.0
# A subscribed connection without a message for so long is asked whether it is alive.
_SILENT_FOR_S = 5.0

# What the client raises for a server that fails or talks nonsense. uvloop raises RuntimeError for a write to a
# connection that the other end has reset.
ERRORS = (ValkeyError, OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, MemoryError)
# The first words of errors that the client has no classes for (Valkey documentation, "RESP", "Simple errors").
_FAILURES_BY_CODE = {
    "MISCONF": StoreFailure.READ_ONLY,
    "NOREPLICAS": StoreFailure.READ_ONLY,
    "MASTERDOWN": StoreFailure.DOWN,
    "CLUSTERDOWN": StoreFailure.DOWN,
    "BUSY": StoreFailure.SLOW,
    "DENIED": StoreFailure.REFUSED,
}
# After these, another connection may help, and this one does not.
_ENDS_CONNECTION = (
    StoreFailure.DOWN,
    StoreFailure.SLOW,
    StoreFailure.READ_ONLY,
    StoreFailure.NONSENSE,
    StoreFailure.FOREIGN,
)

_MOST_SHOWN = 200


class ScriptMissing(Exception):
    """The server does not have the script of an EVALSHA."""


class CommandCounts(Struct):
    """How many commands there were, how many of them failed, and how many more were not sent."""

    sent: int = 0
    failed: int = 0
    refused: int = 0


class ValkeyLink:
    """The connection, found again when it is lost. `prepare` is run on each new one, before callers may use it.

    `on_usable` is called when they may. `look` is run each second on a working one. Both raise StoreUnavailable.
    A command has `within_s`. Messages of `channel` go to `on_message`, and None whenever some may have been lost.
    """

    def __init__(
        self,
        address: StoreAddress,
        channel: bytes,
        *,
        prepare: Callable[[], Awaitable[None]],
        look: Callable[[], Awaitable[None]],
        on_usable: Callable[[], object],
        on_message: Callable[[bytes | None], object],
        within_s: float = COMMAND_WITHIN_S,
    ) -> None:
        self._within_s = within_s
        self.address = address
        self.counts = CommandCounts()
        self.failure: StoreUnavailable | None = StoreUnavailable(StoreFailure.DOWN, "not connected yet")
        self.trouble: StoreUnavailable | None = None  # some commands work, and others fail
        self._channel = channel
        self._prepare = prepare
        self._look = look
        self._on_usable = on_usable
        self._on_message = on_message
        self._connector = Connector(address)
        self._connection: AbstractConnection | None = None
        self._in_flight: deque[asyncio.Future[Any]] = deque()
        self._lost = asyncio.Event()
        self._has_tried = asyncio.Event()
        self._tasks = TaskSet(log)
        self._ends = TaskSet(log)
        self._warned: set[StoreFailure] = set()  # of this outage
        self._is_closed = False

    def __repr__(self) -> str:
        state = "usable" if self.failure is None else self.failure.failure.name
        return f"<ValkeyLink {self.address} {state}, {len(self._in_flight)} in flight>"

    async def open(self) -> None:
        """Try to connect once; if that fails, go on in the background."""
        self._tasks.create(self._keep(), name="connection to the shared store")
        await self._has_tried.wait()

    async def close(self) -> None:
        """End the connections; commands in flight fail."""
        self._is_closed = True
        self.failure = StoreUnavailable(StoreFailure.CLOSED)
        self._tasks.cancel_all()
        await self._tasks.wait()
        if self._connection is not None:
            self._break(self._connection, self.failure)
        await self._ends.wait()
        await self._connector.close()

    # --- commands ----------------------------------------------------------------------------------------

    async def run(self, *command: bytes | str | int | float) -> Any:  # Any: what RESP has, which the caller checks
        """Return the answer to a command. Raises StoreUnavailable, and ScriptMissing."""
        if self.failure is not None:
            self.counts.refused += 1
            raise StoreUnavailable(self.failure.failure, self.failure.detail)
        return await self.run_first(*command)

    async def run_first(self, *command: bytes | str | int | float) -> Any:
        """Do that in `prepare`, before the connection counts as usable."""
        connection = self._connection
        if connection is None:
            raise StoreUnavailable(StoreFailure.DOWN)
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            self.counts.refused += 1
            raise StoreUnavailable(StoreFailure.BUSY)
        self.counts.sent += 1
        try:
            answer = await self._ask(connection, command)
        except StoreUnavailable:
            self.counts.failed += 1
            raise
        if not isinstance(answer, ResponseError):
            return answer
        if isinstance(answer, NoScriptError):
            raise ScriptMissing
        self.counts.failed += 1
        failure = to_failure(answer)
        if failure.failure in _ENDS_CONNECTION:
            self._break(connection, failure)
        raise failure

    async def _ask(self, connection: AbstractConnection, command: Sequence[bytes | str | int | float]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        packed = connection.pack_command(*command)
        self._in_flight.append(future)  # nothing is awaited from here until the command is in the buffer
        try:
            async with asyncio.timeout(self._within_s):
                await self._write(connection, packed)
                return await future
        except TimeoutError:
            slow = StoreUnavailable(StoreFailure.SLOW, f"{self._within_s:g} s", may_have_run=True)
            self._break(connection, slow)
            raise slow from None

    async def _write(self, connection: AbstractConnection, packed: Iterable[bytes]) -> None:
        """Write a command. A write that does not end leaves the connection unusable."""
        try:
            if not connection.is_connected:
                raise ValkeyConnectionError("the connection is closed")
            await connection.send_packed_command(packed, check_health=False)
        except ERRORS as exc:
            failure = to_failure(exc, may_have_run=True)
            self._break(connection, failure)
            raise failure from exc
        except asyncio.CancelledError:
            self._break(connection, StoreUnavailable(StoreFailure.SLOW, "a command could not be written"))
            raise

    async def _read(self, connection: AbstractConnection) -> None:
        """Hand answers to those who wait for them, in order."""
        try:
            while True:
                try:
                    answer = await connection.read_response(disable_decoding=True, disconnect_on_error=False)
                except ResponseError as exc:
                    answer = exc
                if not self._in_flight:
                    raise InvalidResponse("an answer without a question")
                future = self._in_flight.popleft()
                if not future.done():  # else its caller has been cancelled
                    future.set_result(answer)
        except ERRORS as exc:
            self._break(connection, to_failure(exc))

    # --- the life of the connection ------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Connect, and look whether the server can be used, until cancelled."""
        backoff = delays(_RETRY_FIRST_S, _RETRY_LONGEST_S, random.random)
        while True:
            if await self._connect():
                backoff = delays(_RETRY_FIRST_S, _RETRY_LONGEST_S, random.random)
                listening = self._tasks.create(self._listen(), name="messages of the shared store")
                try:
                    await self._watch()
                finally:
                    listening.cancel()
            await asyncio.sleep(next(backoff))

    async def _connect(self) -> bool:
        try:
            async with asyncio.timeout(max(CONNECT_WITHIN_S, self._within_s)):
                connection = await self._connector.connect()
                await self._begin(connection)
        except TimeoutError:
            self._fail(StoreUnavailable(StoreFailure.SLOW, f"no connection in {CONNECT_WITHIN_S:g} s"))
        except StoreUnavailable as exc:
            self._fail(exc)
        except ERRORS as exc:
            self._fail(to_failure(exc))
        self._has_tried.set()
        return self.failure is None

    async def _begin(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._lost.clear()
        self._tasks.create(self._read(connection), name="answers of the shared store")
        await self._prepare()
        if self._connection is not connection:  # it was lost meanwhile
            raise self.failure or StoreUnavailable(StoreFailure.DOWN)
        if self._warned:
            log.info("the shared store at %s is used again", self.address)
            self._warned.clear()
        self.failure = None
        self._on_usable()

    async def _watch(self) -> None:
        """Return when the connection is lost."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._lost.wait()
                return
            except TimeoutError:
                pass
            try:
                if await self._connector.has_moved():
                    raise StoreUnavailable(StoreFailure.DOWN, "its sentinels name another server")
                await self._look()
            except StoreUnavailable as exc:
                if self._connection is None:
                    return
                if exc.failure in _ENDS_CONNECTION:
                    self._fail(exc)
                    return
                self.record_trouble(exc)
            else:
                self.record_trouble(None)

    def record_trouble(self, trouble: StoreUnavailable | None) -> None:
        """Remember what does not work of a connection that does."""
        if trouble is not None and self.trouble is None:
            self._warn(trouble)
        elif trouble is None and self.trouble is not None:
            log.info("the shared store at %s is used again", self.address)
        self.trouble = trouble

    def _fail(self, failure: StoreUnavailable) -> None:
        if self._connection is not None:
            self._break(self._connection, failure)
        else:
            self._record(failure)

    def _break(self, connection: AbstractConnection, failure: StoreUnavailable) -> None:
        """Let no command use a connection any more, and fail those that wait for its answers."""
        if self._connection is not connection:
            return
        self._connection = None
        self._record(failure)
        self._lost.set()
        lost, self._in_flight = self._in_flight, deque()
        for future in lost:
            if not future.done():
                future.set_exception(StoreUnavailable(failure.failure, failure.detail, may_have_run=True))
                future.exception()  # its caller may be gone
        self._ends.create(_disconnect(connection), name="end of a connection to the shared store")

    def _record(self, failure: StoreUnavailable) -> None:
        """Remember why the store cannot be used; what is new is logged."""
        if self._is_closed:
            return
        if failure.failure not in self._warned:
            self._warned.add(failure.failure)
            self._warn(failure)
        self.failure = failure
        self.trouble = None

    def _warn(self, failure: StoreUnavailable) -> None:
        detail = f": {failure.detail}" if failure.detail else ""
        log.warning("the shared store at %s %s%s", self.address, failure.failure.value, detail)

    # --- messages ----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Receive messages over a second connection, until cancelled."""
        while True:
            try:
                await self._receive()
            except (TimeoutError, *ERRORS) as exc:
                log.debug("messages of the shared store may be lost: %s", exc)
            await asyncio.sleep(_RETRY_LONGEST_S)

    async def _receive(self) -> None:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            connection = await self._connector.connect()
        try:
            await connection.send_command("SUBSCRIBE", self._channel, check_health=False)
            is_asked = False
            while True:
                within_s = COMMAND_WITHIN_S if is_asked else _SILENT_FOR_S
                answer = await connection.read_response(disable_decoding=True, timeout=within_s)
                match answer:
                    case None if is_asked:
                        raise ValkeyTimeoutError("the connection is silent")
                    case None:
                        await connection.send_command("PING", check_health=False)
                        is_asked = True
                        continue
                    case [b"message", bytes(), bytes() as message]:
                        self._on_message(message)
                    case [b"subscribe", *_]:
                        self._on_message(None)  # what was sent before has not been heard
                is_asked = False
        finally:
            await _disconnect(connection)


class Connector:
    """Makes connections to an address, by its sentinels if it has some."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._options: dict[str, Any] = {  # Any: the client's own keywords
            "db": address.database,
            "username": address.username or None,
            "password": address.password or None,
            "socket_timeout": None,  # each command has a bound of its own
            "socket_connect_timeout": CONNECT_WITHIN_S,
            "lib_name": None,
            "lib_version": None,
            "retry": Retry(NoBackoff(), 0),
        }
        if address.is_secure:
            self._options |= {
                "ssl_ca_certs": address.ca_file or None,
                "ssl_certfile": address.certificate or None,
                "ssl_keyfile": address.key_file or None,
                "ssl_check_hostname": True,
            }
        self._pool = self._make_pool() if address.service else None

    async def connect(self) -> AbstractConnection:
        """Return a new connection. Raises any of ERRORS, and TimeoutError."""
        connection = self._make()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await _disconnect(connection)
            raise
        return connection

    async def has_moved(self) -> bool:
        """Return whether sentinels name another server than that of the last connection.

        The old one may take writes for a while, which are lost.
        """
        if self._pool is None:
            return False
        before = self._pool.master_address
        try:
            async with asyncio.timeout(COMMAND_WITHIN_S):
                return bool(await self._pool.sentinel_manager.discover_master(self._address.service) != before)
        except (TimeoutError, *ERRORS):
            return False  # no sentinel knows better

    async def close(self) -> None:
        if self._pool is not None:
            for each in self._pool.sentinel_manager.sentinels:
                await each.aclose()

    def _make(self) -> AbstractConnection:
        address = self._address
        if self._pool is not None:
            connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            return connection
        if address.path:
            return UnixDomainSocketConnection(path=address.path, **self._options)
        host, port = address.hosts[0]
        kind = SSLConnection if address.is_secure else Connection
        return kind(host=host, port=port, **self._options)

    def _make_pool(self) -> SentinelConnectionPool:
        address = self._address
        own = {
            **self._options,
            "db": 0,
            "socket_timeout": COMMAND_WITHIN_S,
            "socket_connect_timeout": COMMAND_WITHIN_S,
        }
        own |= {"username": address.sentinel_username or None, "password": address.sentinel_password or None}
        if address.is_secure:
            own["ssl"] = True
        sentinel = Sentinel(address.hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.service, sentinel, ssl=address.is_secure, **self._options
        )


async def _disconnect(connection: AbstractConnection) -> None:
    try:
        await connection.disconnect()
    except ERRORS as exc:
        log.debug("a connection to the shared store did not end: %s", exc)


def to_failure(exc: BaseException, *, may_have_run: bool = False) -> StoreUnavailable:
    """Return what an error of the client means."""
    failure, detail = StoreFailure.NONSENSE, _shorten(str(exc))
    match exc:
        case ReadOnlyError():
            failure = StoreFailure.READ_ONLY
        case OutOfMemoryError():
            failure = StoreFailure.FULL
        case AuthenticationError() | AuthorizationError() | NoPermissionError() | AskError():
            failure = StoreFailure.REFUSED
        case ValkeyTimeoutError() | TimeoutError():
            failure = StoreFailure.SLOW
        case BusyLoadingError() | ValkeyConnectionError() | OSError():
            failure = StoreFailure.DOWN
        case RuntimeError() if not isinstance(exc, RecursionError):
            failure, detail = StoreFailure.DOWN, "the connection is closed"
        case ResponseError():
            failure = _FAILURES_BY_CODE.get(str(exc).partition(" ")[0], StoreFailure.NONSENSE)
    return StoreUnavailable(failure, detail, may_have_run=may_have_run)


def _shorten(text: str) -> str:
    """Return a line of what a server says."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"
