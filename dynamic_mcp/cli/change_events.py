"""Notifies features of the changes that commands make. Events contain commands and names, never values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


def record(context: Invocation, file: Path, event: str, members: Mapping[str, object]) -> bool:
    """Record a change of a config; return whether a feature of the config records it.

    A failed record does not fail the command, whose work is done.
    """
    listeners = [feature.load(feature.change_listener) for feature in FEATURES if feature.change_listener]
    recorded = [listener.record(context, file, event, members) for listener in listeners]
    return any(recorded)


def record_change(context: Invocation, files: Iterable[Path], event: str, members: Mapping[str, object]) -> None:
    """Record a change of files, for each config among them that records it, else for the config of the command."""
    recorded = [record(context, file, event, members) for file in files if file.is_file()]
    if any(recorded):
        return
    with contextlib.suppress(ConfigError):  # no config exists
        record(context, context.config_path(), event, members)
