"""The config that a process serves now, and who is told of each new version."""

from collections.abc import Callable

from msgspec.structs import replace

from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.workspace import Workspace

Listener = Callable[[ConfigState, ConfigState], None]


class ServedConfig:
    """`state` is the version that is served. `listeners` take each new one, after the old one, in this order."""

    def __init__(self, state: ConfigState) -> None:
        self.state = state
        self.listeners: list[Listener] = []

    def apply(self, new: ConfigState) -> None:
        """Serve another version, which was resolved at least for every known workspace."""
        old = self.state
        self.state = replace(new, by_workspace={each: new.by_workspace[each] for each in old.by_workspace})
        for listener in self.listeners:
            listener(old, self.state)

    def add_workspace(self, workspace: Workspace, config: Config) -> None:
        """Serve a workspace, too. It is no new version."""
        self.state = replace(self.state, by_workspace={**self.state.by_workspace, workspace: config})

    def remove_workspace(self, workspace: Workspace) -> None:
        """Forget a workspace."""
        others = {each: config for each, config in self.state.by_workspace.items() if each is not workspace}
        self.state = replace(self.state, by_workspace=others)
