"""What tests on Windows need to know."""

import ctypes
import sys


def is_wine() -> bool:
    """Return whether this Windows is Wine, which differs from it in corners."""
    return sys.platform == "win32" and hasattr(ctypes.windll.ntdll, "wine_get_version")
