"""Whether servers work: each is started or reached once, all at the same time, and what comes of it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dynamic_mcp.cli.client import client, each_group
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.progress import Waiting
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, LoginNeeded, TimedOut
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.importer.importing import config_of
from dynamic_mcp.importer.merge import Entry
from dynamic_mcp.system.text import counted

# A first `npx` or `uvx` downloads the server; longer than this nobody waits at a terminal.
WITHIN_S = 60.0


@dataclass(frozen=True)
class Trial:
    """What came of trying one server; `is_broken` where another try cannot be expected to end otherwise."""

    said: str
    is_ok: bool = False
    is_broken: bool = False


def tried(out: Output, servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]) -> dict[str, Trial]:
    """Try the servers as serving that file would, the disabled ones not; return what came of each by name.

    `environment` fills in their variables.
    """
    enabled = {name: entry for name, entry in servers.items() if entry.get("enabled") is not False}
    if not enabled:
        return {}
    config = config_of(enabled, file, environment)
    with out.waiting("trying", list(enabled)) as waiting:
        return run(_tried(config, out, waiting))


async def _tried(config: Config, out: Output, waiting: Waiting) -> dict[str, Trial]:
    async with client(config, out) as made:
        trials = await each_group(made, waiting, _try)
        return {group.name: trial for group, trial in zip(made.proxy.groups, trials, strict=True)}


async def _try(group: Group) -> Trial:
    try:
        async with asyncio.timeout(WITHIN_S):
            count = len((await group.catalog()).tools)
    except (TimeoutError, TimedOut):
        return Trial(f"not ready within {WITHIN_S:g} s; it may still be downloading")
    except LoginNeeded as exc:
        return Trial(f"{exc.reason}: {exc.hint}")
    except DynamicMcpError as exc:
        return Trial(getattr(exc, "reason", exc.message), is_broken=True)
    return Trial(counted(count, "tool"), is_ok=True)
