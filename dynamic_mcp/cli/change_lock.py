"""Commands that change files take turns, so that each starts from what the one before it has written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system import paths

# A command holds the lock for as long as it takes to read and write a few files, never while it asks somebody.
WAIT_S = 30.0
_POLL_S = 0.02


@contextlib.contextmanager
def changing_files() -> Iterator[None]:
    """Be the only command of this user that changes a config or a tool's settings. Raises DynamicMcpError."""
    lock = paths.FileLock(paths.state_dir() / "changes.lock")
    try:
        _wait_for(lock)
    except OSError:  # without a state directory there is no journal either, and a config can still be changed
        yield
        return
    try:
        yield
    finally:
        lock.leave()


def _wait_for(lock: paths.FileLock) -> None:
    ends_at = time.monotonic() + WAIT_S
    while not lock.take():
        if time.monotonic() > ends_at:
            raise DynamicMcpError(
                f"another `dynamic-mcp` command has been changing files for {WAIT_S:g} s",
                hint="wait until it is done, or end it",
            )
        time.sleep(_POLL_S)
