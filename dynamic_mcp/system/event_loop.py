"""The event loop that the program runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the fastest available event loop; None for asyncio's own."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # not available on Windows
        return None
    return new_event_loop
