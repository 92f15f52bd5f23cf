"""The plug-in itself, and what it is given."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamic_mcp.middleware.calls import CallerInfo, CallRequest, CallResult
from dynamic_mcp.middleware.items import Item, ListKind

Next = Callable[[CallRequest], Awaitable[CallResult]]
"""Goes on with a call. May be called once; raises `CallFailed`."""


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class PluginServices:
    """What a plug-in gets from dynamic-mcp: its own `log`, and `refresh_lists`, upon which `list` is asked again."""

    log: logging.Logger
    refresh_lists: Callable[[], None] = _do_nothing


class Middleware:
    """A plug-in. Each method may be left out; its class is constructed without arguments.

    The methods run in the event loop of dynamic-mcp: one that blocks (`time.sleep`, `requests.get`) blocks everybody.
    """

    async def open(self, options: Mapping[str, Any], services: PluginServices, /) -> None:  # Any: JSON
        """Begin, before the first call. `options` are those of the config; raise an exception if they are wrong."""

    async def call(self, request: CallRequest, next: Next, /) -> CallResult:
        """Answer a call: by `await next(request)`, perhaps with other arguments, or without it."""
        return await next(request)

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo, /) -> Sequence[Item]:
        """Return what of one server's list is shown to a client: items left out, replaced or in another order.

        What is left out does not exist for the client.
        """
        return items

    async def close(self) -> None:
        """End, after the last call."""
