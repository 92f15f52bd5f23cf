"""A serving proxy: its logins and cache, the watch on its config, and its entry in the registry of proxies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from dynamic_mcp.config.read import ConfigState, Listener, ServedConfig
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Upgraded
from dynamic_mcp.features import table
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.proxy.gates import load_gates
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.installation import Installation, guard_imports
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.upstream.ending import terminate_all

if TYPE_CHECKING:
    from pathlib import Path

    from dynamic_mcp.host.homes import Homes
    from dynamic_mcp.host.http_control import HttpControl, HttpOverrides, Service
    from dynamic_mcp.host.observing import Observing
    from dynamic_mcp.host.reloader import Reloader
    from dynamic_mcp.host.systemd import Notifier
    from dynamic_mcp.host.ui_listener import UiListener
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.observe.proxies import ProxyStatus
    from dynamic_mcp.proxy.status import Kind
    from dynamic_mcp.proxy.workspaces import Workspaces
    from dynamic_mcp.system.worker import WorkerIdentity

log = logging.getLogger("dynamic_mcp")
T = TypeVar("T")

# The time for requests in flight to finish after a signal.
FINISH_AFTER_SIGNAL_S = 1.0
# The time limit from the end of input to the end of the last server, and the servers' minimum share of it.
_EXIT_WITHIN_S = 4.4
_SERVERS_EXIT_WITHIN_S = 0.2
# The threshold of the garbage collector, in objects created but not freed. Python's 700 are fewer than a hundred
# calls in flight consist of, so it would run again and again without finding garbage.
_GARBAGE_AFTER = 10_000


_CHECK_INSTALLATION_EVERY_S = 60.0
# The time for the only client of a process to initialize.
_LISTED_WITHIN_S = 0.5
# The modules to load after that client's first answer.
_REST = (
    "dynamic_mcp.upstream.opener",
    "dynamic_mcp.proxy.search",
    "dynamic_mcp.proxy.calls",
    "dynamic_mcp.proxy.upstream_messages",
    "dynamic_mcp.proxy.message_rules",
    # for another version of the config: an import must not fail while it is half applied
    "dynamic_mcp.proxy.allowed_lists",
    "dynamic_mcp.proxy.connected_users",
    "dynamic_mcp.proxy.profiles",
    "dynamic_mcp.proxy.prompts",
    "dynamic_mcp.proxy.completion",
    "dynamic_mcp.proxy.resources",
    "dynamic_mcp.proxy.transparent",
    "dynamic_mcp.session.batches",
    "dynamic_mcp.host.config_events",
)


def find_notifier() -> Notifier | None:
    """Return what tells systemd of this service; None if nobody wants to hear of it."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from dynamic_mcp.host.systemd import open_notifier

    return open_notifier(os.environ)


class ConfigSource(Struct, frozen=True):
    """A source of a config other than a file: its name, and the command for logins to one of its groups."""

    label: str
    login_command: Callable[[str], str]


