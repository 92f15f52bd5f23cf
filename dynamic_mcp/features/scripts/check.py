"""Checks the folder of stored scripts: whether it is there, and whether each file is a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level, config_error
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.stored import read_folder
from dynamic_mcp.features.table import find_wrapper
from dynamic_mcp.system.text import os_reason, pluralize

_WHERE = "settings.scripts.folder"


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the stored scripts of a config."""
    settings = config.settings_of("scripts", Scripts)
    if settings is not None and settings.sandbox == "strict" and (why_not := find_wrapper().explain_missing()):
        yield config_error("settings.scripts.sandbox", f"scripts cannot be confined here: {why_not}")
    if settings is None or settings.folder is None:
        return
    try:
        stored = read_folder(Path(settings.folder))
    except OSError as exc:
        yield config_error(_WHERE, f"the folder `{settings.folder}` cannot be read: {os_reason(exc)}")
        return
    yield Finding(Level.OK, _WHERE, f"has {pluralize(len(stored.scripts), 'script')}")
    for complaint in stored.complaints:
        yield Finding(Level.WARNING, _WHERE, complaint, "`dynamic-mcp script check` says more")
    for script in stored.scripts.values():
        if len(script.code.encode()) > settings.source:
            yield Finding(Level.WARNING, _WHERE, f"`{script.name}.py` is longer than `source` allows")
