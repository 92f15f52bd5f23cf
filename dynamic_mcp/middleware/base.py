"""The base class of plug-ins, and the services for them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamic_mcp.middleware.calls import CallerInfo, CallRequest, CallResult
from dynamic_mcp.middleware.items import Item, ListKind

Next = Callable[[CallRequest], Awaitable[CallResult]]
"""Continues with a call. May be called once; raises `CallFailed`."""


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class PluginServices:
    """The services of dynamic-mcp for a plug-in: a `log`, and `refresh_lists`, which calls `list` again."""

    log: logging.Logger
    refresh_lists: Callable[[], None] = _do_nothing


class Middleware:
    """A plug-in. Every method is optional; the class is constructed without arguments.

    The methods run in the event loop of dynamic-mcp: one that blocks (`time.sleep`, `requests.get`) blocks
    all clients.
    """

    async def open(self, options: Mapping[str, Any], services: PluginServices, /) -> None:  # Any: JSON
        """Called before the first call. `options` are those of the config; raise an exception if they are invalid."""

    async def call(self, request: CallRequest, next: Next, /) -> CallResult:
        """Answer a call: with `await next(request)`, perhaps with other arguments, or without it."""
        return await next(request)

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo, /) -> Sequence[Item]:
        """Return the items of one server's list for a client: some left out, replaced or in another order.

        Items that are left out do not exist for the client.
        """
        return items

    async def close(self) -> None:
        """Called after the last call."""
