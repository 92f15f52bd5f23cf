"""Who runs this process, as the system knows it."""

from __future__ import annotations

import getpass
import os


def os_user() -> str:
    """Return the name of the user who runs this process, whatever the environment says; the number if it has none."""
    if os.name == "nt":
        return getpass.getuser()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
