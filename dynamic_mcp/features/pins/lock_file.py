"""The file with the pinned definitions of all servers of a config: written atomically, changed under a lock.

A file written by a newer version of this program is left alone. An unreadable file in the state directory is set
aside; one beside the config belongs to the user, who may commit it, and stays unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Raw, Struct, structs

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_store import FileStore, JsonCodec

LOCK_WITHIN_S = 5.0


class Pin(Struct, frozen=True, omit_defaults=True):
    """The pin of one definition: its fingerprint, and the definition as canonical JSON, if it is not too large.

    `first_seen` is a date, as `2026-11-23`. `approved_by` is the user who approved it; empty is the first sight or
    an automatically accepted change. `former` are the definitions before, latest first; they may come back.
    """

    hash: str
    definition: Raw = wire.ABSENT
    first_seen: str = ""
    approved_by: str = ""
    former: tuple[Pin, ...] = ()

    def find(self, fingerprint: str) -> Pin | None:
        """Return this pin or the former one with a fingerprint."""
        return next((each for each in (self, *self.former) if each.hash == fingerprint), None)


class PinnedServer(Struct, frozen=True, omit_defaults=True):
    """The pins of one server. `source` is a digest of what it runs, and `version` its reported version."""

    source: str = ""
    version: str = ""
    instructions: Pin | None = None
    tools: Mapping[str, Pin] = {}
    uis: Mapping[str, Pin] = {}
    prompts: Mapping[str, Pin] = {}
    templates: Mapping[str, Pin] = {}
    skills: Mapping[str, Pin] = {}

    def find(self, kind: PinKind, name: str) -> Pin | None:
        return self.instructions if kind is PinKind.INSTRUCTIONS else self.pins(kind).get(name)

    def pins(self, kind: PinKind) -> Mapping[str, Pin]:
        """Return the pins of a kind by name; the name of instructions is empty."""
        if kind is PinKind.INSTRUCTIONS:
            return {} if self.instructions is None else {"": self.instructions}
        found: Mapping[str, Pin] = getattr(self, kind.member)
        return found

    def with_pins(self, pins: Mapping[Key, Pin]) -> PinnedServer:
        changed: dict[str, object] = {}
        for kind in PinKind:
            new = {name: pin for (each, name), pin in pins.items() if each is kind}
            if new:
                changed[kind.member] = new[""] if kind is PinKind.INSTRUCTIONS else {**self.pins(kind), **new}
        return structs.replace(self, **changed) if changed else self


def pins_of_source(server: PinnedServer | None, source: str) -> PinnedServer | None:
    """Return the pins of a server if they are of this source; else None."""
    return server if server is not None and server.source == source else None


def combine_pins(own: PinnedServer, shared: PinnedServer) -> PinnedServer:
    """Return the pins of two replicas, of one source. Of two for one definition the later one counts.

    That is one that has the other among its former ones, else one that a person has approved, else the shared one.
    """
    pins = {
        (kind, name): pin
        for kind in PinKind
        for name, pin in own.pins(kind).items()
        if _is_later(pin, shared.find(kind, name))
    }
    return shared.with_pins(pins) if pins else shared


def _is_later(own: Pin, shared: Pin | None) -> bool:
    if shared is None:
        return True
    if own.hash == shared.hash:
        is_approved = bool(own.approved_by) and not shared.approved_by
        return is_approved or len(own.definition) > len(shared.definition)
    if shared.find(own.hash) is not None:
        return False
    return own.find(shared.hash) is not None or (bool(own.approved_by) and not shared.approved_by)


class PinSet(Struct, frozen=True):
    """All pins, by the names of the servers."""

    servers: Mapping[str, PinnedServer] = {}

    def with_server(self, name: str, server: PinnedServer | None) -> PinSet:
        """Return the pins with a server replaced; None forgets the server."""
        servers = {**self.servers}
        servers.pop(name, None)
        return PinSet(servers if server is None else {**servers, name: server})


_CODEC = JsonCodec(PinSet, 1)


def find_lock_file(config: Config) -> Path:
    """Return the lock file of a config: the file that it names, or one in the state directory."""
    return config.lock_file or path_for(config.file, paths.state_dir() / "pins")


def path_for(config: Path, folder: Path) -> Path:
    """Return the default lock file of a config in `folder`."""
    return folder / f"{sha256(os.fsencode(os.path.abspath(config))).hexdigest()[:40]}.json"  # noqa: PTH100 - a link stays


def read_lock(path: Path) -> PinSet:
    """Return the content of a lock file; empty if there is none. Raises CorruptFile, NewerFile and OSError."""
    return lock_store(path).load() or PinSet()


def update_lock(path: Path, change: Callable[[PinSet], PinSet]) -> None:
    """Change a lock file in one step, under a lock against other processes.

    `change` gets the current content, and returns the same object to leave it unchanged. Blocks.
    Raises CorruptFile, NewerFile and OSError; then the file is unchanged.
    """
    store = lock_store(path)
    with store.locked(LOCK_WITHIN_S):
        before = store.load() or PinSet()
        after = change(before)
        if after is not before:
            store.save(after)


def lock_store(path: Path) -> FileStore[PinSet]:
    """Return the store of a lock file. A symbolic link to a file elsewhere is kept."""
    file = path.resolve()
    lock = paths.state_dir() / "pins" / f"{path_for(file, Path()).stem}.lock"
    return FileStore(file, _CODEC, lock=lock, is_private=False)