class Serving:
    """A proxy, its HTTP server if any, and the tasks that keep its config up to date.

    A daemon has a socket; each of its clients has a workspace, except those over HTTP. The config is a watched file,
    unless it has another `origin`. Without a `serving_log`, it serves inside another application. After an upgrade of
    the program, a process that can hand over is followed by one of the new version. A `worker` serves the config
    together with others.
    """

    def __init__(
        self,
        configs: ConfigState,
        serving_log: ServingLog | None,
        *,
        kind: Kind = "stdio",
        socket: str = "",
        http: HttpOverrides | None = None,
        origin: ConfigSource | None = None,
        load_http: Callable[[], Callable[[Proxy], Service]] | None = None,
        can_hand_over: bool = False,
        worker: WorkerIdentity | None = None,
    ) -> None:
        config, cache = configs.base, paths.cache_dir()
        self._kind: Kind = kind
        self._owns_process = serving_log is not None
        self._can_hand_over = can_hand_over
        self.installation = Installation()
        self._is_open = False
        self._socket = socket
        self._origin = origin
        self._logins: Logins | None = None
        self._worker = worker
        self._homes = None if worker is None else _make_homes(worker, config, cache)
        self.proxy = Proxy(
            self._placed(config),
            catalog_store=CatalogStore(cache / "catalogs"),
            open_logins=self._open_logins,
            vectors=cache / "vectors",
            state_folder=paths.state_dir(),
            has_base=kind != "daemon" or http is not None or config.http is not None,
        )
        self.served = ServedConfig(configs)
        self._overrides, self._load_http = http, load_http
        self._http: HttpControl | None = None
        self._ui: UiListener | None = None
        self._observing: Observing | None = None
        if (observing := self._find_observing(config)) is not None:
            observing.apply(config)
        if self.proxy.observers is not None:
            from dynamic_mcp.host.config_events import event_of_start

            self.proxy.note(event_of_start(configs))
        self._warnings = frozenset(self._find_warnings(config))
        # The order in which another version of the config is applied.
        self.served.listeners += [
            *([serving_log.reload] if serving_log is not None else []),
            _log_change,
            _pass_on(self.find_http, lambda http: http.prepare_reload),
            _pass_on(self._find_observing, lambda observing: observing.reload),
            self._reload_groups,
            _pass_on(self.find_http, lambda http: http.reload),
            self._reload_ui,
        ]

    @property
    def config(self) -> Config:
        return self.served.state.base

    @cached_property
    def reloader(self) -> Reloader:
        """The watcher of the config, which starts after the first client's answer."""
        from dynamic_mcp.host.reloader import Reloader

        return Reloader(self.served, self.proxy)

    @cached_property
    def workspaces(self) -> Workspaces:
        from dynamic_mcp.proxy.workspaces import Workspaces

        return Workspaces(self.served, self.proxy, on_new_files=self.reloader.watch.check_soon)

    @property
    def http(self) -> HttpControl:
        """The control of the HTTP server, created on first use."""
        if self._http is None:
            from dynamic_mcp.host.http_control import HttpControl, load_service

            load = self._load_http or partial(load_service, self._worker)
            self._http = HttpControl(self.proxy, self._overrides, load=load)
        return self._http

    def find_http(self, config: Config) -> HttpControl | None:
        """Return the control of the HTTP server; None if neither this config nor an earlier one has wanted HTTP."""
        is_wanted = self._http is not None or self._overrides is not None or config.http is not None
        is_wanted &= self._kind != "ui"
        return self.http if is_wanted else None

    @property
    def is_watched(self) -> bool:
        """Return whether a browser has the page open that this process serves alone."""
        return self._ui is not None and self._ui.is_watched

    async def open_ui(self) -> str:
        """Serve the page, if it is not served yet; return the URL that its path is below. Raises DynamicMcpError."""
        if not self.proxy.has_base:  # a person at the page has no workspace
            self.proxy.has_base = True
            self._reload_groups(self.served.state, self.served.state)
        if self._ui is None:
            from dynamic_mcp.host.ui_listener import UiListener

            self._ui = UiListener(self.proxy)
        return await self._ui.open(self.config)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the config and the entry in the registry up to date, until the end of the context.

        Raises ConfigError if the plug-ins of the config cannot be opened.
        """
        await self.open()
        if self._owns_process:
            guard_imports(self.installation)
            gc.freeze()  # these objects stay to the end, so the garbage collector need not scan them again and again
            gc.set_threshold(_GARBAGE_AFTER)
            gc.enable()
        try:
            async with _background(self._publish(), *self._later_work()):
                yield
        finally:
            await self.close()

    async def _publish(self) -> None:
        """Keep the entry in the registry of proxies up to date."""
        if self._kind == "stdio":  # its client connects at once, and is answered before more modules are loaded
            await self.proxy.wait_for_greeting(_LISTED_WITHIN_S)
        from dynamic_mcp.observe.proxies import ProxyRegistry
        from dynamic_mcp.proxy.status import read_status

        config = self.config.file if self._origin is None else self._origin.label

        def read() -> ProxyStatus:
            status = read_status(
                self.proxy,
                config,
                configured=[group.name for group in self.config.groups],
                kind=self._kind,
                socket=self._socket,
                url="" if self._http is None else self._http.url,
                metrics="" if self._observing is None else self._observing.metrics_url,
                reloads=self.served.reloads,
            )
            return status if self._homes is None else self._homes.describe(status)

        await ProxyRegistry(paths.state_dir() / "running").publish(read, self.proxy.changed)

    def _later_work(self) -> Iterator[Coroutine[object, object, None]]:
        if self._origin is None:
            yield self._watch_config()
        if self._kind != "stdio":
            yield self._load_modules()
        elif self._owns_process:
            yield self._load_rest()

    async def _watch_config(self) -> None:
        """Watch the config after the first client's answer, or after a while if no client initializes."""
        await self.proxy.wait_for_first_client()
        try:
            await self.reloader.watch.run()
        except (Upgraded, OSError) as exc:
            log.warning("%s is no longer watched: %s", self.config.file, exc)
        except Exception:
            log.exception("a bug: the config is no longer watched")

    async def _load_rest(self) -> None:
        """Load the modules that most clients need, but not for their first answer.

        Rarely used modules are loaded on demand: this process ends with its client, which an upgrade restarts.
        """
        await self.proxy.wait_for_first_client()
        for load in self._loads():
            try:
                load()  # takes a few milliseconds; a thread would slow the loop down for longer
            except Upgraded:
                return
            except OSError as exc:  # there is no free descriptor
                log.debug("some modules cannot be loaded yet: %s", exc)
            await asyncio.sleep(0)
        gc.freeze()
        log.debug("preloaded the modules for clients")

    def _loads(self) -> Iterator[Callable[[], object]]:
        """Yield functions that load the modules for most clients, a few at a time."""
        yield from (partial(import_module, name) for name in _REST)
        yield partial(load_gates, self.config)

    async def _load_modules(self) -> None:
        from dynamic_mcp.host.loading import load_modules  # not needed with a single client

        await self.proxy.wait_for_first_client()
        serves_http = self._overrides is not None or self.config.http is not None
        await load_modules(self.config, serves_http=serves_http, can_hand_over=self._can_hand_over)
        if self._owns_process:
            gc.freeze()
        while not self.installation.has_changed():  # noqa: ASYNC110 - files have no events
            await asyncio.sleep(_CHECK_INSTALLATION_EVERY_S)
        log.warning("dynamic-mcp was upgraded; this process runs the old version until it is restarted")

    async def open(self) -> None:
        """Load the modules that clients need, and open the plug-ins of the config, before the first client connects.

        Raises ConfigError, after closing everything.
        """
        if self._is_open:
            return
        try:
            if self._kind != "stdio":  # there may be no free descriptor for imports at the first call
                for load in self._loads():
                    load()
            if self._homes is not None:
                await self._homes.open()
            await self.proxy.open(self._placed(self.config))
        except BaseException:
            await self.close()
            await self.proxy.close()
            raise
        self._is_open = True

    def reload(self) -> None:
        """Read the config and the certificate again."""
        self.reloader.watch.reload()
        if self._http is not None:
            self._http.reload_certificate()

    async def close(self) -> None:
        """Close all resources, after `end_servers` has closed the proxy."""
        if self._http is not None:
            await self._http.finish(0)
        if self._ui is not None:
            await self._ui.close()
        if self._kind == "daemon":
            self.workspaces.close()
        if self._logins is not None:
            await self._logins.close()
        if self._observing is not None:
            await self._observing.close()

    async def end_servers(self, ended_at: float) -> None:
        """End every server, within a bound from this time of the event loop."""
        passed_s = asyncio.get_running_loop().time() - ended_at
        terminate_all(max(_SERVERS_EXIT_WITHIN_S, _EXIT_WITHIN_S - passed_s))
        await self.proxy.close()
        if self._homes is not None:
            await self._homes.close()

    def _open_logins(self) -> Logins:
        from dynamic_mcp.oauth.user_logins import login_command, open_logins

        command = partial(login_command, self.config.file) if self._origin is None else self._origin.login_command
        self._logins = open_logins(command, may_open_browser=True)
        return self._logins

    def _find_observing(self, config: Config) -> Observing | None:
        """Return the observers of requests; None if neither this config nor an earlier one has wanted any."""
        if self._observing is None and table.is_observed(config):
            from dynamic_mcp.host.observing import Observing

            self._observing = Observing(self.proxy, self.served.reloads, worker=self._worker)
        return self._observing

    # --- another version of the config -----------------------------------------------------------------

    def _reload_ui(self, old: ConfigState, new: ConfigState) -> None:
        if self._ui is not None:
            self._ui.apply(new.base)

    def _reload_groups(self, old: ConfigState, new: ConfigState) -> None:
        """Serve the groups of another version, and log new warnings."""
        warnings = dict.fromkeys(self._find_warnings(new.base))
        for warning in warnings:
            if warning not in self._warnings:
                log.warning("%s: %s", new.base.file, warning)
        self._warnings = frozenset(warnings)
        if self._kind == "daemon":
            self.workspaces.apply(old, new)
        else:
            if self._homes is not None:
                self._homes.apply(new.base)
            self.proxy.apply(self._placed(new.base))

    def _placed(self, config: Config) -> Config:
        """Return the config for the clients of this process: a worker reaches some servers at their homes."""
        return config if self._homes is None else self._homes.place(config)

    def _find_warnings(self, config: Config) -> Iterator[str]:
        """Yield the warnings about the config, as far as the proxy's own environment matters."""
        yield from config.file_warnings
        if self.proxy.has_base:
            yield from config.warnings


def _make_homes(worker: WorkerIdentity, config: Config, cache: Path) -> Homes:
    from dynamic_mcp.host.homes import Homes

    return Homes(worker, config, cache / "catalogs")


def _pass_on(find: Callable[[Config], T | None], listener_of: Callable[[T], Listener]) -> Listener:
    """Return a listener that passes a change of the config on to a part, if there is one."""

    def on_change(old: ConfigState, new: ConfigState) -> None:
        if (part := find(new.base)) is not None:
            listener_of(part)(old, new)

    return on_change


def _log_change(old: ConfigState, new: ConfigState) -> None:
    log.info("%s has changed: %s", new.base.file, pluralize(len(new.base.groups), "group"))


@contextlib.asynccontextmanager
async def _background(*works: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run these coroutines in the background, and cancel them at the end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
