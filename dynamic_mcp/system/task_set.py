"""Background tasks that are held until they are done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger(__name__)


class TaskSet:
    """Tasks that nobody awaits; an error in one is a bug and is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, work: Coroutine[object, object, None], *, name: str | None = None) -> asyncio.Task[None]:
        """Start a task and hold it until it is done."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        return task

    def cancel_all(self) -> None:
        """Cancel every task."""
        for task in self._tasks:
            task.cancel()

    async def wait(self) -> None:
        """Wait until every task is done."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a bug: the task %s failed", task.get_name(), exc_info=task.exception())
