"""The plug-ins step."""

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

if TYPE_CHECKING:  # imported if plug-ins filter lists
    from dynamic_mcp.features.plugins.lists import ListHooks


class AskPlugins(ChangingStep):
    """Passes calls through the plug-ins of their servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.plugins = Plugins(services.roles_of, services.lists_changed)
        self.plugins.apply(services.config)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        return self.plugins.are_for(group.name)

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Pass a call through its plug-ins, if there are any. Raises PluginError."""
        return self.plugins.send(call, next, restart) if call.method in KINDS else next(call)

    async def prepare(self, config: Config) -> None:
        """Open the plug-ins of a config before it is applied. Raises ConfigError; then nothing has changed."""
        await self.plugins.prepare(config)

    def apply(self, configs: Iterable[Config]) -> None:
        """Use the plug-ins prepared for the proxy's config: until then they let nothing pass."""
        self.plugins.apply(self.services.config)

    @property
    def lists(self) -> ListHooks | None:
        """The filter that shows each client its lists."""
        return self.plugins.lists

    async def close(self) -> None:
        """Close all plug-ins, including those of earlier configs."""
        await self.plugins.close()
