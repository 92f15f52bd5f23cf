"""Clients of the modern revisions and their calls.

Requests of one principal that name the same client and capabilities belong to one client here, since legacy servers
only know sessions. The client ends after it was not used for a while. Requests of an upstream in the middle of a call
are answered `input_required`: the call is parked until its client returns with the answers over another channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from hashlib import sha256

from msgspec import Raw

from dynamic_mcp.client import ID_BYTES, ClientInfo, Transport
from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
)
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import Envelope
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.cache_hints import CacheHint
from dynamic_mcp.proxy.parked_calls import ModernChannel
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import of_upstream
from dynamic_mcp.proxy.subscriptions import LEVELS
from dynamic_mcp.session.answers import disconnected
from dynamic_mcp.session.client_connection import ClientOrigin
from dynamic_mcp.session.listening import Listening, streams_for
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.session.shares import Shares
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.upstream.handshake import complete_info

log = logging.getLogger(__name__)

# Questions within this time are sent to the client together.
_GATHER_S = 0.02
# The number of cached `_meta` objects, and the maximum size of each.
_MAX_RECALLED, _MAX_RECALLED_BYTES = 1024, 1024
# Notifications of legacy revisions that a request may cause.
_RETIRED = frozenset(("notifications/elicitation/complete", "notifications/tasks/status"))

# Codes of earlier revisions, with their replacements (MCP 2026-07-28, basic, error codes).
_RETIRED_CODES = {RESOURCE_NOT_FOUND: INVALID_PARAMS, URL_ELICITATION_REQUIRED: INTERNAL_ERROR}


class ModernClient:
    """A client as groups see it. `calls_in_flight` and `listenings` are what it uses now."""

    is_initialized = True
    is_command = False
    log_level = ""
    is_parked = False

    def __init__(
        self,
        server: ModernServer,
        origin: ClientOrigin,
        hello: ClientInfo,
        *,
        address: str,
        since: float,
        used_at: float,
    ) -> None:
        self.id = secrets.token_hex(ID_BYTES)
        self.address = address
        self.hello = hello
        self.authentication = origin.authentication
        self.transport: Transport = origin.transport
        self.only = origin.only
        self.workspace = origin.workspace
        self.profile = origin.profile
        self.since = since
        self.used_at = used_at
        self.requests = 0
        self.calls = 0
        self.is_closed = False
        self.calls_in_flight: set[ModernCall] = set()
        self.listenings: set[Listening] = set()
        self._server = server

    def __repr__(self) -> str:
        return f"<ModernClient {self.hello.name}, {len(self.calls_in_flight)} in flight>"

    @property
    def client(self) -> ModernClient:
        return self

    @property
    def principal(self) -> Principal:
        return self.authentication.principal

    @property
    def recipient(self) -> ModernClient:
        return self

    @property
    def stream(self) -> ModernClient:
        return self

    @property
    def shared_id(self) -> str:
        sender = [bytes(self.hello.capabilities).decode(), bytes(self.hello.client_info).decode()]
        whole = [self.principal.issuer, self.principal.subject, self.only, self.profile, *sender]
        return sha256(json.dumps(whole).encode()).hexdigest()

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight: no calls, parked ones included, and no streams."""
        return not self.calls_in_flight and not self.listenings

    @property
    def is_busy(self) -> bool:
        """True if calls other than streams are in flight."""
        return len(self.calls_in_flight) > len(self.listenings)

    def has_room(self, frame: Frame) -> bool:
        return True

    def notify(self, frame: Frame) -> None:
        """Send a notification that no request has caused to the streams with its kind."""
        for listening in streams_for(frame, self.listenings):
            listening.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Refuse a request that no call has caused; `roots/list` is answered with the roots of the config."""
        roots = self._server.view_for(self).scope.roots
        if frame.method == "roots/list" and roots:
            return wire.result_frame({"roots": [{"uri": uri} for uri in roots]})
        return wire.error_frame(METHOD_NOT_FOUND, f"`{frame.method}` can only be asked during a call")

    def close(self) -> None:
        """End all calls and streams of the client, and release it in the server."""
        self.is_closed = True
        for call in [*self.calls_in_flight]:
            call.abandon("the client has disconnected")
        for listening in [*self.listenings]:
            listening.close()
        self._server.release(self)


class ModernClients:
    """The clients of a face, by the sender that their requests name, `max_clients` at most."""

    def __init__(
        self,
        server: ModernServer,
        *,
        max_clients: int,
        now: Callable[[], float],
    ) -> None:
        self._server = server
        self.max_clients = max_clients
        self._now = now
        self._clients: dict[Hashable, ModernClient] = {}
        self._recalled: BoundedDict[Hashable, tuple[ModernClient, str]] = BoundedDict(_MAX_RECALLED)
        self._shares = Shares()

    def __iter__(self) -> Iterator[ModernClient]:
        return iter([*self._clients.values()])

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, origin: ClientOrigin, sender: Envelope, channel: ModernChannel) -> ModernClient | None:
        """Return the client of a request, which may be a new one; None if there are too many."""
        key = (origin, bytes(sender.client_info), bytes(sender.capabilities))
        client = self._clients.get(key)
        if client is None:
            if not self._make_room(origin.authentication):
                return None
            hello = ClientInfo(MODERN, sender.capabilities, complete_info(sender.client_info))
            now, address = self._now(), channel.address
            client = ModernClient(self._server, origin, hello, address=address, since=time.time(), used_at=now)
            self._clients[key] = client
            self._shares.add(client)
            self._server.admit(client)
        client.used_at = self._now()
        return client

    def recall(self, origin: ClientOrigin, meta: bytes) -> tuple[ModernClient, str] | None:
        """Return the client and the log level of requests with this `_meta`, if they are cached."""
        recalled = self._recalled.get((origin, meta))
        if recalled is not None:
            recalled[0].used_at = self._now()
        return recalled

    def remember(self, origin: ClientOrigin, meta: bytes, client: ModernClient, log_level: str) -> None:
        """Cache the client of requests with this `_meta`, unless it is too long."""
        if len(meta) <= _MAX_RECALLED_BYTES:
            self._recalled[origin, meta] = client, log_level

    def drop_unused(self, before: float) -> None:
        """End the clients that were not used since then."""
        for client in self:
            if client.is_idle and client.used_at < before:
                self._drop(client)

    def close(self) -> None:
        for client in self:
            self._drop(client)

    def _make_room(self, authentication: Authentication) -> bool:
        """End a client if there are too many; return whether there is room now."""
        most, shares = self.max_clients, self._shares
        if len(self._clients) < most and not shares.is_used_up(authentication, most):
            return True
        ending = shares.choose_to_end(self, authentication, most, unused_since=math.inf)
        if ending is not None:
            self._drop(ending)
        return ending is not None

    def _drop(self, client: ModernClient) -> None:
        self._shares.remove(client)
        self._clients = {key: each for key, each in self._clients.items() if each is not client}
        for key in [key for key, recalled in self._recalled.items() if recalled[0] is client]:
            del self._recalled[key]
        client.close()


class _ParkedQuestion:
    """A request of an upstream to the client."""

    __slots__ = ("frame", "future", "is_sent")

    def __init__(self, frame: Frame, future: asyncio.Future[Frame]) -> None:
        self.frame = frame
        self.future = future
        self.is_sent = False


class ModernCall:
    """One request and its retries. `start` it with its work; `cancel` it while it has a channel.

    `keep` writes the call to the disk before its client is asked, where the work is able to: it takes the questions
    by their keys, and returns the name by which another process goes on, or nothing.
    """

    __slots__ = (
        "__weakref__",
        "_channel",
        "_gathering",
        "_keeping",
        "_loop",
        "_number",
        "_outcome",
        "_params",
        "_question_count",
        "_questions",
        "_round",
        "_server",
        "_task",
        "_undeclared",
        "client",
        "keep",
        "log_level",
        "method",
    )

    _task: asyncio.Task[None]

    def __init__(
        self,
        client: ModernClient,
        method: str,
        params: Raw,
        channel: ModernChannel,
        server: ModernServer,
        *,
        log_level: str = "",
    ) -> None:
        self.client = client
        self.method = method
        self.log_level = log_level
        self._params = params
        self._channel: ModernChannel | None = channel
        self._server = server
        self._questions: dict[str, _ParkedQuestion] = {}
        self._undeclared: dict[str, object] = {}
        self._question_count = 0
        self._number: int | None = None
        self._round = 0
        self._gathering: asyncio.TimerHandle | None = None
        self._outcome: Frame | None = None
        self.keep: Callable[[Mapping[str, Frame]], Awaitable[str]] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<ModernCall {self.method}, {len(self._questions)} questions, round {self._round}>"

    @property
    def principal(self) -> Principal:
        return self.client.principal

    @property
    def is_parked(self) -> bool:
        """True if the call waits for its client to return."""
        return self._channel is None

    @property
    def is_over(self) -> bool:
        """True if the call has been answered, or has ended without an answer."""
        return self not in self.client.calls_in_flight

    @property
    def address(self) -> str:
        """The address of the request or its last retry; that of its client while it is parked."""
        return self.client.address if self._channel is None else self._channel.address

    @property
    def port(self) -> int:
        """The port of the request or its last retry; 0 while it is parked."""
        return 0 if self._channel is None else self._channel.port

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers of the request or its last retry; empty if it came over lines."""
        return getattr(self._channel, "headers", {})

    @property
    def recipient(self) -> ModernCall:
        """The call itself: the client may have other calls, which are independent."""
        return self

    @property
    def stream(self) -> ModernCall:
        return self

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start `work`, which ends with `finish` unless the call is cancelled."""
        self.client.requests += 1
        self.client.calls_in_flight.add(self)
        self._task = self._loop.create_task(work)

    def finish(self, request: Request, answer: Frame) -> None:
        """Answer the request, or keep the answer until the client returns."""
        answer = self._to_modern(answer)
        if self._undeclared and _has_failed(answer):
            answer = _name_undeclared(answer, self._undeclared)
        if self._channel is None:
            self._outcome = answer
        else:
            self._answer(answer)

    def cancel(self, reason: str) -> None:
        """End the call because its client no longer waits for the answer; a parked one continues."""
        if self._channel is not None:
            self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """End the call without an answer, and cancel it upstream."""
        self._channel = None
        self._close()
        if self._task.cancel(reason):
            self._task.add_done_callback(_forget_error)

    def fail(self, answer: Frame) -> None:
        """End the call with this answer, if its client waits for one."""
        channel = self._channel
        self.abandon("the server is shutting down")
        if channel is not None:
            channel.answer(self._to_modern(answer))

    async def wait(self, within_s: float) -> None:
        """Wait for the answer, for this long at most."""
        await asyncio.wait([self._task], timeout=within_s)

    # --- Caller ----------------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification that the request has caused, while its client waits for the answer."""
        if self._channel is None or frame.method in _RETIRED:
            return
        if frame.method != "notifications/message" or self._wants(frame):
            self._channel.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Ask the client; return the answer when it returns."""
        refusal = self._refusal(frame)
        if refusal is not None:
            return refusal
        await self._server.parked_calls.prepare()
        self._question_count += 1
        key = f"{frame.method.partition('/')[0]}-{self._question_count}"
        question = self._questions[key] = _ParkedQuestion(frame, self._loop.create_future())
        self._gather_soon(_GATHER_S)
        try:
            return await question.future
        finally:
            self._questions.pop(key, None)

    def _wants(self, frame: Frame) -> bool:
        level = wire.text(wire.member(frame.params, "level"))
        return bool(self.log_level) and (level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self.log_level))

    def _refusal(self, frame: Frame) -> Frame | None:
        if self.client.is_closed or self._task.done():
            return disconnected()
        if self.method not in envelope.MAY_ASK:
            why = f"clients of this protocol version cannot be asked during `{self.method}`"
            return wire.error_frame(METHOD_NOT_FOUND, why)
        need = envelope.ASKED_WITH.get(frame.method)
        if need is None or not len(wire.member(self.client.hello.capabilities, need)):
            if need is not None:
                self._undeclared[need] = {}
            return wire.error_frame(METHOD_NOT_FOUND, f"the client does not support `{frame.method}`")
        return None

    # --- rounds ----------------------------------------------------------------------------------------

    def resume(self, responses: Mapping[str, Raw], channel: ModernChannel) -> None:
        """Continue with the client's responses; open questions without one are asked again."""
        self._channel = channel
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and question.is_sent and not question.future.done() and _is_object(response):
                question.future.set_result(wire.result_frame(bytes(response)))
        if self._outcome is not None:
            self._answer(self._outcome)
        elif self._open_questions():
            self._gather_soon(0.0)

    def expire(self) -> None:
        """End the call because its client has not returned."""
        log.debug("cancelled a parked call of `%s`: its client has not returned", self.client.hello.name)
        self.abandon("the client did not return with its answers")

    def binding(self, params: Raw) -> bytes:
        """Return what a state of this call is bound to, if these are its params."""
        return binding_of(self.client, self.method, params)

    def _open_questions(self) -> dict[str, _ParkedQuestion]:
        return {key: each for key, each in self._questions.items() if not each.future.done()}

    def _gather_soon(self, delay_s: float) -> None:
        if self._gathering is None and self._channel is not None:
            self._gathering = self._loop.call_later(delay_s, self._send_questions)

    def _send_questions(self) -> None:
        """Answer with all open questions, and wait for the client to return."""
        self._gathering = None
        questions = self._open_questions()
        if self._channel is None or not questions:
            return
        if not self._server.parked_calls.has_room(self.principal):
            why = "too many calls wait for their clients"
            for each in questions.values():
                each.future.set_result(wire.error_frame(INTERNAL_ERROR, why))
            return
        if self.keep is None:
            self._park(questions, "")
        elif self._keeping is None:
            self._keeping = self._loop.create_task(self._keep_and_park(self.keep, questions))

    async def _keep_and_park(
        self, keep: Callable[[Mapping[str, Frame]], Awaitable[str]], questions: Mapping[str, _ParkedQuestion]
    ) -> None:
        kept = await keep({key: each.frame for key, each in questions.items()})
        self._keeping = None
        if self._channel is not None and self._open_questions().keys() == questions.keys():
            self._park(questions, kept)
        else:
            self._gather_soon(0.0)  # others were asked meanwhile, or some need no answer any more

    def _park(self, questions: Mapping[str, _ParkedQuestion], kept: str) -> None:
        self._round += 1
        self._number, state = self._server.parked_calls.park(
            self, self.binding(self._params), number=self._number, round_number=self._round, kept=kept
        )
        for each in questions.values():
            each.is_sent = True
        requests = {key: _to_input_request(each.frame) for key, each in questions.items()}
        result = {"resultType": envelope.INPUT_REQUIRED, "inputRequests": requests, "requestState": state}
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.answer(wire.result_frame(result))

    # --- the end ---------------------------------------------------------------------------------------

    def _to_modern(self, answer: Frame) -> Frame:
        client, server, method = self.client, self._server, self.method
        return _convert_answer(answer, method, server.server_info(client), server.cache_hint(client, method))

    def _answer(self, frame: Frame) -> None:
        channel, self._channel = self._channel, None
        self._close()
        if channel is not None:
            channel.answer(frame)

    def _close(self) -> None:
        self.client.calls_in_flight.discard(self)
        if self._questions:
            for each in self._open_questions().values():
                each.future.set_result(disconnected())
        if self._number is not None:
            self._server.parked_calls.remove(self._number)
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None


