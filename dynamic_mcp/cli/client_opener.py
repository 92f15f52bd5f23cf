"""Connects commands to servers: through the running daemon of the config, else through an in-process proxy.

Either way a command is a regular client of a proxy.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from dynamic_mcp.cli.client import CommandClient

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.config.resolved import Config


@contextlib.asynccontextmanager
async def open_client(context: Invocation, config: Config, *, may_ask: bool = False) -> AsyncIterator[CommandClient]:
    """Open a session with the daemon of the config, or with an in-process proxy if none runs or with `--alone`.

    With `may_ask`, the command shows forms if the user is at the terminal.
    """
    may_ask = may_ask and context.out.may_ask
    daemon = None
    if not context.is_alone:
        from dynamic_mcp.cli import daemon_client

        daemon = await daemon_client.find_daemon(context, config, may_ask=may_ask)
    if daemon is not None:
        async with contextlib.aclosing(daemon):
            yield daemon
        return
    from dynamic_mcp.cli.own_client import open_own_client

    async with open_own_client(context, config, may_ask=may_ask) as client:
        yield client
