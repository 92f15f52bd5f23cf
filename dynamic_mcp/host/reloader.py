"""Watches the config of a serving proxy, and reports versions that cannot be served."""

from __future__ import annotations

import logging
import os

from dynamic_mcp.config.read import ConfigState, ServedConfig
from dynamic_mcp.config.watch import ConfigWatcher
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.proxy.proxy import Proxy

log = logging.getLogger("dynamic_mcp")


class Reloader:
    """Applies each valid version of the config; an invalid one is reported to the log, the clients and observers."""

    def __init__(self, served: ServedConfig, proxy: Proxy) -> None:
        self.watch = ConfigWatcher(
            served, os.environ, on_error=self._report, on_repair=self._report_repair, prepare=self._prepare
        )
        self._proxy = proxy
        self._reloads = served.reloads

    async def _prepare(self, configs: ConfigState) -> None:
        """Open the resources of a version before it is applied. Raises ConfigError, and then nothing has changed."""
        await self._proxy.prepare(configs.base)

    def _report(self, error: ConfigError) -> None:
        log.error("the config was not reloaded: %s", error)
        self._reloads.record_failure(error.problem)
        self._proxy.changed.set()
        if self._proxy.observers is not None:
            from dynamic_mcp.host.config_events import event_of_refusal

            self._proxy.note(event_of_refusal(error))
        self._proxy.complain(f"the config was not reloaded: {error}")

    def _report_repair(self) -> None:
        """Notify the clients that received the error."""
        self._reloads.record_repair()
        self._proxy.changed.set()
        self._proxy.complain("the config is valid again", level="notice")
