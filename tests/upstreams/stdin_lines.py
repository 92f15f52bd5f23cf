"""What a server of the tests reads, in its loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator


async def stdin_lines(*, limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of stdin, until it ends."""
    if sys.platform == "win32":  # whose loop can read only pipes that were made for it
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            yield line
    else:
        reader = asyncio.StreamReader(limit=limit)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            yield line
