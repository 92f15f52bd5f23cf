"""Reads the config again when its content changes, or that of its env files, however they are saved.

What counts is content, not events. The last good config stays until there is another good one; a file that is
missing, empty or half written gets a moment to become whole, and is reported once when it does not.
"""

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.system.file_reader import read_bytes

if TYPE_CHECKING:
    from dynamic_mcp.config.directory_watcher import DirectoryWatcher

log = logging.getLogger(__name__)

# Saves that come together are one: after this much quiet, or at the latest after this long.
QUIET_S = 0.2
LATEST_S = 1.0
# How long a file may stay missing, empty or wrong before it counts as meant.
PATIENCE_S = 1.0
# How often content is compared without events: where nothing can be watched, and as a safeguard where it can
# (network file systems tell nothing).
POLL_S = 2.0
SAFEGUARD_S = 10.0
_MOST_LINKS = 40

# The bytes of each file; None for one that is missing.
Content = Mapping[Path, bytes | None]


class ConfigWatcher:
    """Watches the files of a config: `take` gets each new config, `refuse` what is wrong with one."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        *,
        on_config: Callable[[Config], None],
        on_error: Callable[[ConfigError], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._on_config = on_config
        self._on_error = on_error
        self._files = frozenset({config.file, *config.env_files})
        self._seen: Content | None = None
        self._refused: list[Content] = []
        self._reload_requested = False
        self._changed = asyncio.Event()
        self._wake_pending = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._directories: DirectoryWatcher | None = None

    def reload(self) -> None:
        """Read the config now, whether or not it seems to have changed."""
        self._reload_requested = True
        self._changed.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._loop = asyncio.get_running_loop()
        if any(map(_is_read_once, self._files)):
            log.debug("%s is not watched: it cannot be read twice", self._config.file)
            return
        can_watch = await asyncio.to_thread(self._start_watching)
        try:
            while True:
                can_watch = can_watch and await asyncio.to_thread(self._update_watches)
                await self._check()
                if self._reload_requested or await self._wait_for_change(SAFEGUARD_S if can_watch else POLL_S):
                    await self._wait_for_quiet()
        finally:
            if self._directories is not None:
                self._directories.stop()

    # --- what happens in directories -------------------------------------------------------------------

    def _start_watching(self) -> bool:
        try:
            from dynamic_mcp.config.directory_watcher import DirectoryWatcher

            self._directories = DirectoryWatcher(self._wake_from_thread)
        except (ImportError, OSError) as exc:
            return self._fall_back_to_polling(exc)
        return True

    def _update_watches(self) -> bool:
        """Watch where the files and the links to them are now."""
        assert self._directories is not None
        try:
            if self._directories.watch(directories_of(self._files)):
                self._wake_from_thread()  # what happened before is not told
        except (FileNotFoundError, NotADirectoryError):
            self._wake_from_thread()  # a directory went away just now
        except OSError as exc:
            return self._fall_back_to_polling(exc)
        return True

    def _fall_back_to_polling(self, exc: Exception) -> bool:
        log.warning("%s cannot be watched (%s): it is read every %g s instead", self._config.file, exc, POLL_S)
        if self._directories is not None:
            self._directories.stop()
        return False

    def _wake_from_thread(self) -> None:
        """Wake the loop, from any thread; many calls are one."""
        if not self._wake_pending.is_set():
            self._wake_pending.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._wake_pending.clear()
        self._changed.set()

    async def _wait_for_change(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                return True
        return False

    async def _wait_for_quiet(self) -> None:
        """Let a burst of events pass, within a bound."""
        latest = self._loop.time() + LATEST_S
        self._changed.clear()
        while (left_s := latest - self._loop.time()) > 0 and await self._wait_for_change(min(QUIET_S, left_s)):
            self._changed.clear()

    # --- content ---------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Take or refuse what the files hold, if it is not what they held before."""
        was_asked, self._reload_requested = self._reload_requested, False
        content = await asyncio.to_thread(_read_all, self._files)
        if content == self._seen and not was_asked:
            return
        content, found = await asyncio.to_thread(self._read)
        is_doubtful = isinstance(found, ConfigError) or self._has_lost_files(content)
        if is_doubtful and content != self._seen and await self._changes_soon(content):
            self._reload_requested |= was_asked
            self._changed.set()
            return
        self._seen = content
        if not isinstance(found, ConfigError):
            self._apply(found, was_asked=was_asked)
        elif content not in self._refused:
            self._refused.append(content)
            self._on_error(found)

    def _read(self) -> tuple[Content, Config | ConfigError]:
        """Read the config, and before it all the files that it is made of."""
        files = self._files
        while True:
            content = _read_all(files)
            try:
                config = read(self._config.file, self._environment)
            except ConfigError as exc:
                return {file: content[file] for file in self._files}, exc
            needed = frozenset({config.file, *config.env_files})
            if needed <= files:
                return {file: content[file] for file in needed}, config
            files = files | needed

    def _has_lost_files(self, content: Content) -> bool:
        return self._seen is not None and any(self._seen.get(file) and not content[file] for file in content)

    async def _changes_soon(self, content: Content) -> bool:
        """Tell whether the files become something else in a moment; wherever nothing pokes, look at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                self._changed.clear()
                while await asyncio.to_thread(_read_all, content) == content:
                    await self._changed.wait()
                    self._changed.clear()
        return await asyncio.to_thread(_read_all, content) != content

    def _apply(self, config: Config, *, was_asked: bool) -> None:
        before, self._config = self._config, config
        self._files = frozenset({config.file, *config.env_files})
        was_refused, self._refused = bool(self._refused), []
        if config != before:
            self._on_config(config)
        elif was_refused:
            log.info("%s is valid again, with nothing changed", config.file)
        elif was_asked:
            log.info("%s was read again: nothing changed", config.file)


def directories_of(files: Iterable[Path]) -> set[Path]:
    """Where something can happen that changes what these paths lead to: their directories, and those of all links."""
    return {place.parent for file in files for place in _follow_links(file)}


def _follow_links(file: Path) -> Iterator[Path]:
    """Follow a path link by link, and yield each link on the way and the end, without links in their directories."""
    path = file.absolute()
    for _ in range(_MOST_LINKS):
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            break
        yield link
        path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
    yield path


def _read_all(files: Iterable[Path]) -> Content:
    return {file: _read_bytes(file) for file in files}


def _read_bytes(file: Path) -> bytes | None:
    try:
        return None if _is_read_once(file) else read_bytes(file)
    except OSError:
        return None


def _is_read_once(file: Path) -> bool:
    """Tell whether a file gives its bytes to one reader only, as the pipe of a shell's `<(…)` does."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
