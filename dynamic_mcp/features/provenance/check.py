"""Names the servers whose packages float: each start may run another version than the last. One finding for all."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level
from dynamic_mcp.features.provenance.packages import PackageUse
from dynamic_mcp.features.provenance.probe import list_packages
from dynamic_mcp.system.text import one_line, pluralize

_MOST_NAMED = 5


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the finding about servers that name no exact version of their package."""
    floating = [
        package.server
        for package in list_packages(config)
        if isinstance(use := package.use, PackageUse) and not use.is_fixed
    ]
    if floating:
        named = ", ".join(f"`{one_line(each)}`" for each in floating[:_MOST_NAMED])
        rest = f" and {pluralize(len(floating) - _MOST_NAMED, 'other')}" if len(floating) > _MOST_NAMED else ""
        verb = "names" if len(floating) == 1 else "name"
        yield Finding(
            Level.NOTE,
            "mcpServers",
            f"{named}{rest} {verb} no exact version, so that each start runs what is newest then",
            "`dynamic-mcp packages pin` writes the versions of today into the config",
        )
