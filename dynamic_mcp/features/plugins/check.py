"""Checks plug-ins: whether they can be opened, and whether there are servers for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level, config_error, guess, warning
from dynamic_mcp.errors import PluginError
from dynamic_mcp.features.plugins.config import plugins_of
from dynamic_mcp.features.plugins.plugins import CLOSE_WITHIN_S, open_plugin
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.system.event_loop import loop_factory


def check(config: Config, load_catalogs: KnownCatalogs) -> list[Finding]:
    """Open each plug-in as serving the config would, close it, and return the problems."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_check_all(config))


async def _check_all(config: Config) -> list[Finding]:
    return [finding async for finding in _check_each(config)]


async def _check_each(config: Config) -> AsyncIterator[Finding]:
    names = [group.name for group in config.groups]
    for number, settings in enumerate(plugins_of(config)):
        where = f"settings.middleware[{number}]"
        try:
            opened = await open_plugin(settings)
        except PluginError as exc:
            yield config_error(where, exc.message, exc.hint)
            continue
        await opened.close(CLOSE_WITHIN_S)
        yield Finding(Level.OK, where, f"plug-in `{settings.use}` can be opened")
        for glob in settings.servers:
            if names and not any(map(Globs((glob,)).matches, names)):
                yield warning(f"{where}.servers", f"`{glob}` matches no server", guess(glob, names))
