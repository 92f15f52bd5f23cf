"""The user who runs this process, according to the operating system."""

from __future__ import annotations

import getpass
import os
import sys


def os_user(platform: str = sys.platform) -> str:
    """Return the name of the process's user, ignoring the environment; the numeric id if there is no name."""
    if sys.platform == "win32" or platform == "win32":
        return getpass.getuser()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
