"""The working directory and environment of a client, in which its servers are started.

Clients whose servers would start identically share them, even if their environments differ otherwise.
"""

from __future__ import annotations

import ntpath
import sys
from collections.abc import Mapping

from msgspec.structs import replace

from dynamic_mcp.config.resolved import Program, Upstream

# They identify one terminal window or one desktop login, and mean nothing to a server whose standard streams
# are pipes. If they counted, no two windows would share a server. Each PowerShell makes `PSModulePath` for itself.
_WINDOW_NAMES = """
TERM COLORTERM COLORFGBG TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID LC_TERMINAL LC_TERMINAL_VERSION
ITERM_SESSION_ID ITERM_PROFILE WT_SESSION WT_PROFILE_ID WINDOWID WINDOWPATH VTE_VERSION GNOME_TERMINAL_SCREEN
KONSOLE_DBUS_SESSION KONSOLE_DBUS_WINDOW ALACRITTY_WINDOW_ID KITTY_WINDOW_ID COLUMNS LINES SSH_TTY
SHLVL OLDPWD _
XDG_ACTIVATION_TOKEN XDG_SESSION_ID XDG_SESSION_PATH XDG_SEAT XDG_SEAT_PATH XDG_VTNR
DESKTOP_STARTUP_ID GIO_LAUNCHED_DESKTOP_FILE GIO_LAUNCHED_DESKTOP_FILE_PID INVOCATION_ID JOURNAL_STREAM
DYNAMIC_MCP_PROFILE
PSMODULEPATH
"""
# Each server gets a different value, and the proxy itself has one as soon as its first server starts.
SERVER_MARK = "DYNAMIC_MCP_SERVER"
WINDOW_VARIABLES = frozenset((*_WINDOW_NAMES.split(), SERVER_MARK))


class Workspace:
    """The absolute directory and the environment of a client. Workspaces are compared by identity."""

    __slots__ = ("__weakref__", "directory", "environment")

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = environment

    def __repr__(self) -> str:
        return f"<Workspace {self.directory}>"


def launch_of(upstream: Upstream, platform: str = sys.platform) -> Upstream:
    """Return the upstream without the parts that do not affect its launch, to compare launches of two clients.

    Those are the withheld names, which are for hints only, and inherited variables of a window. On Windows, also the
    case of the directory, and what PowerShell changes in the environment of all that it starts.
    """
    if not isinstance(upstream, Program):
        return upstream
    ignored = WINDOW_VARIABLES - upstream.own
    env = {name: value for name, value in upstream.env.items() if name not in ignored}
    cwd = upstream.cwd
    if platform == "win32":
        if "PATHEXT" in env.keys() - upstream.own:
            env["PATHEXT"] = _without_control_panels(env["PATHEXT"])
        cwd = cwd and ntpath.normcase(cwd)
    return replace(upstream, env=env, cwd=cwd, withheld=frozenset())


def _without_control_panels(suffixes: str) -> str:
    """Return the suffixes of programs without the one that PowerShell adds when it starts."""
    return ";".join(each for each in suffixes.split(";") if each.upper() != ".CPL")
