"""A link to a modern upstream, for clients of both eras: each request carries everything that the upstream must know.

Modern clients get answers unchanged. Other clients, and the proxy itself, get the answers of a legacy server:
questions in an answer are put to the client, and the request is sent again with the client's answers, as the protocol
defines it (MCP 2026-07-28, multi round-trip requests).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import cast

from msgspec import Raw

from dynamic_mcp.client import Caller, Client
from dynamic_mcp.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNSUPPORTED_VERSION,
    DynamicMcpError,
    ErrorAnswer,
    HttpError,
    InvalidArguments,
    LinkLost,
    NotSent,
    ProtocolViolation,
    TimedOut,
    Unanswered,
)
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import ASKED_WITH
from dynamic_mcp.mcp.mirrored_headers import ToolHeaders
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import ABSENT, Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.call import PROGRESS_EXTENDS_TO
from dynamic_mcp.upstream.handshake import ServerInfo, error_code
from dynamic_mcp.upstream.link import MAX_QUESTIONS, Link, LinkOwner
from dynamic_mcp.upstream.modern_stamp import Stamp
from dynamic_mcp.upstream.modern_subscription import ModernSubscription

log = logging.getLogger(__name__)

# Limit for sending one call again with more input.
MAX_ROUNDS = 10
# The first delay before a request is sent again if the upstream asked no question.
_RETRY_AFTER_S, _LONGEST_RETRY_S = 0.05, 2.0
# The log level of legacy clients that have not set one.
_UNNAMED_LEVEL = "info"
# A link begins to number its requests below this.
_IDS_FROM = 1 << 31
# Notifications to legacy upstreams that modern ones do not know.
_LEGACY_NOTIFICATIONS = frozenset(
    (
        "notifications/initialized",
        "notifications/progress",
        "notifications/cancelled",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    )
)
_CANCELLED = b'"notifications/cancelled"'
# Longer lines are not searched for it.
_LONGEST_CANCELLATION = 4096
# Statuses that a legacy server answers to a request of no session.
_MAYBE_LEGACY = frozenset((400, 404, 405, 410))
_HINTS = (envelope.TTL_MS, envelope.CACHE_SCOPE)
_Prepare = Callable[[Frame, Caller], Frame]


class ModernLink:
    """A link to an upstream that has answered `server/discover`; `link` carries its requests.

    It owns `link`, and passes messages on to `listener` in the form of a legacy upstream. `tool_headers` are those of
    HTTP, and `is_still_modern` asks a server there whether another one has replaced it.
    """

    is_modern = True

    def __init__(
        self,
        link: Link,
        listener: LinkOwner,
        stamp: Stamp,
        server: ServerInfo,
        *,
        tool_headers: ToolHeaders | None = None,
        is_still_modern: Callable[[], Awaitable[bool]] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.group = link.group
        self._logger = group_logger(log, link.group)
        self._link = link
        self._listener = listener
        self._stamp = stamp
        self._tool_headers = tool_headers
        self._is_still_modern = is_still_modern
        self._jitter = jitter
        self._closing: asyncio.Task[None] | None = None
        self._level = _UNNAMED_LEVEL if "logging" in server.capabilities else ""
        self._questions = _ModernQuestions(link.group, self._capabilities_of, listener.prepare_question)
        self._subscription = ModernSubscription(link, stamp, server, self._pass_on, jitter=jitter)
        link.listener = self
        # the retry of a request has another id (basic/patterns/mrtr), also over another link or by another process
        link.number_from(1 + int(jitter() * _IDS_FROM))

    # --- as `Link` -------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return self._link.pid

    @property
    def loss(self) -> LinkLost | None:
        return self._link.loss

    @property
    def dropped(self) -> int:
        return self._link.dropped

    @property
    def has_streams(self) -> bool:
        return self._link.has_streams

    def start_listening(self) -> None:
        """Subscribe to changes at the upstream."""
        self._subscription.start()

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None = None,
        *,
        timeout_s: float,
        caller: Caller | None = None,
        label: str = "",
    ) -> Frame:
        """Send a request and return the answer, in the form of the caller's era.

        Raises TimedOut, LinkLost, NotSent, ProtocolViolation and Unanswered.
        """
        if method in _REPLACED:
            return await self._replace(method, params or {}, timeout_s)
        if caller is not None and cast(Client, caller.client).hello.revision.is_stateless:
            return await self._send(method, params, timeout_s, caller, label, caller.log_level)
        level = self._level if caller is not None else ""
        began = asyncio.get_running_loop().time()
        answer = await self._send(method, params, timeout_s, caller, label, level)
        kind, answer = self._read(answer, method, label, is_own=caller is None)
        if kind == envelope.COMPLETE:
            return answer
        if caller is None or method not in envelope.MAY_ASK:
            raise ProtocolViolation(self.group, f"asks for input to answer {label or method}, which is not allowed")
        until = began + timeout_s * PROGRESS_EXTENDS_TO
        return await self._drive(answer.result, method, params, timeout_s, caller, label or method, until)

    async def is_alive(self, within_s: float) -> bool:
        try:
            await self._discover(within_s)
        except (TimedOut, LinkLost):
            return False
        except DynamicMcpError as exc:
            self._logger.debug("group %s: an odd answer to server/discover: %s", self.group, exc.message)
        return True

    def is_asking(self) -> bool:
        return self._questions.are_open()

    def notify(self, method: str, params: bytes | Raw = ABSENT) -> None:
        """Send a notification if modern upstreams know it; a lost link drops it."""
        if method not in _LEGACY_NOTIFICATIONS:
            self._link.notify(method, params)

    def forget(self, client: Hashable) -> None:
        self._link.forget(client)

    async def close(self) -> None:
        """End the link; requests in flight fail, and questions are withdrawn.

        The end runs once and completely, even if a waiting task is cancelled or closes the link again.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._questions.end()
        try:
            await self._subscription.close()
        finally:
            await self._link.close()

    # --- requests --------------------------------------------------------------------------------------

    async def _send(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        timeout_s: float,
        caller: Caller | None,
        label: str,
        level: str,
    ) -> Frame:
        stamp = self._stamp
        if stamp.is_common and caller is not None:
            stamp = stamp.of_client(cast(Client, caller.client).hello)
        stamped = stamp.params(params, level)
        try:
            answer = await self._link.request(method, stamped, timeout_s=timeout_s, caller=caller, label=label)
        except HttpError as exc:
            if exc.status in _MAYBE_LEGACY:
                await self._check_era()
            raise
        if self._tool_headers is None:
            return answer
        if len(answer.error) and error_code(answer) == UNSUPPORTED_VERSION:
            await self._check_era()
        if len(answer.error) and method == "tools/call" and error_code(answer) == HEADER_MISMATCH:
            # refused by its headers, so it has not run
            try:
                await self._learn_tools(timeout_s)
            except DynamicMcpError as exc:
                self._logger.debug("group %s: the tools cannot be read: %s", self.group, exc.message)
                return answer
            return await self._link.request(method, stamped, timeout_s=timeout_s, caller=caller, label=label)
        if method == "tools/list":
            self._tool_headers.learn(answer.result)
        return answer

    def _capabilities_of(self, caller: Caller) -> Mapping[str, Raw]:
        return self._stamp.of_client(cast(Client, caller.client).hello).capabilities

    async def _check_era(self) -> None:
        """End the link if the server now has another era, so that the next link detects the era again."""
        try:
            is_modern = self._is_still_modern is None or await self._is_still_modern()
        except ErrorAnswer:
            is_modern = False
        except DynamicMcpError:
            return  # nothing is known
        if not is_modern:
            self._link.lose(LinkLost(self.group, f"the server no longer supports {MODERN.name}"))

    async def _learn_tools(self, timeout_s: float) -> None:
        """Read the tools for the headers of their calls; the catalog reads them too."""
        changed = Frame(method="notifications/tools/list_changed")
        self._listener.receive_notification(changed, ())
        assert self._tool_headers is not None
        cursors, params = set[bytes](), dict[str, Raw]()
        while True:
            answer = await self._link.request("tools/list", self._stamp.params(params), timeout_s=timeout_s)
            self._tool_headers.learn(answer.result)
            cursor = wire.member(answer.result, "nextCursor")
            if not len(cursor) or bytes(cursor) == b"null" or bytes(cursor) in cursors:
                return
            cursors.add(bytes(cursor))
            params = {"cursor": cursor}

    async def _drive(
        self,
        result: Raw,
        method: str,
        params: Mapping[str, Raw] | None,
        timeout_s: float,
        caller: Caller,
        label: str,
        until: float,
    ) -> Frame:
        """Answer the upstream's questions until it answers; the client's time does not count as the upstream's."""
        delays_s = delays(_RETRY_AFTER_S, _LONGEST_RETRY_S, self._jitter)
        loop = asyncio.get_running_loop()
        questions = 0
        for _ in range(MAX_ROUNDS):
            requests, state = wire.member(result, "inputRequests"), wire.member(result, "requestState")
            questions += _count(requests)
            if questions > MAX_QUESTIONS:
                raise ProtocolViolation(self.group, f"asks more than {MAX_QUESTIONS} questions to answer {label}")
            additions = {"requestState": state} if len(state) else {}
            if len(requests):
                additions["inputResponses"] = await self._questions.ask(requests, caller, label=label, until=until)
            elif len(state):
                await asyncio.sleep(next(delays_s))
            else:
                raise ProtocolViolation(self.group, f"asks for input to answer {label} without saying what")
            left_s = min(timeout_s, until - loop.time())
            if left_s <= 0:
                raise TimedOut(self.group, f"{label} was not answered in time")
            try:
                answer = await self._send(method, {**(params or {}), **additions}, left_s, caller, label, self._level)
            except NotSent as exc:  # the first of the requests was sent
                hint = f"{label} may have run; it was not sent again"
                raise LinkLost(self.group, exc.reason, hint=hint) from exc
            kind, answer = self._read(answer, method, label, is_own=False)
            if kind == envelope.COMPLETE:
                return answer
            result = answer.result
        raise ProtocolViolation(self.group, f"asked for input {MAX_ROUNDS + 1} times to answer {label}")

    def _read(self, answer: Frame, method: str, label: str, *, is_own: bool) -> tuple[str, Frame]:
        """Return the type of an answer; a complete answer is returned in the form of a legacy server."""
        if not len(answer.result):
            return envelope.COMPLETE, answer
        try:
            members = wire.members(answer.result)
        except wire.Malformed:
            return envelope.COMPLETE, answer
        kind = wire.text(members.pop(envelope.RESULT_TYPE, None)) or envelope.COMPLETE
        if kind == envelope.INPUT_REQUIRED:
            return kind, answer
        if kind != envelope.COMPLETE:
            what = f"answered {label or method} with a result of the type `{kind[:40]}`"
            raise ProtocolViolation(self.group, f"{what}, which the client does not know")
        meta = envelope.meta_of(members)
        if meta.pop(envelope.SERVER_INFO, None) is not None:
            members["_meta"] = Raw(wire.encode(meta))
            if not meta:
                del members["_meta"]
        hints = [members.pop(hint, None) for hint in (() if is_own else _HINTS)]
        answer.result = Raw(wire.encode(members))
        return kind, _with_hints(answer, *hints) if any(hints) else answer

    # --- requests that modern upstreams do not know ----------------------------------------------------

    async def _replace(self, method: str, params: Mapping[str, Raw], timeout_s: float) -> Frame:
        match method:
            case "ping":
                answer = await self._discover(timeout_s)
                return answer if len(answer.error) else wire.result_frame(b"{}")
            case "logging/setLevel":
                self._level = wire.text(params.get("level")) or ""
                return wire.result_frame(b"{}")
            case "resources/subscribe":
                uri = wire.text(params.get("uri")) or ""
                if await self._subscription.add(uri, timeout_s):
                    return wire.result_frame(b"{}")
                return wire.error_frame(INVALID_PARAMS, f"the server does not report changes of `{uri}`")
            case _:
                await self._subscription.remove(wire.text(params.get("uri")) or "", timeout_s)
                return wire.result_frame(b"{}")

    async def _discover(self, within_s: float) -> Frame:
        return await self._link.request("server/discover", self._stamp.params(), timeout_s=within_s)

    # --- LinkOwner of the plain link -------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """Receive one line of a transport that all messages share."""
        if len(line) <= _LONGEST_CANCELLATION and _CANCELLED in line:
            try:
                frame = wire.parse(line)
            except wire.Malformed:
                frame = Frame()
            if frame.method == "notifications/cancelled":
                id = bytes(wire.member(frame.params, "requestId"))
                asyncio.get_running_loop().call_soon(self._subscription.end, id)  # after what came before it
                return
        self._link.receive(line)

    def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
        """Return a request of the upstream unchanged; modern upstreams send none."""
        return frame

    def choose_caller(self, frame: Frame, callers: Sequence[Caller]) -> Caller | None:
        """Return None: a modern upstream asks questions only in its answers."""
        return None

    def receive_notification(
        self, frame: Frame, callers: Sequence[Caller] | None, *, may_be_late: bool = False
    ) -> None:
        if not self._subscription.take(frame):
            self._listener.receive_notification(frame, callers, may_be_late=may_be_late)

    def link_lost(self, link: AnyLink, error: LinkLost) -> None:
        """Called when the plain link has ended, which ends this one."""
        self._questions.end()
        self._listener.link_lost(self, error)

    def _pass_on(self, frame: Frame) -> None:
        """Pass on a notification of the upstream in the form of a legacy server."""
        self._listener.receive_notification(frame, ())


