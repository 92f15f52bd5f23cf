"""The `cache` command: it leaves a mark for the running proxies, and waits until they have seen it."""

from __future__ import annotations

import time

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.observe.cache_clearing import SEEN_AFTER_S, clearing_folder, mark_cleared


def clear_cache(this: Invocation, server: str | None) -> None:
    """Clear the cached results of a server in all running proxies, or all of them."""
    folder = clearing_folder()
    try:
        mark_cleared(folder, server)
    except OSError as exc:
        raise DynamicMcpError(f"{folder} cannot be written: {exc}") from exc
    time.sleep(SEEN_AFTER_S)
    this.out.say(f"cleared the cached results{f' of `{server}`' if server else ''}")
