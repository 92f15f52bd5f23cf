"""A shared store in Valkey, or Redis: everything below `dynamic-mcp:1:` in one database.

Names are in keys as HMACs, with a secret that is itself kept there, sealed; so they stay the same when the keys of
the cluster change. Values and messages are sealed.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from dynamic_mcp.features.cluster.store_address import StoreAddress
from dynamic_mcp.features.cluster.store_seal import HEAD_BYTES, SealError, StoreSeal
from dynamic_mcp.features.cluster.subscribers import Subscribers
from dynamic_mcp.features.cluster.valkey_link import COMMAND_WITHIN_S, ScriptMissing, ValkeyLink
from dynamic_mcp.features.cluster.valkey_scripts import (
    ACQUIRE,
    BEGIN,
    COUNT,
    DELETE,
    LIST,
    LOOK,
    RELEASE,
    RENEW,
    RESEAL,
    RESEAL_NAMES,
    WRITE,
    Script,
)
from dynamic_mcp.system.shared_store import (
    Lease,
    Rate,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreStatus,
    StoreUnavailable,
    Version,
    Wait,
    check_entry,
)

# The number is that of the form of everything below.
PREFIX = b"dynamic-mcp:1:"
EPOCH, NAMES, LOOKED = PREFIX + b"epoch", PREFIX + b"names", PREFIX + b"looked"
_ANY = b"-"
_HASH_BYTES = 16
_MICROSECONDS = 1_000_000

Arguments = list[bytes | str | int | float]
MakeCommand = Callable[[], tuple[list[bytes], Arguments]]


class Resealed(Struct, frozen=True):
    """How many entries there were, how many are sealed with the newest key now, and how many cannot be opened."""

    found: int
    resealed: int
    unreadable: int


class ValkeyStore:
    """A `SharedStore` at an address, whose entries are sealed with the keys of a cluster, the newest first."""

    def __init__(self, address: StoreAddress, keys: Sequence[str], *, within_s: float = COMMAND_WITHIN_S) -> None:
        self._seal = StoreSeal(keys)
        self._channel = b"%smessages:%d" % (PREFIX, address.database)  # databases share their channels
        self._epoch = b""
        self._name_key = b""
        self._beginning = asyncio.Lock()
        self._subscribers = Subscribers()
        self._restores: list[Callable[[], object]] = []
        self._was_usable = False
        self._link = ValkeyLink(
            address,
            self._channel,
            prepare=self._prepare,
            look=self._look,
            on_usable=self._on_usable,
            on_message=self._receive,
            within_s=within_s,
        )

    def __repr__(self) -> str:
        return f"<ValkeyStore {self._link!r}>"

    async def open(self) -> None:
        """Try to connect; without success, operations fail until the server is found."""
        await self._link.open()

    async def get(self, space: StoreSpace, name: str) -> StoredEntry | None:
        for _ in range(2):
            epoch, key = self._epoch, self._entry_key(space, name)
            answer = await self._link.run("MGET", EPOCH, key)
            match answer:
                case [found, None] if found == epoch:
                    return None
                case [found, bytes() as sealed] if found == epoch:
                    return self._open_entry(key, sealed)
                case [None, None] | [bytes(), _]:
                    await self._begin_again(epoch)
                case _:
                    break
        raise _nonsense()

    async def put(self, space: StoreSpace, name: str, value: bytes, ttl_s: float) -> Version:
        version = await self._write(space, name, value, ttl_s, _ANY)
        assert version is not None, "it does not depend on what is there"
        return version

    async def compare_and_set(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, *, expected: Version
    ) -> Version | None:
        return await self._write(space, name, value, ttl_s, expected)

    async def _write(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, expected: bytes
    ) -> Version | None:
        check_entry(value, ttl_s)
        sealed = b""

        def make() -> tuple[list[bytes], Arguments]:
            nonlocal sealed
            keys, arguments = self._listed(space, name)
            sealed = self._seal.seal(_pack(name.encode(), value), keys[0])
            return keys, [*arguments, sealed, max(1, int(ttl_s * 1000)), expected]

        match await self._run(WRITE, make):
            case [b"ok"]:
                return sealed[:HEAD_BYTES]
            case [b"other"]:
                return None
            case [b"full"]:
                raise StoreUnavailable(StoreFailure.FULL, f"{space.most_listed} entries of `{space.name}`")
        raise _nonsense()

    async def delete(self, space: StoreSpace, name: str, *, expected: Version | None = None) -> bool:
        return await self._delete(space, name, _ANY if expected is None else expected) is not None

    async def take(self, space: StoreSpace, name: str) -> StoredEntry | None:
        sealed = await self._delete(space, name, _ANY)
        return None if sealed is None else self._open_entry(self._entry_key(space, name), sealed)

    async def _delete(self, space: StoreSpace, name: str, expected: bytes) -> bytes | None:
        def make() -> tuple[list[bytes], Arguments]:
            keys, arguments = self._listed(space, name)
            return keys, [*arguments, expected]

        match await self._run(DELETE, make):
            case [b"ok", bytes() as sealed]:
                return sealed
            case [b"none" | b"other"]:
                return None
        raise _nonsense()

    async def list_entries(self, space: StoreSpace) -> list[StoredEntry]:
        begin = b"%se:%s:" % (PREFIX, space.name.encode())
        answer = await self._run(LIST, lambda: ([self._index_key(space)], [begin]))
        parts = [each for each in answer[1:] if isinstance(each, bytes)]
        if answer == [b"large"]:
            raise StoreUnavailable(StoreFailure.FULL, f"the entries of `{space.name}` are too large together")
        if answer[0] != b"ok" or len(parts) != len(answer) - 1 or len(parts) % 2:
            raise _nonsense()
        return [self._open_entry(begin + name, value) for name, value in zip(parts[::2], parts[1::2], strict=True)]

    async def scan(self, space: StoreSpace) -> AsyncIterator[StoredEntry]:
        seen: set[bytes] = set()
        async for key in self._scan_entries(b"%s:*" % space.name.encode()):
            sealed = None if key in seen else await self._link.run("GET", key)
            if sealed is not None:
                seen.add(key)
                yield self._open_entry(key, sealed)

    async def count_changes(self, spaces: Sequence[StoreSpace]) -> tuple[int, ...]:
        for _ in range(2):
            epoch = self._epoch
            match await self._link.run("MGET", EPOCH, *(self._changes_key(each) for each in spaces)):
                case [found, *numbers] if found == epoch and len(numbers) == len(spaces):
                    if all(each is None or each.isdigit() for each in numbers):
                        return tuple(int(each or 0) for each in numbers)
                    break
                case [None | bytes(), *_]:
                    await self._begin_again(epoch)
                case _:
                    break
        raise _nonsense()

    async def count(self, space: StoreSpace, rates: Sequence[Rate]) -> Wait | None:
        def make() -> tuple[list[bytes], Arguments]:
            times = [(each.interval_s * _MICROSECONDS, each.slack_s * _MICROSECONDS) for each in rates]
            return [self._key(b"r", space, each.name) for each in rates], [
                b"%.0f" % t for pair in times for t in pair
            ]

        return _read_wait(await self._run(COUNT, make))

    async def acquire(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> Wait | None:
        def make() -> tuple[list[bytes], Arguments]:
            keys, arguments = self._leases(space, leases, holder)
            return keys, [*arguments, int(ttl_s * _MICROSECONDS), *(each.places for each in leases)]

        return _read_wait(await self._run(ACQUIRE, make))

    async def renew(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> bool:
        def make() -> tuple[list[bytes], Arguments]:
            keys, arguments = self._leases(space, leases, holder)
            return keys, [*arguments, int(ttl_s * _MICROSECONDS)]

        match await self._run(RENEW, make):
            case [b"ok", int() as has_all]:
                return bool(has_all)
        raise _nonsense()

    async def release(self, space: StoreSpace, leases: Sequence[Lease], holder: str) -> None:
        def make() -> tuple[list[bytes], Arguments]:
            keys, arguments = self._leases(space, leases, holder)
            return keys, [*arguments, self._channel, self._seal_message(space, b"")]

        await self._run(RELEASE, make)

    async def publish(self, space: StoreSpace, message: bytes) -> None:
        await self._link.run("PUBLISH", self._channel, self._seal_message(space, message))

    def subscribe(self, space: StoreSpace, on_message: Callable[[bytes | None], object]) -> Callable[[], None]:
        return self._subscribers.add(space.name, on_message)

    def on_reset(self, restore: Callable[[], object]) -> Callable[[], None]:
        self._restores.append(restore)

        def remove() -> None:
            if restore in self._restores:
                self._restores.remove(restore)

        return remove

    def describe(self) -> StoreStatus:
        link, counts = self._link, self._link.counts
        failure = link.failure or link.trouble
        return StoreStatus(
            str(link.address),
            "" if failure is None else failure.failure.value,
            operations=counts.sent,
            failed=counts.failed,
            refused=counts.refused,
        )

    async def close(self) -> None:
        await self._link.close()

    # --- another key ----------------------------------------------------------------------------------------

    async def reseal(self) -> Resealed:
        """Seal with the newest key what others have sealed, so that those can be removed. Raises StoreUnavailable."""
        found = resealed = unreadable = 0
        async for key in self._scan_entries():
            sealed = await self._link.run("GET", key)
            if sealed is None:  # it has expired
                continue
            found += 1
            if self._seal.is_newest(sealed):
                continue
            try:
                content = self._seal.open(sealed, key)
            except SealError:
                unreadable += 1
            else:
                resealed += await self._reseal(key, sealed, content)
        return Resealed(found, resealed, unreadable)

    async def _scan_entries(self, pattern: bytes = b"*") -> AsyncIterator[bytes]:
        """Yield the keys of entries, some perhaps twice."""
        cursor: bytes | int = 0
        while True:
            match await self._link.run("SCAN", cursor, "MATCH", PREFIX + b"e:" + pattern, "COUNT", 500):
                case [bytes() as cursor, list() as keys]:
                    for each in keys:
                        yield each
                case _:
                    raise _nonsense()
            if cursor == b"0":
                return

    async def _reseal(self, key: bytes, sealed: bytes, content: bytes) -> bool:
        """Return whether the entry was not changed meanwhile, by a replica that seals with the newest key anyway."""
        kind, space, hashed = key.removeprefix(PREFIX).split(b":")
        assert kind == b"e", "these are entries"
        space_of = StoreSpace(space.decode())
        name, _ = _unpack(content)

        def make() -> tuple[list[bytes], Arguments]:
            message = self._seal_message(space_of, name)
            keys = [key, self._index_key(space_of), self._changes_key(space_of)]
            return keys, [sealed[:HEAD_BYTES], self._seal.seal(content, key), hashed, self._channel, message]

        return await self._run(RESEAL, make) == [b"ok"]

    # --- the epoch: until the server loses its entries ------------------------------------------------------

    async def _prepare(self) -> None:
        """Find out what the names in this server are made with, and whether it may be written to."""
        await self._begin()
        try:
            await self._look()
        except StoreUnavailable as exc:
            if exc.failure is not StoreFailure.FULL:  # a full one still reads and deletes
                raise
            self._link.record_trouble(exc)

    async def _look(self) -> None:
        """Try the connection. Raises StoreUnavailable."""
        answer = await self._evaluate(LOOK, [EPOCH, LOOKED], [self._epoch])
        if answer == [b"reset"]:
            await self._begin_again(self._epoch)
        elif answer != [b"ok"]:
            raise _nonsense()

    async def _begin_again(self, epoch: bytes) -> None:
        async with self._beginning:
            if self._epoch == epoch:  # else another operation has seen it first
                await self._begin()
                self._restore()

    def _on_usable(self) -> None:
        if self._was_usable:  # another server may have come in its place, which lacks the latest writes
            self._restore()
        self._was_usable = True

    def _restore(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._restores:
            loop.call_soon(each)
        self._subscribers.send_loss()

    async def _begin(self) -> None:
        name_key = self._name_key or secrets.token_bytes(32)
        epoch = secrets.token_hex(16).encode()
        answer = await self._evaluate(BEGIN, [EPOCH, NAMES], [epoch, self._seal.seal(name_key, NAMES)])
        match answer:
            case [b"kept" | b"new", bytes() as epoch, bytes() as sealed]:
                pass
            case _:
                raise _nonsense()
        try:
            name_key = self._seal.open(sealed, NAMES)
        except SealError as exc:
            hint = "give all replicas the same `settings.cluster.keys`, and each service its own database"
            raise StoreUnavailable(StoreFailure.FOREIGN, f"{exc}; {hint}") from exc
        if not self._seal.is_newest(sealed):
            await self._evaluate(RESEAL_NAMES, [EPOCH, NAMES], [epoch, sealed, self._seal.seal(name_key, NAMES)])
        self._epoch, self._name_key = epoch, name_key

    async def _run(self, script: Script, make: MakeCommand) -> list[object]:
        """Run a script; in a new epoch, once more. Raises StoreUnavailable."""
        for _ in range(2):
            epoch = self._epoch
            keys, arguments = make()
            answer = await self._evaluate(script, [EPOCH, *keys], [epoch, *arguments], is_first=False)
            if not isinstance(answer, list) or not answer:
                raise _nonsense()
            if answer != [b"reset"]:
                return answer
            await self._begin_again(epoch)
        raise StoreUnavailable(StoreFailure.DOWN, "it loses its entries again and again")

    async def _evaluate(
        self, script: Script, keys: list[bytes], arguments: Arguments, *, is_first: bool = True
    ) -> object:
        run = self._link.run_first if is_first else self._link.run
        try:
            return await run("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except ScriptMissing:
            pass
        return await run("EVAL", script.text, len(keys), *keys, *arguments)

    # --- keys, entries and messages -----------------------------------------------------------------------

    def _hash(self, space: StoreSpace, name: str) -> bytes:
        digest = hmac.digest(self._name_key, b"%s\0%s" % (space.name.encode(), name.encode()), "sha256")
        return urlsafe_b64encode(digest[:_HASH_BYTES]).rstrip(b"=")

    def _key(self, kind: bytes, space: StoreSpace, name: str) -> bytes:
        return b"%s%s:%s:%s" % (PREFIX, kind, space.name.encode(), self._hash(space, name))

    def _entry_key(self, space: StoreSpace, name: str) -> bytes:
        return self._key(b"e", space, name)

    def _index_key(self, space: StoreSpace) -> bytes:
        return b"%si:%s" % (PREFIX, space.name.encode())

    def _changes_key(self, space: StoreSpace) -> bytes:
        return b"%sn:%s" % (PREFIX, space.name.encode())

    def _listed(self, space: StoreSpace, name: str) -> tuple[list[bytes], Arguments]:
        """Return the keys and arguments of a script that changes an entry."""
        key = self._entry_key(space, name)
        message = self._seal_message(space, name.encode()) if space.most_listed else b""
        keys = [key, self._index_key(space), self._changes_key(space)]
        return keys, [space.most_listed, key.rpartition(b":")[2], self._channel, message]

    def _leases(self, space: StoreSpace, leases: Sequence[Lease], holder: str) -> tuple[list[bytes], Arguments]:
        return [self._key(b"p", space, each.name) for each in leases], [self._hash(space, holder)]

    def _open_entry(self, key: bytes, sealed: bytes) -> StoredEntry:
        try:
            name, value = _unpack(self._seal.open(sealed, key))
        except SealError as exc:
            raise StoreUnavailable(StoreFailure.FOREIGN, f"an entry cannot be opened: {exc}") from exc
        return StoredEntry(name.decode(), value, sealed[:HEAD_BYTES])

    def _seal_message(self, space: StoreSpace, message: bytes) -> bytes:
        return self._seal.seal(_pack(space.name.encode(), message), self._channel)

    def _receive(self, message: bytes | None) -> None:
        if message is None:
            self._subscribers.send_loss()
            return
        try:
            space, content = _unpack(self._seal.open(message, self._channel))
        except SealError:
            return  # of another service
        self._subscribers.send(space.decode(), content)


def _pack(name: bytes, value: bytes) -> bytes:
    return len(name).to_bytes(4, "big") + name + value


def _unpack(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]


def _read_wait(answer: list[object]) -> Wait | None:
    match answer:
        case [b"ok"]:
            return None
        case [b"wait", int() as index, bytes() as microseconds] if microseconds.isdigit():
            return Wait(index, int(microseconds) / _MICROSECONDS)
    raise _nonsense()


def _nonsense() -> StoreUnavailable:
    return StoreUnavailable(StoreFailure.NONSENSE, may_have_run=True)
