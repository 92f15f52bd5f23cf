"""Tells the features that listen what a command has changed: which command, and names. Never values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


def record(this: Invocation, file: Path, event: str, members: Mapping[str, object]) -> bool:
    """Tell what was done to a config, and return whether the config wants that to be recorded.

    A command whose work is done does not fail by it.
    """
    listeners = [feature.load(feature.change_listener) for feature in FEATURES if feature.change_listener]
    recorded = [listener.record(this, file, event, members) for listener in listeners]
    return any(recorded)


def record_change(this: Invocation, files: Iterable[Path], event: str, members: Mapping[str, object]) -> None:
    """Tell what was done to the files of AI tools, as of each config among them that records it, else as of ours."""
    recorded = [record(this, file, event, members) for file in files if file.is_file()]
    if any(recorded):
        return
    with contextlib.suppress(ConfigError):  # there is none
        record(this, this.config_path(), event, members)
