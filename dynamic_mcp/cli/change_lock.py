"""The lock that serializes commands that change files, so that none overwrites the changes of another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system import paths

# A command holds the lock while it reads and writes a few files, never while it waits for the user.
WAIT_S = 30.0


@contextlib.contextmanager
def hold_change_lock() -> Iterator[None]:
    """Hold the lock of this user for configs and the settings of tools. Raises DynamicMcpError."""
    lock = paths.FileLock(paths.state_dir() / "changes.lock")
    try:
        _wait_for(lock)
    except OSError:  # without a state directory there is no journal, but a config can still be changed
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _wait_for(lock: paths.FileLock) -> None:
    if not lock.acquire(WAIT_S):
        raise DynamicMcpError(
            f"another `dynamic-mcp` command has been changing files for {WAIT_S:g} s",
            hint="wait until it has finished, or stop it",
        )
