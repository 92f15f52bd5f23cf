"""Finds servers by name for `add`, through a feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

F = TypeVar("F", bound=Callable[..., Any])


class ServerSource(Protocol):
    """A module of a feature that finds servers by their names."""

    OPTIONS: Mapping[str, str]  # its options of `add`, by parameter name
    METAVAR: str  # the placeholder for a name in the usage
    HELP: str  # the help for `add` with only a name
    EXAMPLE: str

    def add_options(self, command: F) -> F:
        """Add the options to the command."""

    def add(self, context: Invocation, name: str, given: Mapping[str, Any]) -> int:
        """Add a server to the config; return the exit code. `given` has the values of all options of `add`."""

    def forget(self, context: Invocation, entry: Mapping[str, Any]) -> None:
        """Delete the files of a server whose entry was removed from the config."""


def find_source() -> ServerSource | None:
    """Return the source of servers, if a feature has one."""
    for feature in FEATURES:
        if feature.server_source:
            return cast(ServerSource, feature.load(feature.server_source))
    return None
