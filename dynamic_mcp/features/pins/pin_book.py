"""The pins that this proxy knows: those of the lock file, and those accepted since.

The file is shared with other proxies and with users, so each change is applied to its current content and respects
other decisions. If the disk fails, only the record of accepted definitions is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.judgement import pin_all
from dynamic_mcp.features.pins.lock_file import (
    Pin,
    PinnedServer,
    PinSet,
    combine_pins,
    lock_store,
    pins_of_source,
    read_lock,
    update_lock,
)
from dynamic_mcp.system.file_store import CorruptFile, Stamp, StoreError, stamp_of
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

# How often the file is checked while something is held, which a user may approve.
POLL_S = 0.5
_CLOSE_WITHIN_S = 2.0


class Acceptance(Struct, frozen=True):
    """Pins to write for a server, and the fingerprints that they replace."""

    server: str
    source: str
    version: str
    pins: Mapping[Key, Pin]
    former: Mapping[Key, str | None]


class PinBook:
    """The pins of one config. `on_change` is called when the content of the file has changed.

    If `is_own`, the file is in the state directory; any other belongs to the user, who may commit it.
    """

    def __init__(
        self, path: Path, on_change: Callable[[], None], *, is_own: bool,
        on_forget: Callable[[Mapping[str, PinnedServer]], None] | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self._on_change = on_change
        self._on_forget = on_forget
        self._is_own = is_own
        self._lock = PinSet()
        self._stamp: Stamp | None = None
        self._is_read = self._is_closed = False
        self._logged = set[str]()
        self._unwritten: list[Acceptance] = []
        self._adopted: dict[str, PinnedServer | None] = {}  # pins of other replicas that are not in the file yet
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._is_watching = False

    def find(self, server: str) -> PinnedServer | None:
        return self._lock.servers.get(server)

    def refresh(self) -> bool:
        """Read the file again if it has changed; return whether it has."""
        stamp = stamp_of(self.path)
        if self._is_read and stamp == self._stamp:
            return False
        self._is_read, self._stamp = True, stamp
        try:
            found = read_lock(self.path)
        except (OSError, StoreError) as exc:
            self._keep_going(exc)
            return False
        self._logged.clear()
        before = self._lock.servers
        self._lock = _merge(_adopt(found, self._adopted), self._unwritten)
        forgotten = {name: pinned for name, pinned in before.items() if name not in self._lock.servers}
        if forgotten and stamp is not None and self._on_forget is not None:
            self._on_forget(forgotten)
        return True

    def adopt(self, server: str, pinned: PinnedServer | None) -> None:
        """Have the pins of a server as all replicas have them, or none: at once, and soon in the file."""
        self._adopted[server] = pinned
        self._lock = self._lock.with_server(server, pinned)
        self._write_soon()

    def accept(self, acceptance: Acceptance) -> None:
        """Pin definitions: at once for this proxy, and soon for all others."""
        self._unwritten.append(acceptance)
        self._lock = _merge(self._lock, [acceptance])
        self._write_soon()

    def watch(self, *, is_wanted: bool) -> None:
        self._is_watching = is_wanted
        if is_wanted and self._poll is None and not self._is_closed:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._look) if _has_loop() else None

    async def close(self) -> None:
        """Finish writing, unless the disk stalls."""
        self._is_closed = True
        if self._poll is not None:
            self._poll.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_CLOSE_WITHIN_S)

    # --- reading -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._poll = None
        if self._is_watching:
            self.watch(is_wanted=True)
            if self.refresh():
                self._on_change()

    def _keep_going(self, error: Exception) -> None:
        """Continue with the known pins when the file cannot be read."""
        if isinstance(error, CorruptFile) and self._is_own:
            lock_store(self.path).set_aside()
            self._stamp = None
            self._log_error(error, "it is set aside, and the pins of this process are written anew")
            self._unwritten = [*_accept_all(self._lock), *self._unwritten]
            self._write_soon()
        else:
            self._log_error(error, "what servers offer now is the baseline until it can be read")

    def _log_error(self, error: Exception, consequence: str) -> None:
        reason = os_reason(error)
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("the pinned definitions in `%s`: %s; %s", self.path, reason, consequence)

    # --- writing -----------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        if self._writing is None and _has_loop():
            self._writing = self._tasks.create(self._write(), name="pins")

    async def _write(self) -> None:
        try:
            await self._write_all()
        finally:
            self._writing = None  # in the same turn in which nothing was left: later pins start a new write

    async def _write_all(self) -> None:
        await asyncio.sleep(0)  # pins accepted in this turn are written together
        while self._unwritten or self._adopted:
            accepted, adopted = tuple(self._unwritten), dict(self._adopted)
            try:
                lock, stamp = await asyncio.to_thread(_update, self.path, accepted, adopted)
            except (OSError, StoreError) as exc:
                self._log_error(exc, "new pins are not kept")
                return  # unwritten pins are retried with the next ones
            del self._unwritten[: len(accepted)]
            self._adopted = {name: each for name, each in self._adopted.items() if adopted.get(name) is not each}
            self._lock, self._stamp = _merge(_adopt(lock, self._adopted), self._unwritten), stamp
            self._on_change()


def _update(
    path: Path, accepted: Sequence[Acceptance], adopted: Mapping[str, PinnedServer | None]
) -> tuple[PinSet, Stamp | None]:
    """Write to the file, and return its new content."""
    update_lock(path, lambda before: _merge(_adopt(before, adopted), accepted))
    stamp = stamp_of(path)
    return read_lock(path), stamp  # read after its stamp, so that concurrent writes are not missed


def _adopt(lock: PinSet, adopted: Mapping[str, PinnedServer | None]) -> PinSet:
    """Return a lock with the pins of other replicas; the same object if it has them all."""
    for name, shared in adopted.items():
        own = None if shared is None else pins_of_source(lock.servers.get(name), shared.source)
        pinned = shared if own is None or shared is None else combine_pins(own, shared)
        if pinned != lock.servers.get(name):
            lock = lock.with_server(name, pinned)
    return lock


def _accept_all(lock: PinSet) -> Iterator[Acceptance]:
    """Yield acceptances that rewrite a whole lock."""
    for name, server in lock.servers.items():
        pins = {(kind, each): pin for kind in PinKind for each, pin in server.pins(kind).items()}
        yield Acceptance(name, server.source, server.version, pins, dict.fromkeys(pins))


def _merge(lock: PinSet, accepted: Sequence[Acceptance]) -> PinSet:
    """Return a lock with the accepted pins; the same object if it has them all."""
    for each in accepted:
        before = pins_of_source(lock.servers.get(each.server), each.source)
        if before is None and any(former is not None for former in each.former.values()):
            continue  # another process has started a new baseline
        base = before or PinnedServer(each.source, each.version)
        new = {key: pin for key, pin in each.pins.items() if _still_fits(base, key, pin, each.former[key])}
        if new or before is None:
            server = structs.replace(pin_all(base, new), version=each.version or base.version)
            lock = lock.with_server(each.server, server)
    return lock


def _still_fits(server: PinnedServer, key: Key, pin: Pin, former: str | None) -> bool:
    """Return whether a pin may be written: another process may have changed it meanwhile."""
    current = server.find(*key)
    if current is None or current.find(pin.hash) is not None:
        return current is None
    return current.hash == former


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
