"""The upstream subscriptions for `subscriptions/listen`: each resource is subscribed once for each client."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from weakref import WeakValueDictionary

from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.session.listening import LISTS, RESOURCES
from dynamic_mcp.session.modern_client import ModernCall, ModernClient
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.system.task_set import TaskSet

# Resources that are not subscribed by then are not confirmed.
_SUBSCRIBE_WITHIN_S = 10.0
_MAX_RESOURCES = 1000


class ModernSubscriptions:
    """The resources that modern clients listen for."""

    def __init__(self, server: ModernServer) -> None:
        self._server = server
        self._wanted: Counter[tuple[ModernClient, str]] = Counter()
        self._locks: WeakValueDictionary[tuple[ModernClient, str], asyncio.Lock] = WeakValueDictionary()
        self._background = TaskSet()

    @contextlib.asynccontextmanager
    async def subscribed(
        self, client: ModernClient, call: ModernCall, wanted: Mapping[str, Raw]
    ) -> AsyncIterator[tuple[dict[str, bool], list[str]]]:
        """Yield the lists and resources of a filter that are available, and unsubscribe afterwards.

        Raises Malformed.
        """
        uris = _uris(wanted)
        self._wanted.update((client, uri) for uri in uris)
        try:
            results = await asyncio.gather(*(self._subscribe(client, call, uri) for uri in uris))
            subscribed = [uri for uri, is_done in zip(uris, results, strict=True) if is_done]
            lists = {
                name: True
                for name, method in LISTS.items()
                if bytes(wanted.get(name, b"")) == b"true" and self._server.may_announce(client, method)
            }
            yield lists, subscribed
        finally:
            self._release(client, uris)

    async def _subscribe(self, client: ModernClient, call: ModernCall, uri: str) -> bool:
        params = Raw(wire.encode({"uri": uri}))
        request = Request("resources/subscribe", params, client, self._server.view_for(client), call)
        with contextlib.suppress(DynamicMcpError, TimeoutError):
            async with asyncio.timeout(_SUBSCRIBE_WITHIN_S), self._lock(client, uri):
                return not len((await self._server.answer(request)).error)
        return False

    def _release(self, client: ModernClient, uris: Sequence[str]) -> None:
        for uri in uris:
            self._wanted[client, uri] -= 1
            if self._wanted[client, uri] <= 0:
                del self._wanted[client, uri]
                if not client.is_closed:
                    self._background.create(self._unsubscribe(client, uri), name="end of a subscription")

    async def _unsubscribe(self, client: ModernClient, uri: str) -> None:
        params = Raw(wire.encode({"uri": uri}))
        request = Request("resources/unsubscribe", params, client, self._server.view_for(client))
        async with self._lock(client, uri):
            if (client, uri) not in self._wanted:  # else another stream listens for it
                with contextlib.suppress(DynamicMcpError, wire.Malformed):
                    await self._server.answer(request)

    def _lock(self, client: ModernClient, uri: str) -> asyncio.Lock:
        """Return the lock that keeps the requests for one resource in order."""
        return self._locks.setdefault((client, uri), asyncio.Lock())


def _uris(wanted: Mapping[str, Raw]) -> list[str]:
    """Return the resources of a filter, without duplicates. Raises Malformed."""
    if RESOURCES not in wanted:
        return []
    uris = [wire.text(each) for each in wire.elements(wanted[RESOURCES])]
    if len(uris) > _MAX_RESOURCES or not all(uris):
        raise wire.Malformed(f"`{RESOURCES}` must be URIs, {_MAX_RESOURCES} at most")
    return list(dict.fromkeys(uri for uri in uris if uri))
