"""A proxy's side of the folder of approvals: shows what waits there, and takes what people decide.

Nothing runs while nothing waits. The disk is only used in threads, so one that stalls keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.approvals.queued import ApprovalAnswer, ApprovalDecision, QueuedApproval
from dynamic_mcp.features.approvals.store import ApprovalStore, Unsuitable
from dynamic_mcp.observe.proxies import HEARTBEAT_S
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

POLL_S = 0.25
# Decisions that are taken in one round; the others come with the next.
_MOST_AT_ONCE = 64
_CLOSE_WITHIN_S = 2.0

Receive = Callable[[ApprovalDecision], None]
# What was found of a decision: its id, its key, and the decision, or why it does not count.
_Found = tuple[str, str, ApprovalDecision | str]


class ApprovalServer:
    """What waits in this proxy. `receive` is called in the event loop with each decision that may count.

    A DynamicMcpError that `receive` raises refuses the decision: whoever decided is shown it, and the call waits on.
    Otherwise the call is removed from the folder.
    """

    def __init__(self, folder: Path, receive: Receive, *, poll_s: float = POLL_S) -> None:
        self._folder = ApprovalStore(folder)
        self._receive = receive
        self._poll_s = poll_s
        self._pending: dict[str, QueuedApproval] = {}
        self._removed: dict[str, str] = {}  # why, of those whose files are still there
        self._tasks = TaskSet(log)
        self._changed = asyncio.Event()
        self._is_serving = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def __repr__(self) -> str:
        return f"<ApprovalServer {len(self)} pending>"

    async def put(self, pending: QueuedApproval) -> None:
        """Show that a call waits, until it is decided, removed or expired.

        Raises OSError, and then nobody can decide it here.
        """
        writing = self._tasks.create(asyncio.to_thread(self._write, pending))
        try:
            error = await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(partial(self._discard, pending.id))
            raise
        if error is not None:
            raise error
        self._pending[pending.id] = pending
        if self._is_closed:  # meanwhile
            self.remove(pending.id, "the proxy has ended")
        self._run()

    def remove(self, id: str, why: str = "it was decided elsewhere") -> None:
        """Stop to show a call; a decision that comes too late is told why. Does nothing for one that is not there."""
        if self._pending.pop(id, None) is not None:
            self._removed[id] = why
            self._changed.set()

    async def close(self) -> None:
        """Remove all that waits."""
        self._is_closed = True
        for id in [*self._pending]:
            self.remove(id, "the proxy has ended")
        try:
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._tasks.wait()
        except TimeoutError:
            self._tasks.cancel_all()
            log.debug("the disk does not answer; %s stays as it is", self._folder)

    def _write(self, pending: QueuedApproval) -> OSError | None:
        try:
            self._folder.make()
            self._folder.write_pending(pending)
        except OSError as exc:
            return exc
        return None

    def _discard(self, id: str, writing: asyncio.Task[OSError | None]) -> None:
        if not writing.cancelled() and writing.result() is None:
            self._removed[id] = "the call was cancelled"
            self._run()

    def _run(self) -> None:
        if not self._is_serving:
            self._is_serving = True
            self._tasks.create(self._serve(), name="approvals")

    async def _serve(self) -> None:
        try:
            await self._take_decisions()
        finally:
            self._is_serving = False

    async def _take_decisions(self) -> None:
        """Take decisions, until nothing waits any more."""
        touched_at = time.monotonic()
        while self._pending or self._removed:
            self._changed.clear()
            self._remove_expired(time.time())
            if time.monotonic() - touched_at >= HEARTBEAT_S:
                touched_at = time.monotonic()
                await asyncio.to_thread(self._touch, [*self._pending.values()])
            removed, self._removed = self._removed, {}
            found = await asyncio.to_thread(self._collect, [*self._pending], removed)
            answers = [(id, key, self._decide(id, decision)) for id, key, decision in found]
            if answers:
                await asyncio.to_thread(self._answer, answers)
            elif self._pending:
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _remove_expired(self, now: float) -> None:
        for id, pending in [*self._pending.items()]:
            if pending.expires <= now:
                self.remove(id, "it has expired")

    def _decide(self, id: str, decision: ApprovalDecision | str) -> ApprovalAnswer:
        pending = self._pending.get(id)
        if pending is None:
            return ApprovalAnswer(outcome="gone", reason="it was decided before")
        refusal = decision if isinstance(decision, str) else _find_fault(decision, pending)
        if isinstance(decision, str) or refusal:
            log.warning("a decision about the call that waits as %s does not count: %s", id, refusal)
            return ApprovalAnswer(outcome="refused", reason=refusal)
        try:
            self._receive(decision)
        except DynamicMcpError as exc:
            return ApprovalAnswer(outcome="refused", reason=str(exc))
        self.remove(id, "it was decided before")
        return ApprovalAnswer(outcome="taken")

    # --- in a thread ---------------------------------------------------------------------------------------

    def _collect(self, ids: Sequence[str], removed: dict[str, str]) -> list[_Found]:
        """Claim the decisions that are there; remove what waits no more, and answer what comes too late for it."""
        keys = [(id, key) for id, key in self._folder.decision_keys() if id in ids or id in removed]
        for id in removed:
            self._folder.remove_pending(id)
        found = [(id, key, self._claim(id, key)) for id, key in keys[:_MOST_AT_ONCE]]
        for id, key, _ in found:
            if id in removed:
                self._folder.write_answer(key, ApprovalAnswer(outcome="gone", reason=removed[id]))
        return [(id, key, decision) for id, key, decision in found if id in ids and decision is not None]

    def _claim(self, id: str, key: str) -> ApprovalDecision | str | None:
        try:
            decision = self._folder.claim_decision(key)
        except Unsuitable as exc:
            return str(exc)
        except OSError:  # it was withdrawn
            return None
        return decision if decision.id == id else "it is about another call"

    def _answer(self, answers: Sequence[tuple[str, str, ApprovalAnswer]]) -> None:
        for id, key, answer in answers:
            self._folder.write_answer(key, answer)
            if answer.outcome == "taken":
                self._folder.remove_pending(id)

    def _touch(self, pending: Sequence[QueuedApproval]) -> None:
        for each in pending:
            self._folder.touch_pending(each)


def _find_fault(decision: ApprovalDecision, pending: QueuedApproval) -> str:
    """Return why a decision cannot count; empty if it can."""
    if decision.verdict == "allow" and decision.scope not in pending.offered:
        offered = ", ".join(f"`{scope}`" for scope in pending.offered)
        return f"it can be approved for {offered}, and not for `{decision.scope}`"
    arguments = bytes(decision.arguments).strip()
    if arguments and not arguments.startswith(b"{"):
        return "arguments are an object"
    return ""
