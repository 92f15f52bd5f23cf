"""An open plug-in. Every wait for it is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from dynamic_mcp.errors import PluginError
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.middleware import Middleware
from dynamic_mcp.policy.globs import Globs

log = logging.getLogger(__name__)

T = TypeVar("T")

# How long work may take to end after its cancellation.
_END_WITHIN_S = 1.0


class OpenPlugin:
    """A plug-in, from its opening to its end. Several configs may use it with different settings."""

    def __init__(self, use: str, options: Mapping[str, object], plugin: Middleware) -> None:
        self.use = use
        self.options = options
        self.plugin = plugin
        self.has_call = type(plugin).call is not Middleware.call
        self.has_list = type(plugin).list is not Middleware.list
        self._uses = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._abandoned: set[asyncio.Task[Any]] = set()  # Any: tasks of any result

    def __repr__(self) -> str:
        return f"<OpenPlugin {self.use}, {self._uses} in use>"

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the plug-in open during the context."""
        self._uses += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._is_idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until no call uses the plug-in."""
        await self._is_idle.wait()

    # --- work ------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Start work of the plug-in."""
        return asyncio.create_task(_contain(work), name=f"plug-in {self.use}")

    def abandon(self, task: asyncio.Task[T]) -> None:
        """Cancel a task without waiting for it. A task that continues is stopped by force."""
        if not task.done():
            self._abandoned.add(task)
            task.add_done_callback(self._forget)
            task.cancel()
            asyncio.get_running_loop().call_later(_END_WITHIN_S, _stop, task)

    async def end(self, task: asyncio.Task[T]) -> None:
        """Cancel a task, and wait briefly for its end."""
        self.abandon(task)
        await asyncio.wait((task,), timeout=_END_WITHIN_S)

    async def run(self, work: Callable[[], Awaitable[T]], within_s: float) -> T:
        """Return the result of the plug-in's work. Raises PluginError if it fails or times out."""
        task = self.start(work)
        try:
            await asyncio.wait((task,), timeout=within_s)
        except asyncio.CancelledError:
            await self.end(task)
            raise
        if not task.done():
            self.abandon(task)
            raise PluginError(self.use, f"has not finished within {within_s:g} s")
        if task.cancelled():
            raise PluginError(self.use, "has cancelled itself")
        if (exc := task.exception()) is not None:
            raise PluginError(self.use, describe(exc)) from exc
        return task.result()

    async def close(self, within_s: float) -> None:
        """Close the plug-in, and log errors."""
        try:
            await self.run(self.plugin.close, within_s)
        except PluginError as exc:
            log.warning("%s, when it was closed", exc.message)
        for task in self._abandoned:
            _stop(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            log.debug("plug-in %s has ended late: %r", self.use, exc)


class ActivePlugin(Struct, frozen=True, dict=True):
    """A plug-in with the settings of a config. `opened` None means that it is not open, and lets nothing pass."""

    settings: Plugin
    opened: OpenPlugin | None

    @cached_property
    def servers(self) -> Globs:
        """The servers that use it."""
        return Globs(self.settings.servers)


def _stop(task: asyncio.Task[Any]) -> None:
    """Stop a task that swallowed its cancellation, since the end of the event loop would wait for it."""
    work = task.get_coro()
    if task.done() or not isinstance(work, Coroutine):
        return
    with contextlib.suppress(RuntimeError):  # it ignores this, too
        work.close()
    task.cancel()


async def _contain(work: Callable[[], Awaitable[T]]) -> T:
    """Run work of a plug-in so that its errors end only its own task; it may also not be a coroutine."""
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as exc:  # these would exit the program
        raise RuntimeError(f"has raised {exc!r}") from exc


def describe(exc: BaseException) -> str:
    """Describe a plug-in's failure without the text of its exception, which may hold secrets."""
    return f"has failed with {type(exc).__name__}"
