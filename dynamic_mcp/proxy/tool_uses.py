"""How often each tool was called, by its group and the server's name: the most used ones are listed first.

Only calls of groups that list all their tools are counted, and only numbers are kept, for all configs of a user.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.file_store import FileStore, JsonCodec

log = logging.getLogger(__name__)

FILE = "tool-uses.json"
_LOCK_WITHIN_S = 5.0
# The tools of a group that are kept, and how long a name may be.
_MOST_TOOLS, _LONGEST_NAME = 1000, 200
_Counts = dict[str, dict[str, int]]


class CountUses(Step):
    """Counts the calls of each tool, and keeps the numbers when the proxy ends."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        if call.method == "tools/call" and call.params is not None:
            tool = wire.text(call.params.get("name")) or ""
            if len(tool) <= _LONGEST_NAME:
                self._counts[call.group.name, tool] += 1
        return next(call)

    async def close(self) -> None:
        folder = self.services.state_folder
        if folder is not None and self._counts:
            await asyncio.to_thread(_add, folder, self._counts)


def read_uses(folder: Path | None) -> _Counts:
    """Return how often tools were called by proxies that have ended, by group and the server's name."""
    if folder is None:
        return {}
    try:
        return _store(folder).load_or_set_aside("the counts of calls in") or {}
    except OSError as exc:
        log.warning("the most used tools are not known: %s", exc)
        return {}


def _add(folder: Path, counts: Counter[tuple[str, str]]) -> None:
    try:
        store = _store(folder)
        with store.locked(_LOCK_WITHIN_S):
            kept = read_uses(folder)
            for (group, tool), times in counts.items():
                tools = kept.setdefault(group, {})
                tools[tool] = tools.get(tool, 0) + times
            store.save({group: dict(Counter(each).most_common(_MOST_TOOLS)) for group, each in kept.items()})
    except (OSError, TimeoutError) as exc:
        log.warning("the most used tools are not kept: %s", exc)


def _store(folder: Path) -> FileStore[_Counts]:
    return FileStore(folder / FILE, JsonCodec(_Counts, None))
