"""The logins that a command or a serving proxy uses, and how to make one."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from dynamic_mcp.config.read import FILE_NAME
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.system import paths
from dynamic_mcp.system.shell import format_command


def login_folder() -> Path:
    """Return where logins are kept."""
    return paths.state_dir() / "logins"


def logins(config: Path, *, may_open_browser: bool) -> Logins:
    """Return the logins of a config; only a serving proxy opens a browser unasked."""
    return Logins(login_folder(), partial(login_command, config), os.environ if may_open_browser else None)


def login_command(config: Path, group: str) -> str:
    """Return what a person types, in whatever directory, to log in to a group."""
    file = config.absolute()
    named = () if file == paths.config_dir() / FILE_NAME else ("-c", file)
    return format_command("auth", "login", group, *named)
