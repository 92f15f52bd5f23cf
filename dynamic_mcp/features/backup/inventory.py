"""What the program keeps in files: which of them belong into a backup, and in which order they are copied."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features import table
from dynamic_mcp.features.table import StatePlace

STATE = "state"
ELSEWHERE = "elsewhere"
SQLITE = b"SQLite format 3\0"

# What the kernel keeps; features have theirs in their rows.
_PLACES = (
    StatePlace("logins"),  # to servers
    StatePlace("tokens", is_secret=False),  # their hashes
    StatePlace("journal"),  # what `undo` needs: files as they were, and their secrets
    StatePlace("tool-uses.json", is_secret=False),
    StatePlace("running", is_passing=True),
    StatePlace("run", is_passing=True),  # sockets
    StatePlace("log", is_passing=True),  # not state, and large; some systems have it elsewhere
    StatePlace("tasks", is_passing=True),  # what the Task Scheduler of this machine starts
)
# Beside databases, which are copied by SQLite; locks, which are made where they are needed; and half-written files.
_COMPANIONS = ("-wal", "-shm", "-journal")
_LOCK, _NEW = ".lock", ".new"


class KeptFile(Struct, frozen=True):
    """A file to be copied, and its name in the archive. `is_secret`: who has it can act for a user or the service."""

    name: str
    path: Path
    is_secret: bool


class StateLocation(Struct, frozen=True):
    """A directory or file that has state, and how the names of its files begin in the archive."""

    prefix: str
    path: Path

    @property
    def within(self) -> str:
        """The path in the state directory that it stands for; empty for that directory itself."""
        return self.prefix.partition("/")[2]


def find_places(state_dir: Path, config: Config | None) -> list[StateLocation]:
    """Return the state directory, and where a config keeps the rest of it."""
    places = [StateLocation(STATE, state_dir)]
    for feature in table.FEATURES if config is not None else ():
        for name, target in feature.keeps_elsewhere.items():
            path = feature.find(target)(config)
            if path is not None and not path.is_relative_to(state_dir):
                places.append(StateLocation(f"{ELSEWHERE}/{name}", path))
    return places


def list_kept(place: StateLocation) -> list[KeptFile]:
    """Return the files of a place that belong into a backup, in the order in which they must be copied.

    Raises OSError.
    """
    order = {each.path: number for number, each in enumerate(all_places())}
    found = [
        (order.get(kind.path, len(order)), name, file, kind)
        for name, file in _walk(place.path, place.within)
        if not (kind := find_kind(name)).is_passing and not _is_aside(file)
    ]
    return [KeptFile(_name_in_archive(place, name), file, kind.is_secret) for _, name, file, kind in sorted(found)]


def all_places() -> list[StatePlace]:
    """Return what is known of the state directory, in the order in which it is copied."""
    return [*(each for feature in table.FEATURES for each in feature.state), *_PLACES]


def find_kind(name: str) -> StatePlace:
    """Return what is known of a file of the state directory. An unknown one is kept, and may be a secret."""
    parents = [name, *map(str, PurePosixPath(name).parents)]
    known = {each.path: each for each in all_places()}
    return next((known[each] for each in parents if each in known), StatePlace(name))


def is_companion(file: Path) -> bool:
    """Return whether SQLite keeps this file beside a database."""
    return file.name.endswith(_COMPANIONS) and file.with_name(file.name.rpartition("-")[0]).is_file()


def _is_aside(file: Path) -> bool:
    return file.suffix in (_LOCK, _NEW) or file.name.startswith(f"{_NEW}-") or is_companion(file)


def _name_in_archive(place: StateLocation, name: str) -> str:
    return place.prefix + name.removeprefix(place.within) if place.within else f"{place.prefix}/{name}"


def _walk(path: Path, within: str) -> Iterator[tuple[str, Path]]:
    """Yield the regular files of a directory, or a file itself; links, sockets and devices are no state."""
    try:
        status = path.stat()  # the place itself may be a link
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode):
        yield within, path
    elif stat.S_ISDIR(status.st_mode):
        for each in sorted(os.scandir(path), key=lambda entry: entry.name):
            name = f"{within}/{each.name}".lstrip("/")
            if each.is_dir(follow_symlinks=False) and not find_kind(name).is_passing:
                yield from _walk(Path(each.path), name)
            elif each.is_file(follow_symlinks=False):
                yield name, Path(each.path)
