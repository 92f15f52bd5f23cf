"""Bounds the memory of all unfinished bodies: much for authenticated senders, little for others.

The first bytes of each body of an authenticated sender are not counted, so that short messages pass while long ones
must wait; the number of connections bounds them.
"""

from __future__ import annotations

from collections import Counter

from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.exchange import BodyReceiver
from dynamic_mcp.identity import Authentication, Principal

# One authenticated sender has a share of the budget; two bodies of maximum length always fit into it.
_SHARES = 2


class BodyBudget:
    """Counts the bytes of unfinished bodies, by sender."""

    def __init__(self) -> None:
        self._total = self._unknown = 0
        self._by_principal: Counter[Principal] = Counter()

    def __repr__(self) -> str:
        return f"<BodyBudget {self._total} bytes, {self._unknown} of unknown senders>"

    def take(self, sender: Authentication | None, count: int, longest: int) -> bool:
        """Reserve bytes for a body of at most `longest` bytes; return whether the budget allows it."""
        if sender is None:
            if self._unknown + count > limits.COLLECTED_UNKNOWN_BYTES:
                return False
            self._unknown += count
            return True
        most = max(limits.COLLECTED_BYTES, 2 * _SHARES * longest)
        share = most if sender.is_local else most // _SHARES
        if self._total + count > most or self._by_principal[sender.principal] + count > share:
            return False
        self._total += count
        self._by_principal[sender.principal] += count
        return True

    def give_back(self, sender: Authentication | None, count: int) -> None:
        if sender is None:
            self._unknown -= count
            return
        self._total -= count
        self._by_principal[sender.principal] -= count
        if not self._by_principal[sender.principal]:
            del self._by_principal[sender.principal]


class BodyHold:
    """The share of the budget that one body holds."""

    __slots__ = ("_budget", "_held", "_receiver", "_sender")

    def __init__(self, budget: BodyBudget, receiver: BodyReceiver) -> None:
        self._budget = budget
        self._receiver = receiver
        self._sender: Authentication | None = None
        self._held = 0

    def grow(self, collected: int) -> bool:
        """Hold this many bytes in total; return whether the budget allows it."""
        sender = self._receiver.sender
        if sender is not self._sender:
            self.release()
            self._sender = sender
        needed = collected - self._held - (limits.UNCOUNTED_BYTES if sender is not None else 0)
        if needed <= 0:
            return True
        is_taken = self._budget.take(sender, needed, self._receiver.max_body_bytes)
        if is_taken:
            self._held += needed
        return is_taken

    def settle(self) -> None:
        """Release the bytes if the sender is authenticated; until then, the received body waits in memory."""
        if self._sender is not None or self._receiver.sender is not None:
            self.release()

    def release(self) -> None:
        if self._held:
            self._budget.give_back(self._sender, self._held)
            self._held = 0
