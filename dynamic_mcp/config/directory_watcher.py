"""Watches directories. Imported only when needed, because watchdog is slow to load."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

# Without the events for opening and reading, which our own reads cause.
_WRITING: list[type[FileSystemEvent]] = [
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
]


class DirectoryWatcher:
    """Watches a set of directories and calls `on_change` from another thread."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._handler = _Handler(on_change)
        self._observer = Observer()
        self._observer.daemon = True
        self._watches: dict[tuple[Path, int], ObservedWatch] = {}
        self._observer.start()

    def watch(self, directories: Iterable[Path]) -> bool:
        """Watch exactly these directories, or the nearest existing parents; return whether any is new.

        Raises OSError if the system cannot watch more directories.
        """
        targets = {(path, path.stat().st_ino) for path in map(_nearest_directory, directories)}
        for old in self._watches.keys() - targets:
            with contextlib.suppress(KeyError, OSError):  # removing the directory may have ended its watch
                self._observer.unschedule(self._watches[old])
            del self._watches[old]
        new = targets - self._watches.keys()
        for key in new:
            self._watches[key] = self._observer.schedule(self._handler, str(key[0]), event_filter=_WRITING)
        return bool(new)

    def stop(self) -> None:
        """Stop watching; the threads end on their own."""
        self._observer.stop()


class _Handler(FileSystemEventHandler):
    def __init__(self, happened: Callable[[], None]) -> None:
        self._on_change = happened

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._on_change()


def _nearest_directory(path: Path) -> Path:
    return next((each for each in (path, *path.parents) if each.is_dir()), Path(path.anchor or "."))
