"""The workspaces of the clients: each is resolved once, and known while it is in use or may be used again.

Of the unused ones, only the one that a window has left last stays, so that a window that is closed and opened
again finds its servers running; and the one that a command has left last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from dynamic_mcp.config.read import ConfigState, ServedConfig
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.proxy.proxy import Proxy

log = logging.getLogger(__name__)

_Content = tuple[str, frozenset[tuple[str, str]]]


class Workspaces:
    """The workspaces that the `served` config is resolved for, and that the proxy serves.

    `on_new_files` is called when a workspace has env files that no other one has.
    """

    def __init__(self, served: ServedConfig, proxy: Proxy, on_new_files: Callable[[], None] = lambda: None) -> None:
        self._served = served
        self._proxy = proxy
        self._on_new_files = on_new_files
        self._by_content: dict[_Content, Workspace] = {}
        self._sessions: Counter[Workspace] = Counter()
        self._arrivals: dict[Workspace, asyncio.Task[None]] = {}
        self._vacated: dict[bool, Workspace] = {}  # the last that a window has left, and a command
        self._logged = set(self._warnings())

    async def enter(self, directory: str, environment: Mapping[str, str]) -> Workspace:
        """Return the workspace for a session that begins; `leave` it once the session is closed.

        `directory` is absolute. The config is resolved in a thread, for as long as its env files take to read.
        """
        content = directory, frozenset(environment.items())
        workspace = self._by_content.get(content)
        if workspace is None:
            workspace = self._by_content[content] = Workspace(directory, dict(environment))
        self._sessions[workspace] += 1
        self._vacated = {by: each for by, each in self._vacated.items() if each is not workspace}
        if workspace not in self._served.state.by_workspace:
            if workspace not in self._arrivals:
                task = self._arrivals[workspace] = asyncio.create_task(self._arrive(workspace))
                task.add_done_callback(lambda _: self._arrivals.pop(workspace))
            try:
                await asyncio.shield(self._arrivals[workspace])
            except BaseException:
                self.leave(workspace)
                raise
        return workspace

    def leave(self, workspace: Workspace, *, is_command: bool = False) -> None:
        """Count one session less; call this after the session is closed."""
        self._sessions[workspace] -= 1
        if self._sessions[workspace] > 0:
            return
        del self._sessions[workspace]
        if workspace not in self._served.state.by_workspace:  # no session waits for it any more
            self._forget(workspace)
            return
        older = self._vacated.get(is_command)
        self._vacated[is_command] = workspace
        if older is not None:
            self._forget(older)

    def apply(self, old: ConfigState, new: ConfigState) -> None:
        """Have the proxy serve another version of the config."""
        warnings = list(self._warnings())
        self._log(warnings)
        self._logged = set(warnings)
        self._proxy.apply(new.base, new.by_workspace)

    def close(self) -> None:
        """Resolve nothing any more."""
        for task in self._arrivals.values():
            task.cancel()

    async def _arrive(self, workspace: Workspace) -> None:
        parsed = None
        while parsed is not self._served.state.parsed:  # another version may be applied meanwhile
            parsed = self._served.state.parsed
            config = await asyncio.to_thread(parsed.resolve_for, workspace)
        files = self._served.state.files
        self._served.add_workspace(workspace, config)
        self._log(self._warnings_of(workspace, config))
        self._proxy.add_workspace(workspace, config)
        if not self._served.state.files <= files:
            self._on_new_files()

    def _forget(self, workspace: Workspace) -> None:
        self._by_content = {content: each for content, each in self._by_content.items() if each is not workspace}
        if workspace in self._arrivals:
            self._arrivals[workspace].cancel()
        if workspace in self._served.state.by_workspace:
            self._served.remove_workspace(workspace)
            self._proxy.remove_workspace(workspace)

    # --- warnings --------------------------------------------------------------------------------------

    def _log(self, warnings: Iterable[str]) -> None:
        """Log what was not logged yet for this version of the config."""
        for warning in warnings:
            if warning not in self._logged:
                self._logged.add(warning)
                log.warning("%s", warning)

    def _warnings(self) -> Iterator[str]:
        for workspace, config in self._served.state.by_workspace.items():
            yield from self._warnings_of(workspace, config)

    def _warnings_of(self, workspace: Workspace, config: Config) -> Iterator[str]:
        return (f"{config.file}, for {workspace.directory}: {warning}" for warning in config.warnings)
