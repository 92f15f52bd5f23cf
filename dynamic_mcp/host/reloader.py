"""Applies each new version of the config file to the proxy that serves it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from dynamic_mcp.config.read import ConfigSet
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.watch import ConfigWatcher
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.host.http_control import HttpControl
from dynamic_mcp.host.observing import Observing
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.proxy.first_client import wait_for_first_client
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.workspaces import Workspaces
from dynamic_mcp.system.text import pluralize

log = logging.getLogger("dynamic_mcp")


class Reloader:
    """Applies each new version of the config file to the proxy and to its HTTP server."""

    def __init__(
        self,
        proxy: Proxy,
        configs: ConfigSet,
        serving_log: ServingLog | None,
        http: HttpControl,
        observing: Observing,
    ) -> None:
        self.workspaces = Workspaces(configs, proxy, on_new_files=lambda: self.watch.check_soon())
        self.watch = ConfigWatcher(
            lambda: self.workspaces.configs,
            os.environ,
            on_config=self._apply,
            on_error=self._report,
            on_repair=self._report_repair,
            prepare=self._prepare,
        )
        self.on_config: Callable[[Config], None] = lambda config: None
        """Called with each new version, after it was applied."""
        self._proxy = proxy
        self._log = serving_log
        self._http = http
        self._observing = observing

    async def run(self) -> None:
        """Watch the file once the first client has its answer, or after a while if none says hello."""
        await wait_for_first_client(self._proxy)
        try:
            await self.watch.run()
        except Exception:
            log.exception("a bug: the config is no longer watched")

    async def _prepare(self, configs: ConfigSet) -> None:
        """Open what a version needs before it is applied. Raises ConfigError, and then nothing has changed."""
        await self._proxy.prepare(configs.base)

    def _apply(self, configs: ConfigSet) -> None:
        if self._log is not None:
            self._log.configure(configs.base.log)
        log.info("%s has changed: %s", configs.base.file, pluralize(len(configs.base.groups), "group"))
        self._http.prepare(configs.base)
        self._observe(configs)
        self.workspaces.apply(configs)
        self._http.apply(configs.base)
        self._observing.reloads.note_success()
        self.on_config(configs.base)

    def _observe(self, configs: ConfigSet) -> None:
        """Observe as this version says, and tell of the change also those who do not observe any more."""
        before, observers = self.workspaces.configs, self._proxy.observers
        if observers is not None and before.base.audit != configs.base.audit:
            self._note(before, configs)
        self._observing.apply(configs.base)
        if observers is None or before.base.audit == configs.base.audit or configs.base.audit is not None:
            self._note(before, configs)

    def _note(self, before: ConfigSet, after: ConfigSet) -> None:
        if self._proxy.observers is not None:
            from dynamic_mcp.host.config_events import events_of_change

            for event in events_of_change(before, after):
                self._proxy.note(event)

    def _report(self, error: ConfigError) -> None:
        log.error("the config was not reloaded: %s", error)
        self._observing.reloads.note_failure()
        if self._proxy.observers is not None:
            from dynamic_mcp.host.config_events import event_of_refusal

            self._proxy.note(event_of_refusal(error))
        self._proxy.complain(f"the config was not reloaded: {error}")

    def _report_repair(self) -> None:
        """Tell the clients that heard of the error."""
        self._proxy.complain("the config is valid again", level="notice")
