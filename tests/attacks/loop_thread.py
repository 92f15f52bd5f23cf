"""Parties of the tests that live in an event loop, for tests that do not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")
WITHIN_S = 30.0


@contextlib.contextmanager
def entered(party: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter a party in a thread with a loop of its own, and leave it in the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(party.__aenter__(), loop).result(WITHIN_S)
        asyncio.run_coroutine_threadsafe(party.__aexit__(None, None, None), loop).result(WITHIN_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
