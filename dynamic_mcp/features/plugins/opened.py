"""A plug-in that is open. Whatever it does, nobody waits for it longer than its bound."""

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

# How long work may take to end after it was cancelled.
_END_WITHIN_S = 1.0


class OpenPlugin:
    """A plug-in, from its opening to its end. Another config may use it in another way."""

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
        """Wait until nobody uses the plug-in."""
        await self._is_idle.wait()

    # --- work ------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Start what the plug-in does."""
        return asyncio.create_task(_contain(work), name=f"plug-in {self.use}")

    def abandon(self, task: asyncio.Task[T]) -> None:
        """Cancel a task, and wait for nothing that it does. One that goes on all the same is stopped by force."""
        if not task.done():
            self._abandoned.add(task)
            task.add_done_callback(self._forget)
            task.cancel()
            asyncio.get_running_loop().call_later(_END_WITHIN_S, _stop, task)

    async def end(self, task: asyncio.Task[T]) -> None:
        """Cancel a task, and wait a moment for its end."""
        self.abandon(task)
        await asyncio.wait((task,), timeout=_END_WITHIN_S)

    async def run(self, work: Callable[[], Awaitable[T]], within_s: float) -> T:
        """Return what the plug-in returns. Raises PluginError if it fails, or takes too long."""
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
        """End the plug-in; what goes wrong is logged."""
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
    """A plug-in as a config uses it. `opened` None is one that nobody has opened, and that lets nothing pass."""

    settings: Plugin
    opened: OpenPlugin | None

    @cached_property
    def servers(self) -> Globs:
        """The servers that it is used for."""
        return Globs(self.settings.servers)


def _stop(task: asyncio.Task[Any]) -> None:
    """End a task that has swallowed its cancellation, since the end of the event loop would wait for it."""
    work = task.get_coro()
    if task.done() or not isinstance(work, Coroutine):
        return
    with contextlib.suppress(RuntimeError):  # it ignores that, too
        work.close()
    task.cancel()


async def _contain(work: Callable[[], Awaitable[T]]) -> T:
    """Do what a plug-in does, so that whatever it raises ends its own task only; it may also be no coroutine."""
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as exc:  # these would end the program
        raise RuntimeError(f"has raised {exc!r}") from exc


def describe(exc: BaseException) -> str:
    """Say that a plug-in has failed, without the words of its exception, which may hold what clients must not see."""
    return f"has failed with {type(exc).__name__}"
