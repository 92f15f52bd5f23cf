"""Plug-ins on the way of calls."""

from __future__ import annotations

from collections.abc import Awaitable

from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import ChangingStep
from dynamic_mcp.features.plugins.call import KINDS
from dynamic_mcp.proxy.request import Next, Restart, UpstreamRequest


class AskPlugins(ChangingStep):
    """Passes calls on through the plug-ins of their servers."""

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Pass on what no plug-in is for. Raises PluginError."""
        plugins = self.services.plugins
        if plugins is None or call.method not in KINDS:
            return next(call)
        return plugins.send(call, next, restart)
