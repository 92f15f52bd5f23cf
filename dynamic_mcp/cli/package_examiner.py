"""Says where the packages of new servers come from, through a feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from dynamic_mcp.cli.server_source import F
from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

Entries = Mapping[str, Mapping[str, object]]


class PackageExaminer(Protocol):
    """A module of a feature that knows what packages are and where they come from."""

    def add_options(self, command: F) -> F:
        """Add the option `--pin` to `add`, as `pin`."""

    def examine(self, context: Invocation, entries: Entries, *, pin: bool = False) -> dict[str, dict[str, object]]:
        """Print what is known of the packages of entries, by the names of the servers; return the entries.

        With `pin`, they get the exact version of now. Raises DynamicMcpError for a package that is not what is said
        of it, or if a version is to be pinned and cannot be.
        """


def find_examiner() -> PackageExaminer | None:
    """Return what examines packages, if a feature does."""
    for feature in FEATURES:
        if feature.packages:
            return cast(PackageExaminer, feature.load(feature.packages))
    return None


def examine_packages(context: Invocation, entries: Entries, *, pin: bool = False) -> dict[str, dict[str, object]]:
    """Print what is known of the packages of entries; return the entries, with `pin` at their versions of now.

    Raises DynamicMcpError.
    """
    examiner = find_examiner()
    if examiner is None:
        return {name: dict(entry) for name, entry in entries.items()}
    return examiner.examine(context, entries, pin=pin)
