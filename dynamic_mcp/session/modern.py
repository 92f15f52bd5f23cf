"""Requests of clients of the modern revisions: each says who it is from, and is answered by itself.

MCP 2026-07-28. Every request gets exactly one answer, unless it is cancelled. The core speaks the legacy dialect;
what goes back to the client is translated here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from msgspec import Raw

from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    DynamicMcpError,
    Interrupted,
)
from dynamic_mcp.mcp import envelope, revisions, wire
from dynamic_mcp.mcp.envelope import Envelope, RequestMembers
from dynamic_mcp.mcp.revisions import MODERN, SUPPORTED
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.current_request import mark_request
from dynamic_mcp.proxy.parked_calls import Channel
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import StateRefused, is_ours
from dynamic_mcp.proxy.subscriptions import LEVELS
from dynamic_mcp.session.answers import to_answer
from dynamic_mcp.session.listening import Listening
from dynamic_mcp.session.modern_answers import refuse_state, to_modern
from dynamic_mcp.session.modern_client import ModernCall, ModernClient, ModernClients, Origin, binding_of
from dynamic_mcp.session.modern_subscriptions import ModernSubscriptions
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.session.url_elicitations import answer_with_elicitations

log = logging.getLogger(__name__)

# Requests of one client that are served at once; those beyond are refused.
MAX_IN_FLIGHT = 4096
MAX_CLIENTS = 1000
# A client that has made no request for this long is forgotten.
_UNUSED_FOR_S = 3600.0
# What the revision no longer has, although the core would answer it.
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


class Refused(Exception):
    """A request that is not served; `answer` says why."""

    def __init__(self, code: int, why: str, data: object = None) -> None:
        super().__init__(why)
        self.answer = wire.error_frame(code, why, data)


class ModernDispatcher:
    """Answers the requests of all modern clients of one face. `tick` is to be called now and then."""

    def __init__(
        self,
        server: ModernServer,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_clients: int = MAX_CLIENTS,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._max_in_flight = max_in_flight
        self._unused_for_s = _UNUSED_FOR_S
        self._server = server
        self._now = now or asyncio.get_running_loop().time
        self._clients = ModernClients(server, max_clients=max_clients, now=self._now, wall_clock=time.time)
        self._subscriptions = ModernSubscriptions(server)

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self._clients)

    def begin(
        self, frame: Frame, channel: Channel, origin: Origin, members: RequestMembers | None = None
    ) -> ModernCall | None:
        """Start to answer a request, whose params may be split already. None: it is answered already."""
        try:
            return self._begin(frame, channel, origin, members or RequestMembers.of(frame))
        except wire.Malformed as exc:
            channel.answer(wire.error_frame(INVALID_PARAMS, str(exc)))
        except StateRefused as exc:
            channel.answer(refuse_state(exc))
        except Refused as exc:
            channel.answer(exc.answer)
        return None

    def configure(self, *, max_in_flight: int, max_clients: int, unused_for_s: float) -> None:
        """Go on with other bounds: requests of a client, clients, and seconds that an unused one is remembered."""
        self._max_in_flight = max_in_flight
        self._clients.max_clients = max_clients
        self._unused_for_s = unused_for_s

    def tick(self) -> None:
        """Forget the clients that nobody uses any more."""
        self._clients.drop_unused(self._now() - self._unused_for_s)

    async def finish(self, within_s: float) -> None:
        """End all streams, let calls end within a bound, and answer the rest with an error: they may have run."""
        for client in self._clients:
            for listening in [*client.listenings]:
                listening.close()
        calls = [call for client in self._clients for call in client.calls_in_flight if not call.is_parked]
        if calls:
            await asyncio.gather(*(call.wait(within_s) for call in calls))
        for call in [call for client in self._clients for call in client.calls_in_flight]:
            call.fail(self._to_modern(call.client, call.method, _to_error(call.method, Interrupted(call.method))))

    def close(self) -> None:
        """End everything at once."""
        self._clients.close()

    # --- a request -------------------------------------------------------------------------------------

    def _begin(self, frame: Frame, channel: Channel, origin: Origin, members: RequestMembers) -> ModernCall:
        _check_frame(frame)
        params, meta = members.params, members.meta
        sender = _read_sender(frame.method, meta)
        if frame.method in _REMOVED:
            why = f"method not found: `{frame.method}` is not part of MCP {MODERN.name}"
            raise Refused(METHOD_NOT_FOUND, why)
        client = self._find_client(origin, sender, channel)
        plain = envelope.without_envelope(params, meta)
        plain.pop("task", None)  # of legacy servers, whose tasks a modern client cannot ask about
        state = wire.text(plain.get("requestState")) if frame.method in envelope.MAY_ASK else None
        if state is not None and is_ours(state):
            return self._resume(client, frame.method, plain, state, channel)
        call_frame = Frame(method=frame.method, params=Raw(wire.encode(plain)), id=frame.id)
        call = ModernCall(
            client,
            call_frame,
            channel,
            self._server.parked_calls,
            log_level=wire.text(sender.log_level) or "",
        )
        if call.log_level:
            self._server.want_level(client, call.log_level)
        call.start(self._answer(call, call_frame, channel))
        return call

    def _find_client(self, origin: Origin, sender: Envelope, channel: Channel) -> ModernClient:
        client = self._clients.find(origin, sender, channel)
        if client is None:
            raise Refused(INTERNAL_ERROR, "too many clients are in use: no more are served; try again later")
        if len(client.calls_in_flight) >= self._max_in_flight:
            raise Refused(INTERNAL_ERROR, f"{self._max_in_flight} requests are in flight: no more are accepted")
        return client

    def _resume(
        self, client: ModernClient, method: str, params: Mapping[str, Raw], state: str, channel: Channel
    ) -> ModernCall:
        """Go on with a parked call. Raises StateRefused and Malformed."""
        binding = binding_of(client, method, Raw(wire.encode(params)))
        responses = wire.members(params.get("inputResponses", wire.EMPTY_OBJECT))
        call = self._server.parked_calls.claim(state, binding)
        assert isinstance(call, ModernCall)
        call.resume(responses, channel)
        return call

    async def _answer(self, call: ModernCall, frame: Frame, channel: Channel) -> Frame:
        """Return the answer to a request as its client gets it."""
        mark = mark_request(frame.id)
        try:
            answer = await self._serve(call, frame, channel)
        except wire.Malformed as exc:
            answer = wire.error_frame(INVALID_PARAMS, str(exc))
        except StateRefused as exc:
            answer = refuse_state(exc)
        except DynamicMcpError as exc:
            answer = _to_error(frame.method, exc)
        except Exception:
            log.exception("a bug: answering %s failed", frame.method)
            answer = wire.error_frame(INTERNAL_ERROR, "internal error of dynamic-mcp; its log says more")
        finally:
            mark.is_over = True
        return self._to_modern(call.client, frame.method, answer)

    async def _serve(self, call: ModernCall, frame: Frame, channel: Channel) -> Frame:
        client, server = call.client, self._server
        if frame.method == _LISTEN:
            return await self._listen(call, frame, channel)
        if frame.method == _DISCOVER:
            return await server.discover(client)
        request = Request(frame.method, frame.params, client, server.view_for(client), call, frame.id)
        return await answer_with_elicitations(request, server.answer)

    def _to_modern(self, client: ModernClient, method: str, answer: Frame) -> Frame:
        return to_modern(answer, method, self._server.server_info(client), self._server.cache_hint(client, method))

    async def _listen(self, call: ModernCall, frame: Frame, channel: Channel) -> Frame:
        """Serve a stream of notifications until one side ends it."""
        client, listening = call.client, Listening(frame.id, channel)
        filter_at = wire.member(frame.params, "notifications")
        if bytes(filter_at)[:1] != b"{":
            raise wire.Malformed("`notifications`, the kinds to listen for, is missing")
        wanted = wire.members(filter_at)
        client.listenings.add(listening)
        try:
            async with self._subscriptions.subscribed(client, call, wanted) as (lists, uris):
                listening.acknowledge(lists, uris)
                await listening.ended.wait()
        finally:
            client.listenings.discard(listening)
        return listening.end_result()


def _check_frame(frame: Frame) -> None:
    if frame.jsonrpc != "2.0":
        raise Refused(INVALID_REQUEST, '`jsonrpc` is not "2.0"')
    if not wire.is_request_id(frame.id):
        raise Refused(INVALID_REQUEST, "`id` is neither a string nor a number")


def _read_sender(method: str, meta: Mapping[str, Raw]) -> Envelope:
    """Return what a request says of its sender. Raises Refused."""
    sender = envelope.read_envelope(meta)
    if sender is None and method == "initialize":
        raise unsupported("", f"this client speaks MCP {MODERN.name}, which has no `initialize`")
    if sender is None:
        raise Refused(INVALID_PARAMS, f"`{envelope.PROTOCOL_VERSION}` is missing from `_meta`")
    revision = revisions.find(sender.version)
    if revision is None or not revision.is_stateless:
        raise unsupported(sender.version)
    if bytes(sender.capabilities)[:1] != b"{":
        raise Refused(INVALID_PARAMS, f"`{envelope.CLIENT_CAPABILITIES}` is missing from `_meta`, or is no object")
    if len(sender.log_level) and wire.text(sender.log_level) not in LEVELS:
        raise Refused(INVALID_PARAMS, f"`{envelope.LOG_LEVEL}` must be one of {', '.join(LEVELS)}")
    return sender


def unsupported(version: str, why: str = "") -> Refused:
    """Return the refusal of a revision that is not spoken."""
    data: dict[str, object] = {"supported": SUPPORTED}
    if version:
        data["requested"] = version[:100]
    return Refused(UNSUPPORTED_VERSION, why or f"MCP `{version[:100]}` is not spoken here", data)


def _to_error(method: str, exc: DynamicMcpError) -> Frame:
    return to_answer(Frame(method=method), exc)
