"""The directories of the user's config, state, caches and logs.

platformdirs knows them. On Linux they are found without it, by the XDG Base Directory Specification: loading it takes
a tenth of the start and 1 MiB. Only builtins are imported, to keep the start of a window fast.
"""

from __future__ import annotations

import os
import sys

_APP = "dynamic-mcp"


def config_dir() -> str:
    """Return the directory for the user's config."""
    if found := _find_on_linux("XDG_CONFIG_HOME", ".config"):
        return found
    from platformdirs import user_config_dir

    return user_config_dir(_APP, appauthor=False)


def state_dir() -> str:
    """Return the directory for state that must survive a restart: tokens, approvals."""
    if found := _find_on_linux("XDG_STATE_HOME", ".local/state"):
        return found
    from platformdirs import user_state_dir

    return user_state_dir(_APP, appauthor=False)


def cache_dir() -> str:
    """Return the directory for data that can be fetched again: catalogs."""
    if found := _find_on_linux("XDG_CACHE_HOME", ".cache"):
        return found
    from platformdirs import user_cache_dir

    return user_cache_dir(_APP, appauthor=False)


def log_dir() -> str:
    """Return the directory of the log file, for AI tools that hide stderr."""
    if found := _find_on_linux("XDG_STATE_HOME", ".local/state"):
        return f"{found}/log"
    from platformdirs import user_log_dir

    return user_log_dir(_APP, appauthor=False)


def _find_on_linux(variable: str, below_home: str) -> str:
    """Return a directory of ours by the environment; empty on other systems, and where the environment lacks it."""
    if sys.platform != "linux":
        return ""
    base = os.environ.get(variable, "")
    if not base.startswith("/"):  # the specification has relative ones ignored
        home = os.environ.get("HOME", "")
        base = f"{home.rstrip('/')}/{below_home}" if home.startswith("/") else ""
    return f"{base.rstrip('/')}/{_APP}" if base else ""
