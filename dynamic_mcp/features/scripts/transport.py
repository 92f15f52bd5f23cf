"""An MCP server made of stored scripts: it lists them, and notices changed files. Their calls are run by a step."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynamic_mcp.errors import Unreachable
from dynamic_mcp.features.scripts.stored import StoredScripts, read_folder, stamps_of
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.own_transport import FolderTransport

log = logging.getLogger(__name__)


class StoredScriptTransport(FolderTransport):
    """Answers the requests of one link from a folder, which it watches until the link is closed."""

    list_changed = "notifications/tools/list_changed"

    def __init__(self, group: str, folder: str) -> None:
        super().__init__(group, log)
        self._folder = Path(folder)
        self._stored = StoredScripts()

    async def start(self) -> None:
        """Read the folder. Raises Unreachable if it cannot be read."""
        try:
            await self._reread()
        except OSError as exc:
            raise Unreachable(self.group, f"the folder `{self._folder}` cannot be read: {os_reason(exc)}") from exc
        self._start_watch()

    def _stamp(self) -> object:
        return stamps_of(self._folder)

    def _read(self) -> Sequence[str]:
        self._stored = read_folder(self._folder)
        return self._stored.complaints

    async def _handle(self, frame: Frame) -> Frame | None:
        if frame.method != "tools/list":
            return None
        with contextlib.suppress(OSError):  # the list may be read again because a file has changed
            await self._reread_if_changed()
        return wire.result_frame({"tools": [each.definition for each in self._stored.scripts.values()]})

    def _introduce(self) -> Mapping[str, object]:
        return {
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "scripts", "version": "1"},
            "instructions": "Stored scripts: each does with many calls of other tools what its description says.",
        }
