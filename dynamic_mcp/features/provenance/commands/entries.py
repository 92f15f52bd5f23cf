"""The packages of entries as a config has them, before their variables are filled in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynamic_mcp.cli.package_examiner import Entries
from dynamic_mcp.features.provenance.examination import ServerPackage


def packages_of(entries: Entries) -> Iterator[ServerPackage]:
    """Yield what entries run; the launcher is taken to have the variables of this shell and those of the entry."""
    for name, entry in entries.items():
        command, args, env = entry.get("command"), entry.get("args"), entry.get("env")
        if not isinstance(command, str):
            continue
        words = [each for each in args if isinstance(each, str)] if isinstance(args, list) else []
        own = {key: text for key, text in env.items() if isinstance(text, str)} if isinstance(env, Mapping) else {}
        yield ServerPackage(name, (command, *words), {**os.environ, **own}, Path())
