"""Reloads the config when its content, or that of its env files, changes, however the files are saved.

Each version is resolved as a whole, for the proxy and for every known workspace.

Content counts, not events. The last valid config stays in use until there is a new valid one. A file that is
missing, empty or half written gets a moment to become complete; if it does not, that is reported once.
"""

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.read import ConfigState, ServedConfig, read_all
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.system.file_reader import read_bytes

if TYPE_CHECKING:
    from dynamic_mcp.config.directory_watcher import DirectoryWatcher

log = logging.getLogger(__name__)

# Several saves in a row count as one: reload after this much quiet, or after this long at the latest.
QUIET_S = 0.2
LATEST_S = 1.0
# How long a file may stay missing, empty or invalid before that counts as intended.
PATIENCE_S = 1.0
# How often to compare the content without events: if watching is impossible, and as a safeguard if it is possible
# (network file systems send no events).
POLL_S = 2.0
SAFEGUARD_S = 10.0
_MOST_LINKS = 40

# The bytes of each file; None if it is missing.
Content = Mapping[Path, bytes | None]


class ConfigWatcher:
    """Watches the files of the `served` config, and applies each new version.

    `on_error` gets the error of an invalid version, and `on_repair` is called when a valid one follows. `prepare`
    prepares a valid version, and raises ConfigError if it cannot be used after all.
    """

    def __init__(
        self,
        served: ServedConfig,
        environment: Mapping[str, str],
        *,
        on_error: Callable[[ConfigError], None],
        on_repair: Callable[[], None] = lambda: None,
        prepare: Callable[[ConfigState], Awaitable[None]] | None = None,
    ) -> None:
        self._served = served  # its workspaces, and so its files, may change at any time
        self._file = served.state.base.file
        self._environment = environment
        self._on_error = on_error
        self._on_repair = on_repair
        self._prepare = prepare
        self._last_content: Content | None = None
        self._refused: list[Content] = []
        self._reload_requested = False
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Event] = []
        self._wake_pending = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._directories: DirectoryWatcher | None = None

    def reload(self) -> None:
        """Reload the config now, even if it has not changed."""
        self._reload_requested = True
        self._changed.set()

    def check_soon(self) -> None:
        """Compare the content of the files soon, because the set of files has changed."""
        self._changed.set()

    async def catch_up(self) -> None:
        """Return when the content that the files have now is applied or refused."""
        is_checked = asyncio.Event()
        self._waiting.append(is_checked)
        self._changed.set()
        await is_checked.wait()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._loop = asyncio.get_running_loop()
        if any(map(_is_read_once, self._served.state.files)):
            log.debug("%s is not watched: it cannot be read twice", self._file)
            return
        can_watch = await asyncio.to_thread(self._start_watching)
        try:
            while True:
                can_watch = can_watch and await asyncio.to_thread(self._update_watches, self._served.state.files)
                waiting, self._waiting = self._waiting, []
                if await self._check():
                    for each in waiting:
                        each.set()
                else:
                    self._waiting += waiting
                if self._reload_requested or await self._wait_for_change(SAFEGUARD_S if can_watch else POLL_S):
                    await self._wait_for_quiet()
        finally:
            if self._directories is not None:
                self._directories.stop()

    # --- directories -------------------------------------------------------------------

    def _start_watching(self) -> bool:
        try:
            from dynamic_mcp.config.directory_watcher import DirectoryWatcher

            self._directories = DirectoryWatcher(self._wake_from_thread)
        except (ImportError, OSError) as exc:
            return self._fall_back_to_polling(exc)
        return True

    def _update_watches(self, files: Iterable[Path]) -> bool:
        """Watch the current directories of the files and of the links to them."""
        assert self._directories is not None
        try:
            if self._directories.watch(directories_of(files)):
                self._wake_from_thread()  # earlier changes caused no event
        except (FileNotFoundError, NotADirectoryError):
            self._wake_from_thread()  # a directory has just been removed
        except OSError as exc:
            return self._fall_back_to_polling(exc)
        return True

    def _fall_back_to_polling(self, exc: Exception) -> bool:
        log.warning("%s cannot be watched (%s): it is read every %g s instead", self._file, exc, POLL_S)
        if self._directories is not None:
            self._directories.stop()
        return False

    def _wake_from_thread(self) -> None:
        """Wake the loop, from any thread; several calls count as one."""
        if not self._wake_pending.is_set():
            self._wake_pending.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed, so the program is ending
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
        """Wait for the end of a burst of events, within a time limit."""
        latest = self._loop.time() + LATEST_S
        self._changed.clear()
        while (left_s := latest - self._loop.time()) > 0 and await self._wait_for_change(min(QUIET_S, left_s)):
            self._changed.clear()

    # --- content ---------------------------------------------------------------------------------------

    async def _check(self) -> bool:
        """Apply or reject the content of the files, if it has changed. Return False if it must be read again."""
        was_requested, self._reload_requested = self._reload_requested, False
        served = self._served.state
        content = await asyncio.to_thread(_read_all, served.files)
        if content == self._last_content and not was_requested:
            return True
        content, result = await asyncio.to_thread(self._read, served)
        if isinstance(result, ConfigState) and self._prepare is not None and result.differs_from(served):
            try:
                await self._prepare(result)
            except ConfigError as exc:
                result = exc
        is_doubtful = isinstance(result, ConfigError) or self._has_lost_files(content)
        if is_doubtful and content != self._last_content and await self._changes_soon(content):
            self._reload_requested |= was_requested
            self._changed.set()
            return False
        workspaces = self._served.state.by_workspace
        if isinstance(result, ConfigState) and not workspaces.keys() <= result.by_workspace.keys():
            # a workspace was added meanwhile; it must not keep the old version
            self._reload_requested |= was_requested
            self._changed.set()
            return False
        self._last_content = content
        if not isinstance(result, ConfigError):
            self._apply(result, was_requested=was_requested)
        elif content not in self._refused:
            self._refused.append(content)
            self._on_error(result)
        return True

    def _read(self, served: ConfigState) -> tuple[Content, ConfigState | ConfigError]:
        """Read the content of all files, then the config for the workspaces that are served."""
        files = served.files
        while True:
            content = _read_all(files)
            try:
                configs = read_all(self._file, self._environment, served.by_workspace)
            except ConfigError as exc:
                return {file: content[file] for file in served.files}, exc
            required = configs.files
            if required <= files:
                return {file: content[file] for file in required}, configs
            files = files | required

    def _has_lost_files(self, content: Content) -> bool:
        return self._last_content is not None and any(
            self._last_content.get(file) and not content[file] for file in content
        )

    async def _changes_soon(self, content: Content) -> bool:
        """Wait a moment and return whether the files have changed; without events, compare at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                self._changed.clear()
                while await asyncio.to_thread(_read_all, content) == content:
                    await self._changed.wait()
                    self._changed.clear()
        return await asyncio.to_thread(_read_all, content) != content

    def _apply(self, configs: ConfigState, *, was_requested: bool) -> None:
        was_refused, self._refused = bool(self._refused), []
        if was_refused:
            self._on_repair()
        if configs.differs_from(self._served.state):
            self._served.apply(configs)
        elif was_refused:
            log.info("%s is valid again, with nothing changed", self._file)
        elif was_requested:
            log.info("%s was read again: nothing changed", self._file)


def directories_of(files: Iterable[Path]) -> set[Path]:
    """Return all directories in which a change can affect these paths: their own, and those of all links."""
    return {place.parent for file in files for place in _follow_links(file)}


def _follow_links(file: Path) -> Iterator[Path]:
    """Resolve a path link by link. Yield each link on the way and the final path, with resolved directories."""
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
    """Return whether a file can be read only once, like the pipe of a shell's `<(…)`."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
