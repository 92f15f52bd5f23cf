"""Checks that what a replica serves may be served by several of them."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, config_error
from dynamic_mcp.features.cluster.config import Cluster


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about servers of which each replica would run a copy."""
    if config.settings_of("cluster", Cluster) is None:
        return
    for group in config.groups:
        if isinstance(group.upstream, Program) and not group.upstream.runs_in_each_replica:
            what = "each replica would run a copy of this server, and a client's calls may go to any of them"
            hint = (
                "serve it in one process of its own, and put the URL of that here; if each replica may run one, write"
                ' `"home": true`; see docs/scaling.md'
            )
            yield config_error(f"mcpServers.{group.name}", what, hint)
