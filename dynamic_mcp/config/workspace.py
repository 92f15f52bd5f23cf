"""Where a client works: the directory and the environment that servers are started with for it.

Clients whose servers would start identically share them, whatever else differs between their environments.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dynamic_mcp.config.resolved import Program, Upstream

# They name one window of a terminal or one login of a desktop, and mean nothing to a server whose standard streams
# are pipes. If they counted, no two windows would share a server.
_WINDOW_NAMES = """
TERM COLORTERM COLORFGBG TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID LC_TERMINAL LC_TERMINAL_VERSION
ITERM_SESSION_ID ITERM_PROFILE WT_SESSION WT_PROFILE_ID WINDOWID WINDOWPATH VTE_VERSION GNOME_TERMINAL_SCREEN
KONSOLE_DBUS_SESSION KONSOLE_DBUS_WINDOW ALACRITTY_WINDOW_ID KITTY_WINDOW_ID COLUMNS LINES SSH_TTY
SHLVL OLDPWD _
XDG_ACTIVATION_TOKEN XDG_SESSION_ID XDG_SESSION_PATH XDG_SEAT XDG_SEAT_PATH XDG_VTNR
DESKTOP_STARTUP_ID GIO_LAUNCHED_DESKTOP_FILE GIO_LAUNCHED_DESKTOP_FILE_PID INVOCATION_ID JOURNAL_STREAM
DYNAMIC_MCP_PROFILE
"""
# Every server gets a value of its own, and the proxy has one from its first server on.
SERVER_MARK = "DYNAMIC_MCP_SERVER"
WINDOW_VARIABLES = frozenset((*_WINDOW_NAMES.split(), SERVER_MARK))


class Workspace:
    """The absolute directory and the environment of a client. Two are equal only if they are the same object."""

    __slots__ = ("__weakref__", "directory", "environment")

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = environment

    def __repr__(self) -> str:
        return f"<Workspace {self.directory}>"


def launch_of(upstream: Upstream) -> Upstream:
    """Return what decides whether two clients would start the same: the upstream without what makes no difference.

    That is what is withheld from it, which is for hints only, and variables of a window that it merely inherits.
    """
    if not isinstance(upstream, Program):
        return upstream
    ignored = WINDOW_VARIABLES - upstream.own
    env = {name: value for name, value in upstream.env.items() if name not in ignored}
    return replace(upstream, env=env, withheld=frozenset())
