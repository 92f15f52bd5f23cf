"""Background tasks without an awaiter: held until they are done, with every failure logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]


class TaskSet:
    """The unfinished tasks of one owner; an exception of a task is logged as a bug."""

    def __init__(self, log: Log = log) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()  # Any: tasks of any result

    def create(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task and hold a reference until it is done."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def cancel_all(self) -> None:
        """Cancel every task, without waiting for them to end."""
        for task in self._tasks:
            task.cancel()

    async def wait(self) -> None:
        """Wait until no task is left, including those that start meanwhile. Never raises a task's exception."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter([*self._tasks])

    def __len__(self) -> int:
        return len(self._tasks)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a bug: the task `%s` fails", task.get_name(), exc_info=error)
