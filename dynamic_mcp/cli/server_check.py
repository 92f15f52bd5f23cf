"""Checks whether servers work by connecting to each of them once, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dynamic_mcp.cli.client import for_each_group
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.own_client import open_own_client
from dynamic_mcp.cli.progress import Progress
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, LoginNeeded, TimedOut
from dynamic_mcp.importer.convert.merge import Entry
from dynamic_mcp.importer.planner import build_config
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.text import pluralize

# The first `npx` or `uvx` downloads the server; nobody waits longer than this at a terminal.
WITHIN_S = 60.0


@dataclass(frozen=True)
class CheckResult:
    """The result of connecting to one server; `is_broken` means that another attempt will not help."""

    summary: str
    is_ok: bool = False
    is_broken: bool = False


def check_servers(
    this: Invocation, servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]
) -> dict[str, CheckResult]:
    """Connect to the enabled servers as serving `file` would; return the results by name.

    `environment` fills in their variables.
    """
    enabled = {name: entry for name, entry in servers.items() if entry.get("enabled") is not False}
    if not enabled:
        return {}
    config = build_config(enabled, file, environment)
    with this.out.progress("trying", list(enabled)) as progress:
        return run(_check_all(this, config, progress))


async def _check_all(this: Invocation, config: Config, progress: Progress) -> dict[str, CheckResult]:
    async with open_own_client(this, config) as client:
        results = await for_each_group(client, progress, _check)
        return {group.name: result for group, result in zip(client.groups, results, strict=True)}


async def _check(group: ClientGroup) -> CheckResult:
    try:
        async with asyncio.timeout(WITHIN_S):
            count = len((await group.catalog()).tools)
    except (TimeoutError, TimedOut):
        return CheckResult(f"not ready within {WITHIN_S:g} s; it may still be downloading")
    except LoginNeeded as exc:
        return CheckResult(f"{exc.reason}: {exc.hint}")
    except DynamicMcpError as exc:
        return CheckResult(getattr(exc, "reason", exc.message), is_broken=True)
    return CheckResult(pluralize(count, "tool"), is_ok=True)
