"""Plug-ins on the way of calls."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.plugins.call import KINDS
from dynamic_mcp.features.plugins.plugins import Plugins
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import ChangingStep, Services
from dynamic_mcp.proxy.request import Next, Restart, UpstreamRequest
from dynamic_mcp.proxy.view import GroupView

if TYPE_CHECKING:  # loaded where plug-ins have something to say of lists
    from dynamic_mcp.features.plugins.lists import ListHooks


class AskPlugins(ChangingStep):
    """Passes calls on through the plug-ins of their servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.plugins = Plugins(services.roles_of, services.lists_changed)
        self.plugins.apply(services.config)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether a plug-in is for calls of a server."""
        return self.plugins.are_for(group.name)

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Pass on what no plug-in is for. Raises PluginError."""
        return self.plugins.send(call, next, restart) if call.method in KINDS else next(call)

    async def prepare(self, config: Config) -> None:
        """Open the plug-ins of a config that is to be applied. Raises ConfigError, and then nothing has changed."""
        await self.plugins.prepare(config)

    def apply(self, configs: Iterable[Config]) -> None:
        """Use what was prepared for the config of the proxy: until then its plug-ins let nothing pass."""
        self.plugins.apply(self.services.config)

    @property
    def lists(self) -> ListHooks | None:
        """What shows each client the lists that plug-ins make for it."""
        return self.plugins.lists

    async def close(self) -> None:
        """Close all plug-ins, also those of configs before."""
        await self.plugins.close()
