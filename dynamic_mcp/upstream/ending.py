"""Ends all children without importing `child` if none was started."""

from __future__ import annotations

import sys

_CHILD = "dynamic_mcp.upstream.process.child"


def terminate_all(within_s: float) -> None:
    """End every child that has been started so far: SIGTERM after half of `within_s`, SIGKILL after all of it."""
    if _CHILD in sys.modules:
        from dynamic_mcp.upstream.process import child

        child.terminate_all(within_s)


def kill_all() -> None:
    """Kill every child and all that it started, at once; for an exit that cannot wait."""
    if _CHILD in sys.modules:
        from dynamic_mcp.upstream.process import child

        child.kill_all()
