"""How long sessions of a run wait for what may never come."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

from tests.idle_loop import IdleLoop

_LOOK_EVERY_S = 0.1


@contextlib.asynccontextmanager
async def patience(within_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError in the block once this process has had nothing to do for so long.

    A busy machine takes its time for what is on its way, and that does not count.
    """
    async with asyncio.timeout(None) as timeout:
        running_out = asyncio.create_task(_run_out(timeout, within_s))
        try:
            yield
        finally:
            running_out.cancel()


async def _run_out(timeout: asyncio.Timeout, within_s: float) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(math.ceil(within_s / _LOOK_EVERY_S)):
        await asyncio.sleep(_LOOK_EVERY_S)
        if isinstance(loop, IdleLoop):
            await loop.idle()
    timeout.reschedule(loop.time())
