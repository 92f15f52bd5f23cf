"""The user who runs this process, according to the operating system."""

from __future__ import annotations

import os
import sys

_LONGEST_NAME = 256  # UNLEN of Windows


def os_user() -> str:
    """Return the name of the process's user, ignoring the environment; the numeric id if there is no name."""
    if sys.platform == "win32":
        # `getpass` asks the environment, which anyone can set
        # https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-getusernamew
        import ctypes

        buffer = ctypes.create_unicode_buffer(_LONGEST_NAME + 1)
        size = ctypes.c_ulong(len(buffer))
        if not ctypes.WinDLL("advapi32").GetUserNameW(buffer, ctypes.byref(size)):
            raise OSError("windows does not tell the name of the user")
        name = buffer.value
    else:
        import pwd

        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = str(os.getuid())
    return name
