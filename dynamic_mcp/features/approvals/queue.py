"""The proxy's side of the approvals folder: questions that wait in the queue, where a command answers them.

It is idle while no call waits. The disk is only used in threads, so that a slow one does not block the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import structs

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.approvals.questions import ApprovalQuestion
from dynamic_mcp.features.approvals.store import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalStore,
    QueuedApproval,
    Scope,
    StoredApproval,
)
from dynamic_mcp.features.approvals.subject import Subject
from dynamic_mcp.observe.proxies import HEARTBEAT_S
from dynamic_mcp.system.file_store import Stamp
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

POLL_S = 0.25
_CLOSE_WITHIN_S = 2.0
_LONGEST_DESCRIPTION = 2000

Receive = Callable[[ApprovalDecision], asyncio.Task[None] | None]


class CallSharing(Protocol):
    """Shows the calls of this replica at others."""

    async def add(self, pending: QueuedApproval) -> None: ...

    def remove(self, id: str) -> None: ...

    async def close(self) -> None: ...


class Queue:
    """The questions of one proxy that commands can answer. `notify` notifies a user of a new one."""

    def __init__(self, server: ApprovalServer, *, notify: Callable[[QueuedApproval], None], config: str) -> None:
        self._server = server
        self._notify = notify
        self._config = config
        self._shared: CallSharing | None = None
        self._puts: dict[str, asyncio.Task[bool]] = {}
        self._tasks = TaskSet(log)

    def share(self, make: Callable[[ApprovalServer], CallSharing] | None) -> None:
        """Show calls at other replicas, and theirs here, from now on, by what `make` makes; or no longer."""
        old, self._shared = self._shared, None if make is None else make(self._server)
        self._tasks.create(self._share_waiting(old, self._shared), name="calls for other replicas")

    async def _share_waiting(self, old: CallSharing | None, new: CallSharing | None) -> None:
        """Show what waits already, which the store may have as it was shown before."""
        if old is not None:
            await old.close()
        for pending in self._server.list_pending():
            if new is not None and new is self._shared:
                await new.add(pending)

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
            return True
        if self._shared is not None:
            self._tasks.create(self._shared.add(pending), name="a call for other replicas")
        self._notify(pending)
        return True

    def remove(self, question: ApprovalQuestion, why: str) -> None:
        if self._puts.pop(question.id, None) is not None:
            self._server.remove(question.id, why)
            if self._shared is not None:
                self._shared.remove(question.id)

    async def close(self) -> None:
        self._puts.clear()
        self.share(None)
        await self._tasks.wait()
        await self._server.close()


class ApprovalServer:
    """The calls that wait in this proxy. `receive` is called in the event loop with each decision that may count.

    It returns what the answer to the decision waits for, or None. If it raises a DynamicMcpError, the command shows
    it, and the call keeps waiting.
    """

    def __init__(self, folder: Path, receive: Receive, *, poll_s: float = POLL_S) -> None:
        self._store = ApprovalStore(folder)
        self._receive = receive
        self._poll_s = poll_s
        self._pending: dict[str, QueuedApproval] = {}
        self._removed: dict[str, str] = {}  # the reasons, for calls whose files still exist
        self._stamps: dict[str, Stamp | None] = {}
        self._tasks = TaskSet(log)
        self._changed = asyncio.Event()
        self._is_serving = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ApprovalServer {len(self._pending)} pending>"

    async def put(self, pending: QueuedApproval) -> None:
        """Show a call until it is decided, removed or expired. Must not be cancelled. Raises OSError."""
        await asyncio.to_thread(self._store.create, pending)
        self._pending[pending.id] = pending
        if self._is_closed:  # meanwhile
            self.remove(pending.id, "the proxy has ended")
        if not self._is_serving:
            self._is_serving = True
            self._tasks.create(self._serve(), name="approvals")

    def list_pending(self) -> list[QueuedApproval]:
        return [*self._pending.values()]

    def remove(self, id: str, why: str = "it was decided elsewhere") -> None:
        """Stop showing a call, if it is there; a later decision is answered with `why`."""
        if self._pending.pop(id, None) is not None:
            self._removed[id] = why
            self._changed.set()

    async def close(self) -> None:
        self._is_closed = True
        for id in [*self._pending]:
            self.remove(id, "the proxy has ended")
        try:
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._tasks.wait()
        except TimeoutError:
            self._tasks.cancel_all()
            log.debug("the disk does not answer; %s stays as it is", self._store)

    async def _serve(self) -> None:
        try:
            await self._take_decisions()
        finally:
            self._is_serving = False

    async def _take_decisions(self) -> None:
        touched_at = time.monotonic()
        while self._pending or self._removed:
            self._changed.clear()
            self._remove_expired(time.time())
            if time.monotonic() - touched_at >= HEARTBEAT_S:
                touched_at = time.monotonic()
                await asyncio.to_thread(self._touch, [*self._pending])
            removed, self._removed = self._removed, {}
            decisions = await asyncio.to_thread(self._synchronize, dict(self._pending), removed)
            answers = {id: await self.decide(id, decision) for id, decision in decisions.items()}
            if answers:
                await asyncio.to_thread(self._write_answers, answers)
            elif self._pending:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._changed.wait()

    def _remove_expired(self, now: float) -> None:
        for id, pending in [*self._pending.items()]:
            if pending.expires <= now:
                self.remove(id, "it has expired")

    async def decide(self, id: str, decision: ApprovalDecision) -> ApprovalAnswer:
        """Return what comes of a decision about a call that waits here."""
        pending = self._pending.get(id)
        if pending is None:
            return ApprovalAnswer(outcome="gone", reason=self._removed.get(id, "it was decided before"))
        if fault := _find_fault(decision, pending):
            log.warning("a decision about the call that waits as %s does not count: %s", id, fault)
            return ApprovalAnswer(outcome="refused", reason=fault)
        answer = await self.judge(decision)
        if answer.outcome != "refused":
            self.remove(id, answer.reason or "it was decided before")
        return answer

    async def judge(self, decision: ApprovalDecision) -> ApprovalAnswer:
        """Return the answer to a decision that fits its call."""
        try:
            keeping = self._receive(decision)
        except DynamicMcpError as exc:
            return ApprovalAnswer(outcome="refused", reason=str(exc))
        if keeping is not None:
            await asyncio.wait([keeping])
        return ApprovalAnswer(outcome="taken")

    # --- in a thread ---------------------------------------------------------------------------------------

    def _synchronize(
        self, pending: Mapping[str, QueuedApproval], removed: Mapping[str, str]
    ) -> dict[str, ApprovalDecision]:
        """Claim and return the decisions about waiting calls; remove the files of other calls."""
        for id, why in removed.items():
            self._stamps.pop(id, None)
            with self._removing_on_error(id), self._store.locked(id):
                self._end(id, why)
        decisions: dict[str, ApprovalDecision] = {}
        for id, call in pending.items():
            if id in self._stamps and self._store.stamp(id) == self._stamps[id]:
                continue
            try:
                with self._store.locked(id):
                    decision = self._claim(call)
                    self._stamps[id] = self._store.stamp(id)
            except OSError as exc:  # tried again in the next round
                log.debug("the approval %s cannot be written: %s", id, exc)
            else:
                if decision is not None:
                    decisions[id] = decision
        return decisions

    def _claim(self, pending: QueuedApproval) -> ApprovalDecision | None:
        """Return the new decision about a call, if there is one; only a claimed decision counts."""
        stored = self._store.read(pending.id)
        if stored is None:  # it was removed or damaged
            self._store.write(StoredApproval(pending=pending))
        elif stored.decision is not None and not stored.is_claimed and stored.answer is None:
            self._store.write(structs.replace(stored, pending=pending, is_claimed=True))
            return stored.decision
        return None

    def _end(self, id: str, why: str) -> None:
        """Remove the file of a finished call, or answer the decision in it, whose command removes the file."""
        stored = self._store.read(id)
        if stored is None or stored.is_open:
            self._store.remove(id)
        elif stored.answer is None:
            self._store.write(structs.replace(stored, answer=ApprovalAnswer(outcome="gone", reason=why)))

    def _write_answers(self, answers: Mapping[str, ApprovalAnswer]) -> None:
        for id, answer in answers.items():
            with self._removing_on_error(id), self._store.locked(id):
                stored = self._store.read(id)
                if stored is not None and stored.is_claimed:
                    self._store.write(structs.replace(stored, answer=answer))

    @contextlib.contextmanager
    def _removing_on_error(self, id: str) -> Iterator[None]:
        """Remove a file that cannot be written, so that it does not show an outdated state."""
        try:
            yield
        except OSError as exc:
            log.warning("the approval %s cannot be written and is removed: %s", id, exc)
            self._store.remove(id)

    def _touch(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._store.touch(id)


def _find_fault(decision: ApprovalDecision, pending: QueuedApproval) -> str:
    """Return why a decision cannot count; empty if it can."""
    if decision.id != pending.id:
        return "it is about another call"
    if decision.verdict == "allow" and decision.scope not in pending.offered:
        offered = ", ".join(f"`{scope}`" for scope in pending.offered)
        return f"it can be approved for {offered}, and not for `{decision.scope}`"
    arguments = decision.arguments.strip()
    if arguments and not arguments.startswith(b"{"):
        return "arguments are an object"
    return ""


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
        group=subject.group_name,
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
