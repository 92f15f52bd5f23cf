"""The findings of `check` and `doctor` about the audit log, telemetry and addresses, where the config has any."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dynamic_mcp.system import paths

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.doctor.findings import Finding


def check_observation(config: Config) -> list[Finding]:
    """Return the findings that connect to nothing."""
    findings: list[Finding] = []
    if config.audit is not None:
        from dynamic_mcp.doctor.audit import check_audit

        findings += check_audit(config.audit, paths.state_dir())
    if config.metrics is not None or config.http is not None:
        from dynamic_mcp.doctor.listening import check_addresses

        findings += check_addresses(config, is_served=_is_served(config))
    return findings


async def check_collector(config: Config) -> list[Finding]:
    """Return whether the collector of telemetry can be reached, if there is one."""
    if config.telemetry is None:
        return []
    from dynamic_mcp.doctor.telemetry import check_endpoint

    return await check_endpoint(config.telemetry, os.environ)


def _is_served(config: Config) -> bool:
    from dynamic_mcp.observe.proxies import ProxyRegistry

    running = ProxyRegistry(paths.state_dir() / "running").list_proxies()
    return any(each.status.config == str(config.file) for each in running)
