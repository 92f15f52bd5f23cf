"""The approvals part of `status`: the number of calls that wait in each proxy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.observe.proxies import StatusPart


def read_status(pids: Iterable[int]) -> StatusPart:
    """Return the number of waiting calls in the proxies with these pids."""
    waiting = Counter(pending.pid for pending in ApprovalClient().list_pending())
    members = {pid: {"approvals": waiting[pid]} for pid in pids}
    number = sum(waiting[pid] for pid in members)
    wait = "call waits" if number == 1 else "calls wait"
    note = f"{number} {wait} for your approval; `dynamic-mcp approve` lists them" if number else ""
    return StatusPart(members, note)
