"""Requests of clients of the modern revisions: each names its sender, and is answered independently.

MCP 2026-07-28. Every request gets exactly one answer, unless it is cancelled. The core uses the legacy dialect;
answers to the client are translated here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec import Raw

from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Interrupted,
)
from dynamic_mcp.features.table import own_tool_names
from dynamic_mcp.mcp import envelope, revisions, wire
from dynamic_mcp.mcp.envelope import Envelope, RequestMembers, StateRefused
from dynamic_mcp.mcp.revisions import MODERN, SUPPORTED
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import ModernChannel
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import for_upstream, is_ours
from dynamic_mcp.proxy.subscriptions import LEVELS
from dynamic_mcp.session.answers import (
    MAX_IN_FLIGHT,
    RequestRefused,
    answer_request,
    error_answer,
    refuse_request,
    to_answer,
    too_many,
)
from dynamic_mcp.session.client_connection import ClientOrigin
from dynamic_mcp.session.listening import Listening
from dynamic_mcp.session.modern_client import ModernCall, ModernClient, ModernClients, binding_of
from dynamic_mcp.session.modern_subscriptions import ModernSubscriptions
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.session.url_elicitations import elicit_urls

MAX_CLIENTS = 1000
# A client that was not used for this long is removed.
_UNUSED_FOR_S = 3600.0
# Methods that the revision has removed, although the core supports them.
_REMOVED = frozenset(
    (
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    )
)
_DISCOVER, _LISTEN = "server/discover", "subscriptions/listen"


class ModernDispatcher:
    """Answers the requests of all modern clients of one face. `tick` must be called regularly."""

    def __init__(
        self,
        server: ModernServer,
        *,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._max_in_flight = MAX_IN_FLIGHT
        self._unused_for_s = _UNUSED_FOR_S
        self._server = server
        self._now = now or asyncio.get_running_loop().time
        self._clients = ModernClients(server, max_clients=MAX_CLIENTS, now=self._now)
        self._subscriptions = ModernSubscriptions(server)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def begin(
        self, frame: Frame, channel: ModernChannel, origin: ClientOrigin, members: RequestMembers | None = None
    ) -> ModernCall | None:
        """Start answering a request, whose params may be split already. Returns None if it is already answered."""
        try:
            return self._begin(frame, channel, origin, members or RequestMembers.of(frame))
        except (wire.Malformed, StateRefused, RequestRefused) as exc:
            channel.answer(error_answer(frame.method, exc))
        return None

    def configure(self, *, max_in_flight: int, max_clients: int, unused_for_s: float) -> None:
        """Set the limits: requests per client, clients, and seconds until an unused client is removed."""
        self._max_in_flight = max_in_flight
        self._clients.max_clients = max_clients
        self._unused_for_s = unused_for_s

    def tick(self) -> None:
        """Remove unused clients."""
        self._clients.drop_unused(self._now() - self._unused_for_s)

    async def drain(self, within_s: float) -> None:
        """End all streams, let calls finish within a bound, and answer the rest with an error: they may have run."""
        for client in self._clients:
            for listening in [*client.listenings]:
                listening.close()
        calls = [call for client in self._clients for call in client.calls_in_flight if not call.is_parked]
        if calls:
            await asyncio.gather(*(call.wait(within_s) for call in calls))
        for call in [call for client in self._clients for call in client.calls_in_flight]:
            call.fail(to_answer(call.method, Interrupted(call.method)))

    def close(self) -> None:
        self._clients.close()

    # --- a request -------------------------------------------------------------------------------------

    def _begin(
        self, frame: Frame, channel: ModernChannel, origin: ClientOrigin, members: RequestMembers
    ) -> ModernCall:
        """Start answering a request. Raises RequestRefused, StateRefused and Malformed."""
        method = frame.method
        refusal = refuse_request(frame, bytes(frame.id))
        if refusal is not None:
            raise RequestRefused(refusal)
        recalled = self._clients.recall(origin, members.raw_meta)
        if recalled is None:
            sender = _read_sender(method, members.meta)
            log_level = (wire.text(sender.log_level) or "") if len(sender.log_level) else ""
        if method in _REMOVED:
            raise _refused(METHOD_NOT_FOUND, f"method not found: `{method}` is not part of MCP {MODERN.name}")
        if recalled is None:
            client = self._find_client(origin, sender, channel)
            if envelope.is_for_one_hop(members.meta):
                self._clients.remember(origin, members.raw_meta, client, log_level)
        else:
            client, log_level = recalled
        if len(client.calls_in_flight) >= self._max_in_flight:
            raise RequestRefused(too_many(self._max_in_flight))
        params = envelope.without_envelope(members.params, members.meta)
        params.pop("task", None)  # for tasks of legacy servers, which a modern client cannot query
        state = wire.text(params.get("requestState")) if method in envelope.MAY_ASK else None
        if state is not None and is_ours(state) and not self._goes_on_from_disk(params, state):
            return self._resume(client, method, params, state, channel)
        if state is not None and (given := for_upstream(state)) != state:
            params["requestState"] = Raw(wire.encode(given))
        raw_params = Raw(wire.encode(params))
        call = ModernCall(client, method, raw_params, channel, self._server, log_level=log_level)
        if log_level:
            self._server.want_level(client, log_level)
        request = Request(method, raw_params, client, self._server.view_for(client), call, frame.id)
        call.start(answer_request(request, self._use_case(method, channel), call.finish))
        return call

    def _find_client(self, origin: ClientOrigin, sender: Envelope, channel: ModernChannel) -> ModernClient:
        client = self._clients.find(origin, sender, channel)
        if client is None:
            raise _refused(INTERNAL_ERROR, "too many clients; retry later")
        return client

    def _resume(
        self, client: ModernClient, method: str, params: Mapping[str, Raw], state: str, channel: ModernChannel
    ) -> ModernCall:
        """Continue a parked call. Raises StateRefused and Malformed."""
        binding = binding_of(client, method, Raw(wire.encode(params)))
        responses = wire.members(params.get("inputResponses", wire.EMPTY_OBJECT))
        call = self._server.parked_calls.claim(state, binding)
        assert isinstance(call, ModernCall)
        call.resume(responses, channel)
        return call

    def _goes_on_from_disk(self, params: Mapping[str, Raw], state: str) -> bool:
        """Return whether the tool that is called reads the state itself, because its call survives a restart."""
        is_own = wire.text(params.get("name")) in own_tool_names()
        return is_own and self._server.parked_calls.may_go_on_from_disk(state)

    def _use_case(self, method: str, channel: ModernChannel) -> Callable[[Request], Awaitable[Frame]]:
        if method == _LISTEN:
            return partial(self._listen, channel)
        return self._discover if method == _DISCOVER else self._serve

    async def _serve(self, request: Request) -> Frame:
        answer = await self._server.answer(request)
        return await elicit_urls(request, answer, self._server.answer) if len(answer.error) else answer

    def _discover(self, request: Request) -> Awaitable[Frame]:
        return self._server.discover(request.client)

    async def _listen(self, channel: ModernChannel, request: Request) -> Frame:
        """Serve a stream of notifications until one side ends it."""
        client, call = request.client, request.channel
        assert isinstance(client, ModernClient)
        assert isinstance(call, ModernCall)
        listening = Listening(request.id, channel)
        filter_at = wire.member(request.params, "notifications")
        if bytes(filter_at)[:1] != b"{":
            raise wire.Malformed("`notifications` is missing")
        wanted = wire.members(filter_at)
        client.listenings.add(listening)
        try:
            async with self._subscriptions.subscribed(client, call, wanted) as (lists, uris):
                listening.acknowledge(lists, uris)
                await listening.ended.wait()
        finally:
            client.listenings.discard(listening)
        return listening.end_result()


def _read_sender(method: str, meta: Mapping[str, Raw]) -> Envelope:
    """Return the sender that a request names. Raises RequestRefused."""
    sender = envelope.read_envelope(meta)
    if sender is None and method == "initialize":
        raise _unsupported("", f"MCP {MODERN.name} has no `initialize`")
    if sender is None:
        raise _refused(INVALID_PARAMS, f"`{envelope.PROTOCOL_VERSION}` is missing from `_meta`")
    revision = revisions.find(sender.version)
    if revision is None or not revision.is_stateless:
        raise _unsupported(sender.version)
    if bytes(sender.capabilities)[:1] != b"{":
        raise _refused(
            INVALID_PARAMS, f"`{envelope.CLIENT_CAPABILITIES}` is missing from `_meta`, or is not an object"
        )
    if len(sender.log_level) and wire.text(sender.log_level) not in LEVELS:
        raise _refused(INVALID_PARAMS, f"`{envelope.LOG_LEVEL}` must be one of {', '.join(LEVELS)}")
    return sender


def _unsupported(version: str, why: str = "") -> RequestRefused:
    data: dict[str, object] = {"supported": SUPPORTED}
    if version:
        data["requested"] = version[:100]
    return _refused(UNSUPPORTED_VERSION, why or f"unsupported protocol version `{version[:100]}`", data)


def _refused(code: int, why: str, data: object = None) -> RequestRefused:
    return RequestRefused(wire.error_frame(code, why, data))
