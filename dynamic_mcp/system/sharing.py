"""Waits for files that another program has open, which on Windows can be neither replaced nor, sometimes, opened."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Virus scanners, indexers and editors have a file open for some milliseconds.
WITHIN_S = 2.0
_POLL_S = 0.02


def replace(file: Path, target: Path) -> None:
    """Rename a file, also over an existing one, once no other program prevents it. Raises OSError.

    Blocks for at most `WITHIN_S`.
    """
    retry(lambda: file.replace(target))


def retry(action: Callable[[], T], *, within_s: float = WITHIN_S) -> T:
    """Return what the action returns. On Windows, repeat it while the system denies access, for at most this time.

    Blocks. Raises what the action raises.
    """
    ends_at = time.monotonic() + (within_s if sys.platform == "win32" else 0)
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() >= ends_at:
                raise
        time.sleep(_POLL_S)
