"""Batches: several messages in one line, which get one answer. Only some revisions support them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import REVISIONS, Revision

_WITH_BATCHES = ", ".join(revision.name for revision in REVISIONS if revision.has_batches)


def split_batch(line: bytes, revision: Revision) -> list[Raw]:
    """Return the messages of a batch. Raises Malformed."""
    if not revision.has_batches:
        raise wire.Malformed(f"batches are only supported in protocol version {_WITH_BATCHES}", INVALID_REQUEST)
    items = wire.batch(line)
    if not items:
        raise wire.Malformed("empty batch", INVALID_REQUEST)
    return items


async def answer_batch(
    tasks: Sequence[asyncio.Task[Any]],  # Any: their results are among the lines
    lines: Sequence[bytes],
    reply: Callable[[bytes], None],
) -> None:
    """Wait for the tasks that answer the requests of a batch, and reply with all their `lines`."""
    if tasks:
        await asyncio.wait(tasks)
    answers = [line for line in lines if line]
    reply(wire.join_batch(answers) if answers else b"")
