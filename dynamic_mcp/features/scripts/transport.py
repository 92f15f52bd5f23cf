"""An MCP server made of stored scripts: it lists them, and notices changed files. Their calls are run by a step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.errors import METHOD_NOT_FOUND, Unreachable
from dynamic_mcp.features.scripts.stored import StoredScripts, read_folder, stamps_of
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.own_transport import OwnTransport

log = logging.getLogger(__name__)

# How often the folder is compared with what was read of it.
LOOK_EVERY_S = 2.0


class StoredScriptTransport(OwnTransport):
    """Answers the requests of one link from a folder, which it watches until the link is closed."""

    def __init__(self, group: str, folder: str) -> None:
        super().__init__(group, log)
        self._folder = Path(folder)
        self._stored = StoredScripts()
        self._stamps: object = None

    async def start(self) -> None:
        """Read the folder. Raises Unreachable if it cannot be read."""
        try:
            await self._reread()
        except OSError as exc:
            raise Unreachable(self.group, f"the folder `{self._folder}` cannot be read: {os_reason(exc)}") from exc
        self._tasks.create(self._watch(), name=f"scripts of {self.group}")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with contextlib.suppress(OSError):
                if await asyncio.to_thread(stamps_of, self._folder) != self._stamps:
                    await self._reread()
                    self._deliver(wire.notification_line("notifications/tools/list_changed"))

    async def _reread(self) -> None:
        before = self._stored
        self._stamps = await asyncio.to_thread(stamps_of, self._folder)  # what changes now is read again
        self._stored = await asyncio.to_thread(read_folder, self._folder)
        for complaint in self._stored.complaints:
            if complaint not in before.complaints:
                self._logger.warning("group %s: %s", self.group, complaint)

    async def _handle(self, frame: Frame) -> Frame:
        match frame.method:
            case "initialize":
                return wire.result_frame(self._introduce(frame))
            case "ping":
                return wire.result_frame(b"{}")
            case "tools/list":
                with contextlib.suppress(OSError):  # the list may be read again because a file has changed
                    if await asyncio.to_thread(stamps_of, self._folder) != self._stamps:
                        await self._reread()
                return wire.result_frame({"tools": [each.definition for each in self._stored.scripts.values()]})
        return wire.error_frame(METHOD_NOT_FOUND, f"there is no method `{frame.method[:100]}`")

    def _introduce(self, frame: Frame) -> Mapping[str, object]:
        return {
            "protocolVersion": wire.member(frame.params, "protocolVersion"),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "scripts", "version": "1"},
            "instructions": "Stored scripts: each does with many calls of other tools what its description says.",
        }