def _with_hints(answer: Frame, ttl_ms: Raw | None, cache_scope: Raw | None) -> Frame:
    return wire.HintedFrame(
        jsonrpc=answer.jsonrpc, id=answer.id, result=answer.result, ttl_ms=ttl_ms, cache_scope=cache_scope
    )


_REPLACED = frozenset(("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"))


def _count(requests: Raw) -> int:
    try:
        return len(wire.members(requests)) if len(requests) else 0
    except wire.Malformed:
        return 0


class _ModernQuestions:
    """The open questions of one link to clients; `capabilities_of` returns the capabilities of a caller's client.

    All questions of one answer are put to the client at once, each as a separate request.
    """

    def __init__(self, group: str, capabilities_of: Callable[[Caller], Mapping[str, Raw]], prepare: _Prepare) -> None:
        self._group = group
        self._capabilities_of = capabilities_of
        self._prepare = prepare
        self._tasks: set[asyncio.Task[Raw]] = set()

    def are_open(self) -> bool:
        return bool(self._tasks)

    def end(self) -> None:
        """Withdraw all questions, because no request waits for the answers."""
        for task in self._tasks:
            task.cancel("the server disconnected")

    async def ask(self, requests: Raw, caller: Caller, *, label: str, until: float) -> Raw:
        """Return `inputResponses` for `inputRequests`, by the time `until` of the loop.

        Raises Unanswered, ProtocolViolation, TimedOut and, after `end`, LinkLost.
        """
        declared = self._capabilities_of(caller)
        frames = {
            key: self._read(request, caller, declared, label)
            for key, request in self._members(requests, label).items()
        }
        loop = asyncio.get_running_loop()
        tasks = {key: loop.create_task(self._ask(frame, caller, label)) for key, frame in frames.items()}
        self._tasks.update(tasks.values())
        reason = "the server no longer needs the answer"
        try:
            left_s = until - loop.time()
            await asyncio.wait(
                tasks.values(),
                timeout=None if left_s == math.inf else max(0.0, left_s),
                return_when=asyncio.FIRST_EXCEPTION,
            )
            return self._collect(tasks, label)
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else reason
            raise
        finally:
            self._tasks.difference_update(tasks.values())
            for task in tasks.values():
                task.cancel(reason)

    def _collect(self, tasks: Mapping[str, asyncio.Task[Raw]], label: str) -> Raw:
        done = [task for task in tasks.values() if task.done()]
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if any(task.cancelled() for task in done):
            why = "ended while the client was asked"
            raise LinkLost(self._group, why, hint=f"{label} may have run; it was not sent again")
        if len(done) < len(tasks):
            raise TimedOut(self._group, f"the client did not answer in time a request that {label} depends on")
        return Raw(wire.encode({key: task.result() for key, task in tasks.items()}))

    async def _ask(self, frame: Frame, caller: Caller, label: str) -> Raw:
        answer = await caller.ask(frame, _ignore)
        if len(answer.error):
            message = wire.text(wire.member(answer.error, "message")) or "an error without a message"
            why = f"{label} needs the client to answer `{frame.method}`, but it refused: {message}"
            raise Unanswered(self._group, why)
        return answer.result

    def _members(self, requests: Raw, label: str) -> dict[str, Raw]:
        try:
            return wire.members(requests)
        except wire.Malformed:
            raise ProtocolViolation(self._group, f"answered {label} with malformed `inputRequests`") from None

    def _read(self, request: Raw, caller: Caller, capabilities: Mapping[str, Raw], label: str) -> Frame:
        """Return a question as a request to a legacy client, if the client has the capability for it."""
        method, params = wire.text(wire.member(request, "method")) or "", wire.member(request, "params")
        capability = ASKED_WITH.get(method)
        if capability is None:
            why = f"answered {label} with a request `{method[:40]}`, which clients do not answer"
            raise ProtocolViolation(self._group, why)
        is_url = wire.text(wire.member(params, "mode")) == "url"
        declared = capabilities.get(capability)
        if declared is None or (is_url and capability == "elicitation" and not len(wire.member(declared, "url"))):
            what = f"`{method}` with a URL" if is_url else f"`{method}`"
            why = f"{label} needs the client to answer {what}, which the client does not support"
            raise Unanswered(self._group, why, hint="use a client that supports it")
        if is_url and not len(wire.member(params, "elicitationId")):
            params = wire.with_member(params, uuid.uuid4().hex, "elicitationId")  # legacy clients require it
        try:
            return self._prepare(Frame(method=method, params=params), caller)
        except InvalidArguments as exc:
            raise Unanswered(self._group, f"{label} {exc.message}") from exc


def _ignore(_: Frame) -> None:
    """Drop the progress of the client, which a modern upstream cannot receive."""
