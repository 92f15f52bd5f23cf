"""The local machine for the importer, and the journal of changes made on it."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Literal

from dynamic_mcp.importer.journal import ChangeJournal
from dynamic_mcp.importer.model import Machine
from dynamic_mcp.system import paths

# The BSDs and others keep their files as Linux does.
_PLATFORMS: dict[str, Literal["darwin", "win32"]] = {"darwin": "darwin", "win32": "win32"}


def local_machine(project: str | None, platform: str = sys.platform) -> Machine:
    """Return this machine; the project is that directory, else the current one."""
    folder = os.path.abspath(project or ".")  # noqa: PTH100 - tools identify a project by its unresolved path
    return Machine(Path.home(), Path(folder), os.environ, _PLATFORMS.get(platform, "linux"))


def open_journal() -> ChangeJournal:
    """Return the journal of this user."""
    return ChangeJournal(paths.state_dir() / "journal")


def timestamp() -> str:
    """Return the time now, as the journal writes it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def shorten_path(file: Path) -> str:
    """Return a path as a person writes it, with `~` for the home directory."""
    home = Path.home()
    return f"~{os.sep}{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
