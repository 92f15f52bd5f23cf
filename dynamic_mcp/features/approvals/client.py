"""A command's side of the folder of approvals: lists what waits in all proxies of the user, and decides about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dynamic_mcp.features.approvals.queued import ApprovalAnswer, ApprovalDecision, QueuedApproval, parse_id
from dynamic_mcp.features.approvals.store import ApprovalStore, Unsuitable
from dynamic_mcp.observe.proxies import is_alive

# How long a proxy may take to answer a decision; it looks for decisions every 0.25 s.
ANSWER_WITHIN_S = 10.0
_POLL_S = 0.02
# What has not been written for so long was left by somebody who is gone; a proxy touches what waits in it.
_LEFT_AFTER_S = 300.0


class ApprovalClient:
    """What waits for a person, the oldest first. `now` returns seconds since 1970."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._folder = ApprovalStore(folder)
        self._now = now

    def list_pending(self) -> list[QueuedApproval]:
        """Return what waits, and remove what dead proxies have left."""
        self._folder.remove_older(self._now() - _LEFT_AFTER_S)
        found = [pending for id in self._folder.pending_ids() if (pending := self._read(id)) is not None]
        return sorted(found, key=lambda each: (each.since, each.id))

    def find(self, typed: str) -> list[QueuedApproval]:
        """Return what waits with this id, or with ids that begin so."""
        id = parse_id(typed)
        return [pending for pending in self.list_pending() if id and pending.id.startswith(id)]

    def decide(self, decision: ApprovalDecision, within_s: float = ANSWER_WITHIN_S) -> ApprovalAnswer:
        """Send a decision and return what became of it. Raises OSError if it cannot be written."""
        if self._read(decision.id) is None:
            return ApprovalAnswer(outcome="gone", reason="it was decided before, or has expired")
        key = self._folder.write_decision(decision)
        was_withdrawn = False
        try:
            answer = self._wait_for_answer(decision.id, key, within_s)
        finally:
            was_withdrawn = self._folder.withdraw_decision(key)
        if answer is None and not was_withdrawn:  # the proxy has it, and may be about to answer
            answer = self._wait_for_answer(decision.id, key, within_s)
        return answer or self._without_answer(decision.id, was_withdrawn=was_withdrawn)

    def _wait_for_answer(self, id: str, key: str, within_s: float) -> ApprovalAnswer | None:
        ends_at = time.monotonic() + within_s
        while time.monotonic() < ends_at:
            waits = self._folder.has_pending(id)  # before the answer, which is written first
            if (answer := self._folder.take_answer(key)) is not None or not waits:
                return answer
            time.sleep(_POLL_S)
        return None

    def _without_answer(self, id: str, *, was_withdrawn: bool) -> ApprovalAnswer:
        if self._read(id) is None:
            return ApprovalAnswer(outcome="gone", reason="it was decided elsewhere, or has expired")
        reason = "the proxy does not answer" if was_withdrawn else "the proxy has read the decision and says nothing"
        return ApprovalAnswer(outcome="silent", reason=reason)

    def _read(self, id: str) -> QueuedApproval | None:
        try:
            pending, touched_at = self._folder.read_pending(id)
        except (OSError, Unsuitable):  # removed meanwhile, or not a proxy's
            return None
        if not is_alive(pending.pid, max(0.0, self._now() - touched_at)):
            self._folder.remove_pending(id)
            return None
        return pending if pending.expires > self._now() else None
