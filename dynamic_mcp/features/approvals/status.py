"""The approvals part of `status`: the number of calls that wait in each proxy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.observe.proxies import StatusPart


def read_status(services: Mapping[int, Collection[int]]) -> StatusPart:
    """Return the number of waiting calls in the proxies with these pids, each with those of its workers."""
    waiting = Counter(pending.pid for pending in ApprovalClient().list_pending())
    sums = {pid: sum(waiting[each] for each in {pid, *workers}) for pid, workers in services.items()}
    members = {pid: {"approvals": count} for pid, count in sums.items()}
    number = sum(sums.values())
    wait = "call waits" if number == 1 else "calls wait"
    note = f"{number} {wait} for your approval; `dynamic-mcp approve` lists them" if number else ""
    return StatusPart(members, note)
