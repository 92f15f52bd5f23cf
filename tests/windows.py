"""What tests need to know of Windows."""

import ctypes
import sys

_FOR_WINDOWS = {
    "dynamic_mcp.face.pipe_listener",
    "dynamic_mcp.face.window_streams",
    "dynamic_mcp.system.console_events",
    "dynamic_mcp.system.named_pipe",
    "dynamic_mcp.upstream.process.job",
}
_FOR_POSIX = {f"dynamic_mcp.upstream.process.{name}" for name in ("group", "guardian", "strays")}
# Modules that cannot be imported here.
OF_OTHER_SYSTEMS = _FOR_POSIX if sys.platform == "win32" else _FOR_WINDOWS


def is_wine() -> bool:
    """Return whether this Windows is Wine, which differs from it in corners."""
    return sys.platform == "win32" and hasattr(ctypes.windll.ntdll, "wine_get_version")
