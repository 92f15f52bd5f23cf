"""Pins that replicas share, in the store that they share: what is held at one is held at all, and so is an approval.

Each entry has the pins of one server as the config runs it. A replica that has never read the store knows nothing of
what was pinned, so it must not take what a server offers for the first sight of it.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.features.pins.definition import PinKind
from dynamic_mcp.features.pins.lock_file import Pin, PinnedServer, combine_pins
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    SharedStore,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)
from dynamic_mcp.system.store_copies import Mirror
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# All entries together are listed, in 4 MiB.
PINS = StoreSpace("pins", most_listed=60)
_MOST_BYTES = 64 << 10
_MOST_DECODED_BYTES = 64 << 20
_TRIES = 5
_TRY_AGAIN_S = 1.0


class SharedServer(Struct, frozen=True):
    """An entry: the pins of a server, and how often they were forgotten on purpose."""

    pins: PinnedServer
    resets: int = 0


class SharedPins:
    """The pins of all replicas. `on_change` is called when others have changed some, or they were read first."""

    def __init__(self, store: SharedStore, on_change: Callable[[], object]) -> None:
        self.store = store
        self.is_known = False  # whether the store was read
        self._on_change = on_change
        self._decoded: dict[str, tuple[StoredEntry, SharedServer | None]] = {}
        self._resets: dict[str, int] = {}  # of the pins that this replica has
        self._waiting: dict[str, PinnedServer | None] = {}  # to be written; None is to be forgotten
        self._warned: set[str] = set()
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._first_read = asyncio.Event()
        self._mirror = Mirror(store, PINS)
        self._mirror.on_change(self._read)
        self._tasks.create(self._mirror.run(), name="pins of other replicas")

    def __repr__(self) -> str:
        return f"<SharedPins, {len(self._decoded)} servers{'' if self.is_known else ', NOT READ'}>"

    async def wait(self, within_s: float) -> None:
        """Wait until the store was read, for so long at most."""
        try:
            async with asyncio.timeout(within_s):
                await self._first_read.wait()
        except TimeoutError:
            log.warning("pinned definitions are not known yet: the shared store does not answer; new ones are held")

    def combine(self, server: str, source: str, own: PinnedServer | None) -> PinnedServer | None:
        """Return the pins of a server, of this replica and the others; None if it has none, or they were forgotten.

        What this replica alone has is written for the others.
        """
        name = _name_of(server, source)
        found = self._find(name)
        if found is not None and found.resets < self._resets.get(name, 0):
            found = None  # it was forgotten since
        own = own if own is not None and own.source == source else None
        if found is None:
            if own is not None:
                self._resets.setdefault(name, 0)
                self._write(name, own)
            return own
        if own is None or self._resets.get(name, found.resets) != found.resets:
            self._resets[name] = found.resets
            return found.pins if found.pins.source else None
        self._resets[name] = found.resets
        if not found.pins.source:  # it was forgotten, and this replica has seen it first since
            self._write(name, own)
            return own
        combined = combine_pins(own, found.pins)
        if not _is_same(combined, found.pins):
            self._write(name, combined)
        return combined

    def forget(self, server: str, source: str) -> None:
        """Forget the pins of a server at all replicas."""
        name = _name_of(server, source)
        found = self._find(name)
        self._resets[name] = max(0 if found is None else found.resets, self._resets.get(name, 0)) + 1
        self._write(name, None)

    async def close(self) -> None:
        """Write what waits, unless the store does not answer."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_TRY_AGAIN_S)
        self._tasks.cancel_all()
        await self._tasks.wait()

    # --- reading -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        is_first, self.is_known = not self.is_known, True
        self._first_read.set()
        before, self._decoded = self._decoded, {}
        for entry in self._mirror.entries:
            known = before.get(entry.name)
            is_same = known is not None and known[0].version == entry.version
            self._decoded[entry.name] = known if known is not None and is_same else (entry, _decode(entry))
        changed = {name: each[1] for name, each in self._decoded.items()} != {n: e[1] for n, e in before.items()}
        if changed or is_first:
            self._on_change()

    def _find(self, name: str) -> SharedServer | None:
        found = self._decoded.get(name)
        return None if found is None else found[1]

    # --- writing -----------------------------------------------------------------------------------------

    def _write(self, name: str, pins: PinnedServer | None) -> None:
        if not self.is_known or name in self._warned:
            return
        self._waiting[name] = pins
        if self._writing is None:
            self._writing = self._tasks.create(self._write_all(), name="pins for other replicas")

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                name = next(iter(self._waiting))
                pins = self._waiting[name]
                try:
                    await self._write_one(name, pins)
                except StoreUnavailable as exc:
                    if exc.failure is not StoreFailure.FULL:
                        log.debug("pins wait for the shared store: %s", exc)
                        await asyncio.sleep(_TRY_AGAIN_S)
                        continue
                    self._warn(name, "the shared store has no room for them")
                if self._waiting.get(name) is pins:
                    del self._waiting[name]
        finally:
            self._writing = None

    async def _write_one(self, name: str, pins: PinnedServer | None) -> None:
        """Write the pins of a server, with what others have written meanwhile. Raises StoreUnavailable."""
        for _ in range(_TRIES):
            entry = await self.store.get(PINS, name)
            found = None if entry is None else _decode(entry)
            resets = max(0 if found is None else found.resets, self._resets.get(name, 0))
            if pins is None:
                new = SharedServer(PinnedServer(), resets)
            elif found is None or found.resets < resets or not found.pins.source:
                new = SharedServer(pins, resets)
            else:
                new = SharedServer(combine_pins(pins, found.pins), resets)
            if found is not None and new.resets == found.resets and _is_same(new.pins, found.pins):
                return
            value = await asyncio.to_thread(_encode, new)
            if value is None:
                self._warn(name, "they are too many to be shared")
                return
            expected = ABSENT if entry is None else entry.version
            if await self.store.compare_and_set(PINS, name, value, LONGEST_S, expected=expected) is not None:
                return

    def _warn(self, name: str, why: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            log.warning("the pins of group `%s` are those of this replica alone: %s", name.partition(" ")[2], why)


def _name_of(server: str, source: str) -> str:
    return f"{source} {server}"


def _encode(shared: SharedServer) -> bytes | None:
    """Return an entry, without the definitions where they take too much room; None if it is too large even so."""
    for each in (shared, replace(shared, pins=_without_definitions(shared.pins))):
        value = zlib.compress(wire.encode(each))
        if len(value) <= _MOST_BYTES:
            return value
    return None


def _decode(entry: StoredEntry) -> SharedServer | None:
    try:
        inflater = zlib.decompressobj()
        return decode_as(inflater.decompress(entry.value, _MOST_DECODED_BYTES), SharedServer)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as exc:  # of another version
        log.debug("pins in the shared store cannot be read: %s", exc)
        return None


def _is_same(one: PinnedServer, other: PinnedServer) -> bool:
    """Return whether two servers have the same pins, whether or not their definitions are kept."""
    return _without_definitions(one) == _without_definitions(other)


def _without_definitions(server: PinnedServer) -> PinnedServer:
    pins: Mapping[tuple[PinKind, str], Pin] = {
        (kind, name): replace(pin, definition=wire.ABSENT, former=tuple(Pin(each.hash) for each in pin.former))
        for kind in PinKind
        for name, pin in server.pins(kind).items()
    }
    return server.with_pins(dict(pins))
