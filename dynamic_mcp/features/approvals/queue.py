"""Questions that wait in the queue, where a command answers them; whoever decides need not be near the client."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dynamic_mcp.features.approvals.questions import Question
from dynamic_mcp.features.approvals.queued import ApprovalDecision, QueuedApproval, Scope
from dynamic_mcp.features.approvals.subject import Subject
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)


_LONGEST_DESCRIPTION = 2000


class Server(Protocol):
    """Where commands see what waits. A DynamicMcpError of the function that takes decisions refuses a decision."""

    async def put(self, pending: QueuedApproval) -> None:
        """Show a call that waits. Raises OSError."""
        ...

    def remove(self, id: str, why: str = ...) -> None:
        """Show it no longer; does nothing for one that is not there."""
        ...

    async def close(self) -> None:
        """Show nothing any more."""
        ...


OpenServer = Callable[[Callable[[ApprovalDecision], None]], Server]
Notify = Callable[[QueuedApproval], None]


class Queue:
    """The questions of one proxy that commands can answer; the server is opened with the first of them.

    `receive` takes decisions, and `notify` tells a person that something waits. `config` is what the proxy serves.
    """

    def __init__(
        self,
        open_server: OpenServer,
        receive: Callable[[ApprovalDecision], None],
        *,
        notify: Notify,
        config: str,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_server = open_server
        self._receive = receive
        self._notify = notify
        self._config = config
        self._wall_clock = wall_clock
        self._server: Server | None = None
        self._expires: dict[str, float] = {}
        self._putting: dict[str, asyncio.Task[bool]] = {}
        self._tasks = TaskSet(log)

    def has(self, question: Question) -> bool:
        """Tell whether a question waits here."""
        return question.id in self._expires

    def expires(self, question: Question) -> float:
        """Return until when a question waits, in seconds since 1970."""
        return self._expires[question.id]

    async def put(
        self, question: Question, subject: Subject, offered: Sequence[Scope], left_s: float, *, hold_s: float
    ) -> bool:
        """Let a question wait here for `left_s`, and its call for `hold_s`; return whether it can."""
        if not self.has(question):
            now = self._wall_clock()
            self._expires[question.id] = now + left_s
            pending = _to_pending(question, subject, offered, (now, now + hold_s, now + left_s), self._config)
            self._putting[question.id] = self._tasks.create(self._put(question, pending), name="a pending approval")
        putting = self._putting.get(question.id)
        # a request that is cancelled meanwhile must not leave half a question behind
        return putting is None or await asyncio.shield(putting)

    async def _put(self, question: Question, pending: QueuedApproval) -> bool:
        server = self._server = self._server or self._open_server(self._receive)
        try:
            await server.put(pending)
        except OSError as exc:
            log.warning("nobody can be asked by `dynamic-mcp approve`: %s", exc)
            self._expires.pop(question.id, None)
            return False
        finally:
            del self._putting[question.id]
        if question.verdict is not None:  # meanwhile
            server.remove(question.id)
        else:
            self._notify(pending)
        return True

    def remove(self, question: Question, why: str) -> None:
        """Let a question wait no longer."""
        if self._expires.pop(question.id, None) is not None and self._server is not None:
            self._server.remove(question.id, why)

    async def close(self) -> None:
        """Let nothing wait any more."""
        self._expires.clear()
        await self._tasks.wait()
        if self._server is not None:
            await self._server.close()


def _to_pending(
    question: Question, subject: Subject, offered: Sequence[Scope], times: tuple[float, float, float], config: str
) -> QueuedApproval:
    key, right = question.key, subject.right
    return QueuedApproval(
        id=question.id,
        pid=os.getpid(),
        config=config,
        since=times[0],
        held_until=times[1],
        expires=times[2],
        subject=key.principal.subject,
        issuer=key.principal.issuer,
        client=subject.client_name,
        group=subject.group.name,
        kind=key.kind,
        name=key.name,
        access=subject.access,
        description=one_line(subject.description, _LONGEST_DESCRIPTION),
        arguments=subject.arguments,
        notes=subject.notes,
        rule=key.rule,
        roles=() if right is None else right.roles,
        allowed_by="" if right is None else right.rule,
        offered=tuple(offered),
    )
