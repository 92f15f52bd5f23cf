"""Asks all groups at once for something unlisted; of those that have it, the earliest in the config counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from dynamic_mcp.errors import ApprovalPending, DynamicMcpError
from dynamic_mcp.mcp.wire import Frame

T = TypeVar("T")

# A group that stands earlier in the config gets this much longer to say that it has it too.
_EARLIER_S = 0.5


async def first_result(groups: Iterable[T], ask: Callable[[T], Awaitable[Frame]]) -> tuple[T, Frame] | None:
    """Return the group whose answer counts, and the answer; None where none of several groups has a result.

    Where only one is asked, its answer counts whatever it is, and what it raises passes.
    """
    requests: dict[asyncio.Future[Frame], T] = {asyncio.ensure_future(ask(group)): group for group in groups}
    try:
        found = await _earliest([*requests])
        return None if found is None else (requests[found], found.result())
    finally:
        for task in requests:
            task.cancel()


async def _earliest(requests: Sequence[asyncio.Future[Frame]]) -> asyncio.Future[Frame] | None:
    """Return the first that has a result, unless one that stands earlier has one too, a moment later."""
    pending = set(requests)
    patience_s: float | None = None
    while pending:
        done, pending = await asyncio.wait(pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        found = next((task for task in requests if _has_result(task)), None)
        if found is not None:
            if not done or pending.isdisjoint(requests[: requests.index(found)]):
                return found
            patience_s = _EARLIER_S
    return requests[0] if len(requests) == 1 else None


def _has_result(task: asyncio.Future[Frame]) -> bool:
    if not task.done() or task.cancelled():
        return False
    if (error := task.exception()) is not None:
        # the caller must know what waits for a person; what is no error of ours is a bug, and is raised
        return isinstance(error, ApprovalPending) or not isinstance(error, DynamicMcpError)
    return len(task.result().error) == 0
