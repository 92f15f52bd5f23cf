"""Checks of metrics: whether their address can be used."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs
from dynamic_mcp.doctor.listening import check_address, is_served


def check(config: Config, known: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the address of the metrics."""
    if config.metrics is not None:
        yield from check_address("settings.metrics.listen", config.metrics.address, is_served=is_served(config))
