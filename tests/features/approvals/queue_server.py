"""A proxy in this process in which calls wait for a person."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.features.approvals.queue import ApprovalServer
from dynamic_mcp.features.approvals.store import ApprovalDecision, QueuedApproval

BOUND_S = 30


def waiting(id: str = "7F3K2M", **changes: object) -> QueuedApproval:
    now = time.time()
    pending = QueuedApproval(
        id=id,
        pid=os.getpid(),
        since=now,
        expires=now + 600,
        group="files",
        name="delete_file",
        arguments=b'{"path": "/a"}',
        offered=("once", "hour"),
    )
    return structs.replace(pending, **changes)


class Proxy:
    """Notes what it is told, and refuses to delete `/etc`."""

    def __init__(self, folder: Path) -> None:
        self.server = ApprovalServer(folder, self._receive, poll_s=0.01)
        self.received: list[ApprovalDecision] = []
        self.has_received = asyncio.Event()

    def _receive(self, decision: ApprovalDecision) -> None:
        if b"/etc" in bytes(decision.arguments):
            raise InvalidArguments("`/etc` may not be deleted")
        self.received.append(decision)
        self.has_received.set()


@asynccontextmanager
async def running(folder: Path, *pending: QueuedApproval) -> AsyncIterator[Proxy]:
    """A proxy in which this waits."""
    proxy = Proxy(folder)
    async with asyncio.timeout(BOUND_S):
        for each in pending:
            await proxy.server.put(each)
        try:
            yield proxy
        finally:
            await proxy.server.close()
