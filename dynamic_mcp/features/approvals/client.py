"""The command's side of the approvals folder: lists the waiting calls of all the user's proxies, and decides them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from dynamic_mcp.features.approvals.store import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalStore,
    QueuedApproval,
    StoredApproval,
    approvals_dir,
    parse_id,
)
from dynamic_mcp.observe.proxies import is_alive

# How long a proxy may take to answer a decision; it looks for decisions every 0.25 s.
ANSWER_WITHIN_S = 10.0
_POLL_S = 0.02
# An older file was left by a process that has ended.
_LEFT_AFTER_S = 300.0
_GONE = ApprovalAnswer(outcome="gone", reason="it was decided elsewhere, or has expired")


class ApprovalClient:
    """The waiting calls of this user, as commands see them. `now` returns seconds since 1970."""

    def __init__(self, folder: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._store = ApprovalStore(folder or approvals_dir())
        self._now = now

    def list_pending(self) -> list[QueuedApproval]:
        """Return the waiting calls, oldest first, and remove files left by dead processes."""
        self._store.remove_leftovers(self._now() - _LEFT_AFTER_S)
        found = [stored.pending for id in self._store.ids() if (stored := self._read(id)) is not None]
        return sorted(found, key=lambda each: (each.since, each.id))

    def find(self, typed: str) -> list[QueuedApproval]:
        """Return the waiting calls with this id, or with ids that begin with it."""
        id = parse_id(typed)
        return [pending for pending in self.list_pending() if id and pending.id.startswith(id)]

    def waits(self, id: str) -> bool:
        return self._read(id) is not None

    def decide(self, decision: ApprovalDecision, within_s: float = ANSWER_WITHIN_S) -> ApprovalAnswer:
        """Send a decision and return its outcome. Raises OSError if it cannot be written."""
        nonce = secrets.token_hex(8)
        answer, was_withdrawn = None, True
        if self._send(decision, nonce, within_s):
            try:
                answer = self._wait_for_answer(decision.id, nonce, within_s)
            finally:
                was_withdrawn = self._withdraw(decision.id, nonce)
            if answer is None and not was_withdrawn:  # the proxy has it, and may be about to answer
                answer = self._wait_for_answer(decision.id, nonce, within_s)
        if answer is None and self.waits(decision.id):
            state = "does not answer" if was_withdrawn else "has the decision and does not answer"
            return ApprovalAnswer(outcome="silent", reason=f"the proxy {state}")
        return answer or _GONE

    def _send(self, decision: ApprovalDecision, nonce: str, within_s: float) -> bool:
        """Write a decision once no other decision is pending; return whether that was possible."""
        ends_at = time.monotonic() + within_s
        while time.monotonic() < ends_at and self.waits(decision.id):
            with self._store.locked(decision.id):
                stored = self._read(decision.id)
                if stored is not None and stored.is_open:
                    self._store.write(StoredApproval(pending=stored.pending, decision=decision, nonce=nonce))
                    return True
            time.sleep(_POLL_S)
        return False

    def _wait_for_answer(self, id: str, nonce: str, within_s: float) -> ApprovalAnswer | None:
        ends_at = time.monotonic() + within_s
        while time.monotonic() < ends_at:
            with self._store.locked(id):  # Windows replaces no file that is being read
                stored = self._store.read(id)
                if stored is None or stored.nonce != nonce:
                    return _GONE
                if stored.is_over:
                    self._store.remove(id)
            if stored.answer is not None:
                return stored.answer
            time.sleep(_POLL_S)
        return None

    def _withdraw(self, id: str, nonce: str) -> bool:
        """Remove a decision that the proxy has not claimed; return whether it was removed."""
        stored = self._store.read(id)
        if stored is None or stored.nonce != nonce or stored.answer is not None:
            return False
        with self._store.locked(id):
            stored = self._store.read(id)
            if stored is None or stored.nonce != nonce or stored.is_claimed:
                return False
            self._store.write(structs.replace(stored, decision=None, nonce=""))
            return True

    def _read(self, id: str) -> StoredApproval | None:
        """Return a waiting call; remove files left by dead proxies and commands."""
        stored = self._store.read(id)
        if stored is None:
            return None
        try:
            age_s = max(0.0, self._now() - self._store.touched_at(id))
        except OSError:  # removed meanwhile
            return None
        is_left = age_s > _LEFT_AFTER_S if stored.is_over else not is_alive(stored.pending.pid, age_s)
        if is_left:
            self._store.remove(id)
        return None if is_left or stored.is_over or stored.pending.expires <= self._now() else stored
