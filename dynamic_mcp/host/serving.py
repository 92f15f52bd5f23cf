"""A proxy that serves: its logins and its cache, the watch on its config, and its entry among the running ones."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config.read import ConfigState, ServedConfig
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Upgraded
from dynamic_mcp.features import table
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.proxy.first_client import wait_for_first_client, wait_for_greeting
from dynamic_mcp.proxy.gates import load_gates
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.installation import Installation, guard_imports
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.upstream.process.ending import terminate_all

if TYPE_CHECKING:
    from dynamic_mcp.host.http_control import HttpControl, HttpOverrides, Service
    from dynamic_mcp.host.observing import Observing
    from dynamic_mcp.host.reloader import Reloader
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.proxy.status import Kind
    from dynamic_mcp.proxy.workspaces import Workspaces

log = logging.getLogger("dynamic_mcp")

# How long requests in flight may take to finish after a signal.
FINISH_AFTER_SIGNAL_S = 1.0
# From the end of input to the end of the last server, whatever it does, and the least that servers get of it.
_EXIT_WITHIN_S = 4.4
_SERVERS_EXIT_WITHIN_S = 0.2
# Garbage is looked for once so many more objects were made than freed. The 700 of Python are fewer than a hundred
# calls in flight consist of, so it would be looked for again and again while there is none.
_GARBAGE_AFTER = 10_000


_CHECK_INSTALLATION_EVERY_S = 60.0
# How soon the only client of a process should have said hello.
_LISTED_WITHIN_S = 0.5
# What is loaded once that client has its answer.
_REST = (
    "dynamic_mcp.upstream.opener",
    "dynamic_mcp.proxy.search",
    "dynamic_mcp.proxy.calls",
    "dynamic_mcp.proxy.upstream_messages",
    "dynamic_mcp.proxy.message_rules",
    # what another version of the config may want, which must not be found missing when it is half applied
    "dynamic_mcp.proxy.allowed_lists",
    "dynamic_mcp.proxy.persons",
    "dynamic_mcp.proxy.profiles",
    "dynamic_mcp.proxy.prompts",
    "dynamic_mcp.proxy.completion",
    "dynamic_mcp.proxy.resources",
    "dynamic_mcp.proxy.transparent",
    "dynamic_mcp.session.batches",
    "dynamic_mcp.host.config_events",
)


class Origin(Struct, frozen=True):
    """Where a config comes from that is in no file: its name, and the command that logs in to a group of it."""

    label: str
    login_command: Callable[[str], str]


class Serving:
    """A proxy, its HTTP server if it has one, and what keeps its config up to date.

    A daemon has a socket; each of its clients has a workspace, except those over HTTP. The config is a file, which is
    watched, unless it has another `origin`. Without a `serving_log`, it serves in somebody else's application.
    After an upgrade of the program, one that can hand over is followed by a process of the new version.
    """

    def __init__(
        self,
        configs: ConfigState,
        serving_log: ServingLog | None,
        *,
        kind: Kind = "stdio",
        socket: str = "",
        http: HttpOverrides | None = None,
        origin: Origin | None = None,
        load_http: Callable[[], Callable[[Proxy], Service]] | None = None,
        can_hand_over: bool = False,
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
        self.proxy = Proxy(
            config,
            catalog_store=CatalogStore(cache / "catalogs"),
            open_logins=self._open_logins,
            vectors=cache / "vectors",
            state_folder=paths.state_dir(),
            has_base=kind != "daemon" or http is not None or config.http is not None,
        )
        self.served = ServedConfig(configs)
        self._overrides, self._load_http = http, load_http
        self._http: HttpControl | None = None
        self._observing: Observing | None = None
        if table.is_observed(config):
            self._observe().apply(config)
        if self.proxy.observers is not None:
            from dynamic_mcp.host.config_events import event_of_start

            self.proxy.note(event_of_start(configs))
        self._warnings = frozenset(self._find_warnings(config))
        # The order in which another version of the config takes hold.
        self.served.listeners += [
            *([serving_log.reload] if serving_log is not None else []),
            _log_change,
            self._prepare_http,
            self._reload_observers,
            self._reload_groups,
            self._reload_http,
        ]

    @property
    def config(self) -> Config:
        """The config that is served."""
        return self.served.state.base

    @cached_property
    def reloader(self) -> Reloader:
        """What watches the config, which begins once the first client has its answer."""
        from dynamic_mcp.host.reloader import Reloader

        return Reloader(self.served, self.proxy)

    @cached_property
    def workspaces(self) -> Workspaces:
        """The workspaces of a daemon's windows."""
        from dynamic_mcp.proxy.workspaces import Workspaces

        return Workspaces(self.served, self.proxy, on_new_files=self.reloader.watch.check_soon)

    @property
    def http(self) -> HttpControl:
        """What serves HTTP where, and while, that is wanted."""
        if self._http is None:
            from dynamic_mcp.host.http_control import HttpControl, load_service

            self._http = HttpControl(self.proxy, self._overrides, load=self._load_http or load_service)
        return self._http

    def find_http(self, config: Config) -> HttpControl | None:
        """Return what serves HTTP; None where nothing has wanted that so far, nor does this config."""
        is_wanted = self._http is not None or self._overrides is not None or config.http is not None
        return self.http if is_wanted else None

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the config and the entry among the running proxies up to date, until the end of the context.

        Raises ConfigError if the plug-ins of the config cannot be opened.
        """
        await self.open()
        if self._owns_process:
            guard_imports(self.installation)
            gc.freeze()  # what exists now stays to the end, so the garbage collector need not scan it again and again
            gc.set_threshold(_GARBAGE_AFTER)
            gc.enable()
        try:
            async with _background(self._publish(), *self._later_work()):
                yield
        finally:
            await self.close()

    async def _publish(self) -> None:
        """Keep the entry among the running proxies up to date."""
        if self._kind == "stdio":  # its client comes at once, and is answered before more is loaded
            await wait_for_greeting(self.proxy, _LISTED_WITHIN_S)
        from dynamic_mcp.observe.proxies import ProxyRegistry
        from dynamic_mcp.proxy.status import read_status

        config = self.config.file if self._origin is None else self._origin.label
        await ProxyRegistry(paths.state_dir() / "running").publish(
            lambda: read_status(
                self.proxy,
                config,
                configured=[group.name for group in self.config.groups],
                kind=self._kind,
                socket=self._socket,
                url="" if self._http is None else self._http.url,
                metrics="" if self._observing is None else self._observing.metrics_url,
            ),
            self.proxy.changed,
        )

    def _later_work(self) -> Iterator[Coroutine[object, object, None]]:
        if self._origin is None:
            yield self._watch_config()
        if self._owns_process:
            yield self._load_modules() if self._kind != "stdio" else self._load_rest()

    async def _watch_config(self) -> None:
        """Watch the config once the first client has its answer, or after a while if none says hello."""
        await wait_for_first_client(self.proxy)
        try:
            await self.reloader.watch.run()
        except (Upgraded, OSError) as exc:
            log.warning("%s is no longer watched: %s", self.config.file, exc)
        except Exception:
            log.exception("a bug: the config is no longer watched")

    async def _load_rest(self) -> None:
        """Load what a plain client may come to, which needs none of it for its first answer.

        What only some come to is loaded when they do: this process ends with its client, which an upgrade restarts.
        """
        await wait_for_first_client(self.proxy)
        for load in self._loads():
            try:
                load()  # some milliseconds at most; a thread would slow the loop down for longer
            except Upgraded:
                return
            except OSError as exc:  # no descriptor is free
                log.debug("not all can be loaded yet: %s", exc)
            await asyncio.sleep(0)
        gc.freeze()
        log.debug("loaded what a client may come to")

    def _loads(self) -> Iterator[Callable[[], object]]:
        """Yield what loads the modules that a plain client may come to, a few at a time."""
        yield from (partial(import_module, name) for name in _REST)
        yield partial(load_gates, self.config)

    async def _load_modules(self) -> None:
        from dynamic_mcp.host.loading import load_modules  # not needed by one that serves one client

        await wait_for_first_client(self.proxy)
        serves_http = self._overrides is not None or self.config.http is not None
        await load_modules(self.config, serves_http=serves_http, can_hand_over=self._can_hand_over)
        gc.freeze()
        while not self.installation.has_changed():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(_CHECK_INSTALLATION_EVERY_S)
        log.warning("dynamic-mcp was upgraded while it runs; what runs is the old version until it is restarted")

    async def open(self) -> None:
        """Load what a client may come to, and open the plug-ins of the config, before the first client comes.

        Raises ConfigError, and then all is closed.
        """
        if self._is_open:
            return
        try:
            if self._kind != "stdio":  # its first call may find no descriptor free to load anything with
                for load in self._loads():
                    load()
            await self.proxy.open(self.config)
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
        """Let go of what has been opened; the proxy is closed before, by `end_servers`."""
        if self._http is not None:
            await self._http.finish(0)
        if self._kind == "daemon":
            self.workspaces.close()
        if self._logins is not None:
            await self._logins.close()
        if self._observing is not None:
            await self._observing.close()

    async def end_servers(self, ended_at: float) -> None:
        """End every server, within a bound that began at this time of the event loop."""
        passed_s = asyncio.get_running_loop().time() - ended_at
        terminate_all(max(_SERVERS_EXIT_WITHIN_S, _EXIT_WITHIN_S - passed_s))
        await self.proxy.close()

    def _open_logins(self) -> Logins:
        from dynamic_mcp.oauth.user_logins import login_command, open_logins

        command = partial(login_command, self.config.file) if self._origin is None else self._origin.login_command
        self._logins = open_logins(command, may_open_browser=True)
        return self._logins

    def _observe(self) -> Observing:
        if self._observing is None:
            from dynamic_mcp.host.observing import Observing

            self._observing = Observing(self.proxy, self.served.reloads)
        return self._observing

    # --- another version of the config -----------------------------------------------------------------

    def _prepare_http(self, old: ConfigState, new: ConfigState) -> None:
        if (http := self.find_http(new.base)) is not None:
            http.prepare_reload(old, new)

    def _reload_http(self, old: ConfigState, new: ConfigState) -> None:
        if (http := self.find_http(new.base)) is not None:
            http.reload(old, new)

    def _reload_observers(self, old: ConfigState, new: ConfigState) -> None:
        if self._observing is not None or table.is_observed(new.base):
            self._observe().reload(old, new)

    def _reload_groups(self, old: ConfigState, new: ConfigState) -> None:
        """Serve the groups of another version, and log the warnings that are new."""
        warnings = dict.fromkeys(self._find_warnings(new.base))
        for warning in warnings:
            if warning not in self._warnings:
                log.warning("%s: %s", new.base.file, warning)
        self._warnings = frozenset(warnings)
        if self._kind == "daemon":
            self.workspaces.apply(old, new)
        else:
            self.proxy.apply(new.base)

    def _find_warnings(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with the config, as far as the proxy's own environment counts."""
        yield from config.distrust
        if self.proxy.has_base:
            yield from config.warnings


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
