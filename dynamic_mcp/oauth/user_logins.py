"""The logins of this user: their directory, and the command that logs in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dynamic_mcp.config.location import FILE_NAME
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.system import paths
from dynamic_mcp.system.shell import format_command


def login_folder() -> Path:
    """Return the directory that holds the logins."""
    return paths.state_dir() / "logins"


def open_logins(command: Callable[[str], str], *, may_open_browser: bool) -> Logins:
    """Return the logins of this user; only a serving proxy opens a browser without a request of the user.

    `command` returns the command line that logs in to a group.
    """
    return Logins(login_folder(), command, os.environ if may_open_browser else None)


def login_command(config: Path, group: str) -> str:
    """Return the command that logs in to a group; it works in any directory."""
    file = config.absolute()
    option = () if file == paths.config_dir() / FILE_NAME else ("-c", file)
    return format_command("auth", "login", group, *option)
