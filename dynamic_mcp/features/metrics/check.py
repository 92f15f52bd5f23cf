"""Checks metrics: whether their address can be used."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs
from dynamic_mcp.doctor.listening import check_address, is_served
from dynamic_mcp.features.metrics.config import Metrics


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the address of the metrics."""
    metrics = config.settings_of("metrics", Metrics)
    if metrics is not None:
        yield from check_address("settings.metrics.listen", metrics.address, is_served=is_served(config))
