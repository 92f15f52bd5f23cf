"""Questions that wait in the queue, where a command answers them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dynamic_mcp.features.approvals.questions import ApprovalQuestion
from dynamic_mcp.features.approvals.queued import ApprovalDecision, QueuedApproval, Scope
from dynamic_mcp.features.approvals.subject import Subject
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

_LONGEST_DESCRIPTION = 2000


class QueueServer(Protocol):
    """Shows waiting calls to commands, and takes their decisions; see `ApprovalServer`."""

    async def put(self, pending: QueuedApproval) -> None:
        """Show a call. Raises OSError."""

    def remove(self, id: str, why: str = ...) -> None:
        """Stop showing a call, if it is there."""

    async def close(self) -> None:
        """Stop showing all calls."""


OpenServer = Callable[[Callable[[ApprovalDecision], None]], QueueServer]
Notify = Callable[[QueuedApproval], None]


class Queue:
    """The questions of one proxy that commands can answer. `notify` notifies a user of a new one."""

    def __init__(self, server: QueueServer, *, notify: Notify, config: str) -> None:
        self._server = server
        self._notify = notify
        self._config = config
        self._puts: dict[str, asyncio.Task[bool]] = {}
        self._tasks = TaskSet(log)

    def has(self, question: ApprovalQuestion) -> bool:
        return question.id in self._puts

    async def put(
        self, question: ApprovalQuestion, subject: Subject, offered: Sequence[Scope], left_s: float, *, hold_s: float
    ) -> bool:
        """Add a question for `left_s` whose call waits for `hold_s`; return whether that was possible."""
        if not self.has(question):
            pending = _to_pending(question, subject, offered, (left_s, hold_s), self._config)
            self._puts[question.id] = self._tasks.create(self._put(question, pending), name="a pending approval")
        # a request cancelled meanwhile must not leave a partial question
        return await asyncio.shield(self._puts[question.id])

    async def _put(self, question: ApprovalQuestion, pending: QueuedApproval) -> bool:
        try:
            await self._server.put(pending)
        except OSError as exc:
            log.warning("`dynamic-mcp approve` cannot ask: %s", exc)
            self._puts.pop(question.id, None)
            return False
        if question.verdict is not None:  # meanwhile
            self._server.remove(question.id)
        else:
            self._notify(pending)
        return True

    def remove(self, question: ApprovalQuestion, why: str) -> None:
        """Remove a question, if it is there."""
        if self._puts.pop(question.id, None) is not None:
            self._server.remove(question.id, why)

    async def close(self) -> None:
        self._puts.clear()
        await self._tasks.wait()
        await self._server.close()


def _to_pending(
    question: ApprovalQuestion,
    subject: Subject,
    offered: Sequence[Scope],
    times: tuple[float, float],
    config: str,
) -> QueuedApproval:
    key, right, now = question.key, subject.right, time.time()
    left_s, hold_s = times
    return QueuedApproval(
        id=question.id,
        pid=os.getpid(),
        config=config,
        since=now,
        held_until=now + hold_s,
        expires=now + left_s,
        subject=key.principal.subject,
        issuer=key.principal.issuer,
        client=subject.client_name,
        group=subject.group.name,
        kind=key.kind,
        name=key.name,
        access=subject.access,
        description=one_line(subject.description, _LONGEST_DESCRIPTION),
        arguments=bytes(subject.arguments),
        notes=subject.notes,
        rule=key.rule,
        roles=() if right is None else right.roles,
        allowed_by="" if right is None else right.rule,
        offered=tuple(offered),
    )