def _forget_error(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a cancelled task, which keeps it and all that its frames refer to."""
    with contextlib.suppress(asyncio.CancelledError):
        task.result()


def binding_of(client: ModernClient, method: str, params: Raw) -> bytes:
    """Return a digest of the sender and the content of a request, which its retries share."""
    members = {
        name: value for name, value in _members(params).items() if name not in {*envelope.RETRY_MEMBERS, "_meta"}
    }
    content = {name: wire.value(value) or bytes(value).decode() for name, value in members.items()}
    whole = [client.principal.issuer, client.principal.subject, client.only, method, content]
    return sha256(json.dumps(whole, sort_keys=True).encode()).digest()


def _members(params: Raw) -> dict[str, Raw]:
    return wire.members(params) if len(params) else {}


def _to_input_request(frame: Frame) -> dict[str, Raw | str]:
    """Return a question as an entry of `inputRequests`, without the members for one hop only."""
    request: dict[str, Raw | str] = {"method": frame.method}
    if len(frame.params):
        params = wire.members(frame.params)
        meta = envelope.meta_of(params)
        if "progressToken" in meta:
            del meta["progressToken"]
            params = {**params, "_meta": Raw(wire.encode(meta))} if meta else _without(params, "_meta")
        request["params"] = Raw(wire.encode(params))
    return request


def _without(members: Mapping[str, Raw], name: str) -> dict[str, Raw]:
    return {each: value for each, value in members.items() if each != name}


def _has_failed(answer: Frame) -> bool:
    return len(answer.error) > 0 or bytes(wire.member(answer.result, "isError")) == b"true"


def _name_undeclared(answer: Frame, undeclared: Mapping[str, object]) -> Frame:
    """Return the answer to a call that failed after requesting a capability that its client does not declare."""
    names = " and ".join(f"`{name}`" for name in undeclared)
    why = f"the server needs a client with the capability {names}"
    original = {"error": answer.error} if len(answer.error) else {"result": answer.result}
    return wire.error_frame(MISSING_CAPABILITY, why, {"requiredCapabilities": undeclared, **original})


def _is_object(data: Raw) -> bool:
    return bytes(data)[:1] == b"{"


def _convert_answer(answer: Frame, method: str, server_info: Raw, hint: CacheHint | None) -> Frame:
    """Return an answer for a modern client. `hint` is for results that may be cached."""
    if len(answer.error):
        return _with_current_code(answer)
    if bytes(answer.result)[:1] != b"{":
        return answer
    members = None
    if hint is not None and envelope.result_type(answer.result) == envelope.COMPLETE:
        members = hint.members
    return Frame(result=envelope.as_modern(answer.result, server_info, of_upstream, members))


def _with_current_code(answer: Frame) -> Frame:
    code = wire.value(wire.member(answer.error, "code"))
    if isinstance(code, int) and code in _RETIRED_CODES:
        return Frame(error=wire.with_member(answer.error, _RETIRED_CODES[code], "code"))
    return answer
