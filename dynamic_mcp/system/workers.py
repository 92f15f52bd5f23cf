"""A few threads for slow work, apart from the threads that the rest of the program needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")

# Longer data is processed in a thread.
MAX_BYTES_IN_LOOP = 16 << 10


class Workers:
    """Up to `count` threads, started on demand."""

    def __init__(self, name: str, *, count: int) -> None:
        self._name = name
        self._count = count

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in a thread. If the caller is cancelled, the work is not started, or its result is dropped."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
