"""The step that runs a stored script: its calls are calls of the client that has called it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

from dynamic_mcp.config.resolved import FeatureServer
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.scripts.stored import BadScript, StoredScript, file_of, read_digest, read_script
from dynamic_mcp.features.scripts.tool import NAME, ScriptTool
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest


class RunStoredScript(Step):
    """Answers calls of stored scripts; all else is answered by what lists them."""

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        return self._run(call) if call.method == "tools/call" else next(call)

    async def _run(self, call: UpstreamRequest) -> Frame:
        if call.request.parent is not None:
            raise DynamicMcpError("a script cannot run scripts")
        runner = self.services.own_tools[NAME]
        assert isinstance(runner, ScriptTool)
        script = await self._find_script(call)
        return await runner.run_stored(call.request, call.params or {}, script.code)

    async def _find_script(self, call: UpstreamRequest) -> StoredScript:
        """Return the script that a call means, which is the very text that is listed. Raises DynamicMcpError."""
        server, name = call.group.config.upstream, wire.text((call.params or {}).get("name")) or ""
        assert isinstance(server, FeatureServer)
        catalog = call.group.group.admission.catalog()
        listed = wire.EMPTY_OBJECT if catalog is None else catalog.tools.get(name, wire.EMPTY_OBJECT)
        try:
            script = await asyncio.to_thread(lambda: read_script(file_of(Path(server.folder), name)))
        except BadScript as exc:
            raise DynamicMcpError(f"the script `{name[:100]}` cannot be run: {exc}") from exc
        if script.digest != read_digest(listed):
            await call.group.reread(call.request.client)
            raise DynamicMcpError(
                f"the script `{name}` has changed since it was listed, and nothing was run",
                hint="look it up again before you call it",
            )
        return script
