"""The plug-ins of a proxy, which are loaded with the first config that has some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.pipeline import Pipeline
from dynamic_mcp.proxy.request import Request

if TYPE_CHECKING:
    from dynamic_mcp.middleware import Caller
    from dynamic_mcp.proxy.plugins.lists import ListHooks
    from dynamic_mcp.proxy.plugins.plugins import Plugins

Answer = Callable[[Request], Awaitable[Frame]]


class PluginControl:
    """Gives a proxy the plug-ins of its config: `prepare` opens them, and `apply` uses them.

    `announce_soon` tells the clients of lists that have changed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        roles_of: Callable[[Authentication], Sequence[str]],
        announce_soon: Callable[[], None],
    ) -> None:
        self._pipeline = pipeline
        self._roles_of = roles_of
        self._announce_soon = announce_soon
        self._plugins: Plugins | None = None
        self._lists: ListHooks | None = None

    @property
    def change_lists(self) -> bool:
        """Whether a plug-in may show each client other lists."""
        return self._lists is not None

    async def prepare(self, config: Config) -> None:
        """Open the plug-ins of a config that is to be applied. Raises ConfigError, and then nothing has changed."""
        if config.plugins:
            await self._load().prepare(config)

    def apply(self, config: Config) -> None:
        """Use the plug-ins of this config from now on. Those that are not open let nothing pass."""
        if config.plugins:
            self._pipeline.plugins = plugins = self._load()
            plugins.apply(config)
        elif self._plugins is not None:
            self._pipeline.plugins = None
            self._plugins.apply(config)
        self._hook_lists()

    def wrap(self, answer: Answer) -> Answer:
        """Have requests answered by what plug-ins let the client see."""
        return answer if self._lists is None else partial(self._lists.answer, answer)

    def mark(self, snapshot: Mapping[str, Sequence[object] | None]) -> Mapping[str, Sequence[object] | None]:
        """Return the snapshot of a view so that it is another one where plug-ins make lists anew."""
        if self._lists is None:
            return snapshot
        return {name: None if each is None else [*each, self._lists] for name, each in snapshot.items()}

    async def close(self) -> None:
        """Close all plug-ins, within a bound."""
        if self._plugins is not None:
            await self._plugins.close()

    def _load(self) -> Plugins:
        if self._plugins is None:
            from dynamic_mcp.proxy.plugins.plugins import Plugins

            self._plugins = Plugins(self._describe, self._refresh_lists)
        return self._plugins

    def _hook_lists(self) -> None:
        """Ask those plug-ins for lists that have something to say of them; if they are the same, nothing changes."""
        hooks = () if self._plugins is None else self._plugins.for_lists
        if not hooks:
            self._lists = None
        elif self._lists is None or self._lists.plugins != hooks:
            from dynamic_mcp.proxy.plugins.lists import ListHooks

            self._lists = ListHooks(hooks, self._describe)

    def _refresh_lists(self) -> None:
        self._lists = None
        self._hook_lists()
        self._announce_soon()

    def _describe(self, client: Client) -> Caller:
        from dynamic_mcp.middleware import Caller

        principal, hello = client.principal, client.hello
        roles = tuple(self._roles_of(client.authentication))
        return Caller(principal.subject, principal.issuer, roles, hello.name, hello.version)
