"""The user who runs this process, according to the operating system."""

from __future__ import annotations

import os
import sys


def os_user() -> str:
    """Return the name of the process's user, ignoring the environment; the numeric id if there is no name."""
    if sys.platform == "win32":
        import win32api  # `getpass` asks the environment, which anyone can set

        name: str = win32api.GetUserName()
    else:
        import pwd

        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = str(os.getuid())
    return name
