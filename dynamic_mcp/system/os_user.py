"""The user who runs this process, according to the operating system."""

from __future__ import annotations

import getpass
import os


def os_user() -> str:
    """Return the name of the process's user, ignoring the environment; the numeric id if there is no name."""
    if os.name == "nt":
        return getpass.getuser()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
