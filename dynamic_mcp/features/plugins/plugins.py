"""The plug-ins of one proxy: opened before their config is applied, and closed when no call uses them any more.

Unchanged plug-ins survive a reload. A config whose plug-ins cannot be opened changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError, PluginError
from dynamic_mcp.features.plugins.call import PluginCall
from dynamic_mcp.features.plugins.config import Plugin, plugins_of
from dynamic_mcp.features.plugins.loading import load
from dynamic_mcp.features.plugins.opened import ActivePlugin, OpenPlugin, describe
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.middleware import CallerInfo, Middleware, PluginServices
from dynamic_mcp.proxy.request import Next, Restart, UpstreamRequest
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.features.plugins.lists import ListHooks

log = logging.getLogger(__name__)

# How long a plug-in may take to be imported and opened, whatever its `timeout` for calls, and all of them to close.
OPEN_WITHIN_S = 30.0
CLOSE_WITHIN_S = 2.0


class Plugins:
    """The plug-ins of a config. `lists` is set if plug-ins filter lists.

    `roles_of` returns the roles of a client; `on_lists_changed` is called when a plug-in wants lists made again.
    """

    def __init__(
        self, roles_of: Callable[[Authentication], Sequence[str]], on_lists_changed: Callable[[], None]
    ) -> None:
        self.active: tuple[ActivePlugin, ...] = ()
        self.lists: ListHooks | None = None
        self._roles_of = roles_of
        self._on_lists_changed = on_lists_changed
        self._open: list[OpenPlugin] = []
        self._retired: dict[OpenPlugin, asyncio.Task[None]] = {}
        self._by_server: dict[str, tuple[ActivePlugin, ...]] = {}
        self._tasks = TaskSet(log)

    def __repr__(self) -> str:
        return f"<Plugins {', '.join(each.settings.use for each in self.active)}>"

    # --- lifecycle -------------------------------------------------------------------------------------

    async def prepare(self, config: Config) -> None:
        """Open the plug-ins that a config adds. Raises ConfigError; then nothing has changed."""
        opened: list[OpenPlugin] = []
        left = [*self._open]
        try:
            for number, settings in enumerate(plugins_of(config)):
                if (found := _find(left, settings)) is not None:
                    left.remove(found)
                    continue
                try:
                    opened.append(await open_plugin(settings, self._refresh_lists))
                except PluginError as exc:
                    raise to_config_error(config, number, exc) from exc
        except BaseException:
            await _close_all(opened, CLOSE_WITHIN_S)
            raise
        self._open += opened

    def apply(self, config: Config) -> None:
        """Use the plug-ins prepared for a config; the others are closed once their calls have ended."""
        left, active = [*self._open], []
        for settings in plugins_of(config):
            if (found := _find(left, settings)) is not None:
                left.remove(found)
            active.append(ActivePlugin(settings, found))
        self.active = tuple(active)
        self._by_server = {}
        self._hook_lists()
        for each in left:
            self._open.remove(each)
            self._retired[each] = self._tasks.create(self._retire(each), name=f"end of plug-in {each.use}")

    async def close(self) -> None:
        """Close all plug-ins, the last first, within a bound."""
        self._tasks.cancel_all()
        await self._tasks.wait()
        plugins = [*self._retired, *self._open]
        self._open.clear()
        self._retired.clear()
        await _close_all(plugins, CLOSE_WITHIN_S)

    async def _retire(self, plugin: OpenPlugin) -> None:
        await plugin.wait_until_idle()
        del self._retired[plugin]
        await plugin.close(CLOSE_WITHIN_S)

    # --- lists -----------------------------------------------------------------------------------------

    def _hook_lists(self) -> None:
        """Use those plug-ins for lists that filter them, or may do so."""
        plugins = tuple(each for each in self.active if each.opened is None or each.opened.has_list)
        if not plugins:
            self.lists = None
        elif self.lists is None or self.lists.plugins != plugins:
            from dynamic_mcp.features.plugins.lists import ListHooks

            self.lists = ListHooks(plugins, self._describe)

    def _refresh_lists(self) -> None:
        self.lists = None
        self._hook_lists()
        self._on_lists_changed()

    def _describe(self, client: Client) -> CallerInfo:
        principal, hello = client.principal, client.hello
        roles = tuple(self._roles_of(client.authentication))
        return CallerInfo(principal.subject, principal.issuer, roles, hello.name, hello.version)

    # --- calls -----------------------------------------------------------------------------------------

    def are_for(self, server: str) -> bool:
        """Return whether calls of a server pass a plug-in."""
        return bool(self._of_calls(server))

    async def send(self, call: UpstreamRequest, next: Next, restart: Restart) -> Frame:
        """Pass a call through the plug-ins of its server, and then to the later steps.

        Arguments replaced by a plug-in are judged again before the next plug-in sees them, and every call is judged
        before it goes on, because the config may have changed. Raises PluginError.
        """
        plugins = self._of_calls(call.group.name)
        caller = self._describe(call.request.client)
        return await _send_from(plugins, caller, lambda last: restart(last, next), restart, call)

    def _of_calls(self, server: str) -> tuple[ActivePlugin, ...]:
        found = self._by_server.get(server)
        if found is None:
            with_calls = (each for each in self.active if each.opened is None or each.opened.has_call)
            found = self._by_server[server] = tuple(each for each in with_calls if each.servers.matches(server))
        return found


async def _send_from(
    plugins: Sequence[ActivePlugin], caller: CallerInfo, end: Next, restart: Restart, call: UpstreamRequest
) -> Frame:
    if not plugins:
        return await end(call)
    first, *rest = plugins
    if first.opened is None:
        raise PluginError(first.settings.use, "is not open; nothing was sent")
    following = partial(_send_from, rest, caller, end, restart)
    with first.opened.in_use():
        return await PluginCall(first.opened, first.settings, caller, call, following, restart).run()


async def open_plugin(settings: Plugin, refresh_lists: Callable[[], None] = lambda: None) -> OpenPlugin:
    """Import a plug-in and open it. Raises PluginError."""
    name = settings.use
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            found = await asyncio.to_thread(load, name)
    except TimeoutError:
        raise PluginError(name, f"was not imported within {OPEN_WITHIN_S:g} s") from None
    services = PluginServices(logging.getLogger(f"dynamic_mcp.plugin.{name}"), refresh_lists)
    try:
        plugin: Middleware = found()
    except Exception as exc:
        raise PluginError(name, f"{describe(exc)}: {exc}") from exc
    opened = OpenPlugin(name, settings.options, plugin)
    try:
        await opened.run(partial(plugin.open, dict(settings.options), services), OPEN_WITHIN_S)
    except PluginError as exc:
        cause = exc.__cause__
        why = exc.problem if cause is None else str(cause) or type(cause).__name__
        raise PluginError(name, f"cannot be opened: {why}") from exc
    return opened


def to_config_error(config: Config, number: int, exc: PluginError) -> ConfigError:
    """Return the error for a config whose plug-in with this number cannot be used."""
    return ConfigError(str(config.file), f"settings.middleware[{number}]", exc.message, hint=exc.hint)


def _find(plugins: Iterable[OpenPlugin], settings: Plugin) -> OpenPlugin | None:
    wanted = (settings.use, settings.options)
    return next((each for each in plugins if (each.use, each.options) == wanted), None)


async def _close_all(plugins: Sequence[OpenPlugin], within_s: float) -> None:
    """Close plug-ins, the last first, all within a bound; a hanging one does not use up the time of the others."""
    for each in reversed(plugins):
        await each.close(within_s / len(plugins))
