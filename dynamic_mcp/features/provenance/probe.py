"""Looks up the packages of servers for `doctor`, where the servers start and ask the same registries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.doctor.findings import Finding
from dynamic_mcp.features.provenance.examination import ServerPackage, examine, list_findings

# What a person says to npm and uv counts here too, also where a server does not inherit it.
_OFFLINE = ("npm_config_offline", "UV_OFFLINE", "PIP_NO_INDEX")


async def probe(config: Config) -> list[Finding]:
    """Return the findings about the packages that the servers of a config run."""
    return list_findings(await examine(list_packages(config)))


def list_packages(config: Config) -> Iterator[ServerPackage]:
    """Yield what the programs of a config run, each with the environment that its launcher gets."""
    said = {name: value for name in _OFFLINE if (value := os.environ.get(name))}
    for group in config.groups:
        program = group.upstream
        if isinstance(program, Program):
            yield ServerPackage(
                group.name,
                (program.command, *program.args),
                {**program.env, **said},
                Path(program.cwd or "."),
            )
