"""The processes in which Monty runs scripts: as many as there are processors, each for one stretch of one script.

Clients take turns. While scripts are run, one worker is started ahead; it ends after a minute without a script.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Hashable
from pathlib import Path
from tempfile import TemporaryDirectory

import pydantic_monty as monty
from msgspec import Struct
from pydantic_monty._binary import find_monty_binary

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.features.scripts.config import LONGEST_CPU_S
from dynamic_mcp.features.table import find_wrapper
from dynamic_mcp.groups.limiter import Limiter
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.process.child import watch_process

log = logging.getLogger(__name__)

SPARE_FOR_S = 60.0
"""How long a worker that was started ahead waits for a script."""
# Reading a script, and other work of a worker that its own clock does not count.
_GRACE_S = 5.0


class WorkerKind(Struct, frozen=True):
    """What a worker is started for. `is_confined`: the system confines it, too."""

    limits: monty.ResourceLimits
    is_confined: bool


class Worker:
    """A fresh interpreter in a process of its own. `is_spare`: it was started ahead, and may have ended since."""

    def __init__(self, kind: WorkerKind) -> None:
        self.kind = kind
        self.is_spare = False
        self.session: monty.AsyncMontySession
        self._stack = contextlib.AsyncExitStack()

    async def open(self, pool: monty.AsyncMonty) -> None:
        """Start the process. Raises MontyError."""
        guard = self._stack.enter_context(contextlib.ExitStack())  # ends after the worker
        self.session = await self._stack.enter_async_context(pool.checkout(limits=self.kind.limits))
        if self.session.worker_pid is not None:
            guard.enter_context(watch_process(self.session.worker_pid))

    async def close(self) -> None:
        """End the process."""
        await self._stack.aclose()


class WorkerPool:
    """The workers of one proxy. `most` is how many may run at once."""

    def __init__(self, clock: Clock, most: int | None = None) -> None:
        self._clock = clock
        self._places = Limiter(most or os.cpu_count() or 1, max_queued=sys.maxsize)
        self._pools: dict[bool, monty.AsyncMonty] = {}
        self._folder: TemporaryDirectory[str] | None = None  # with the file that starts confined workers
        self._starter: Path | None = None  # this file
        self._opening = asyncio.Lock()
        self._spare: Worker | None = None
        self._keeping: asyncio.Task[None] | None = None  # the spare
        self._tasks = TaskSet(log)
        self._is_closed = False

    @property
    def has_waiting(self) -> bool:
        """Return whether a script waits for a worker."""
        return self._places.queued > 0

    @contextlib.asynccontextmanager
    async def worker(self, kind: WorkerKind, client: Hashable) -> AsyncIterator[Worker]:
        """Provide a worker when it is the turn of this client. Raises MontyError and CannotConfine."""
        await self._places.acquire(client)
        try:
            worker = await self._take_spare(kind) or await self._open(kind)
            try:
                yield worker
            finally:
                await worker.close()
        finally:
            self._places.release()
            self._prepare_spare(kind)

    async def close(self) -> None:
        """End all workers; no script runs any more."""
        self._is_closed = True
        self._tasks.cancel_all()
        await self._tasks.wait()
        for pool in self._pools.values():
            await pool.__aexit__(None, None, None)
        self._pools.clear()
        if self._folder is not None:
            self._folder.cleanup()

    # --- the worker that is started ahead ----------------------------------------------------------------

    async def _take_spare(self, kind: WorkerKind) -> Worker | None:
        worker, self._spare = self._spare, None
        if worker is not None and self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        if worker is None or worker.kind == kind:
            return worker
        await worker.close()
        return None

    def _prepare_spare(self, kind: WorkerKind) -> None:
        if self._keeping is None and not self._is_closed:
            self._keeping = self._tasks.create(self._keep_spare(kind), name="a spare worker of scripts")

    async def _keep_spare(self, kind: WorkerKind) -> None:
        """Start a worker, and end it if no script has taken it in time."""
        worker: Worker | None = None
        try:
            worker = self._spare = await self._open(kind)
            worker.is_spare = True
            await self._clock.sleep(SPARE_FOR_S)
        except (monty.MontyError, CannotConfine) as exc:
            log.debug("no worker can be started ahead: %s", exc)
        finally:
            if self._spare is worker:
                self._spare = self._keeping = None
                if worker is not None:
                    await worker.close()

    async def _open(self, kind: WorkerKind) -> Worker:
        worker = Worker(kind)
        try:
            await worker.open(await self._open_pool(is_confined=kind.is_confined))
        except BaseException:
            await worker.close()
            raise
        return worker

    async def _open_pool(self, *, is_confined: bool) -> monty.AsyncMonty:
        async with self._opening:
            pool = self._pools.get(is_confined)
            starter = await asyncio.to_thread(self._wrap) if is_confined else None
            if pool is None:
                pool = monty.AsyncMonty(
                    binary_path=starter,
                    min_processes=0,
                    max_processes=self._places.limit + 1,  # with the spare
                    max_checkouts_per_worker=1,  # so that no script finds what another one has left
                    request_timeout=LONGEST_CPU_S + _GRACE_S,
                )
                await pool.__aenter__()
                self._pools[is_confined] = pool
            return pool

    def _wrap(self) -> str:
        """Return the file that starts the interpreter confined, and write it if it is not there.

        Systems remove what lies in their temporary directory unused for days. Raises CannotConfine.
        """
        if self._starter is not None and self._starter.exists():
            return str(self._starter)
        try:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="dynamic-mcp-scripts-")
            else:  # the pool knows it by this name, which may be another user's by now
                shutil.rmtree(self._folder.name, ignore_errors=True)
                Path(self._folder.name).mkdir(mode=0o700)
            self._starter = Path(find_wrapper().wrap(find_monty_binary(), Path(self._folder.name)))
        except OSError as exc:
            raise CannotConfine(f"the file that starts it cannot be written: {os_reason(exc)}") from exc
        return str(self._starter)
