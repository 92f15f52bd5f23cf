"""One live connection to an upstream: answers are matched to requests by id, and requests go both ways.

A link never reconnects. An answer that matches no waiting request is counted and dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.client import Caller
from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    DynamicMcpError,
    LinkLost,
    NotSent,
    ProtocolViolation,
    TimedOut,
)
from dynamic_mcp.mcp import lines, own_meta, wire
from dynamic_mcp.mcp.wire import ABSENT, Frame
from dynamic_mcp.observe.log_output import STDOUT, group_logger
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.call import Transport, UpstreamCall, UpstreamQuestion

log = logging.getLogger(__name__)
skipped = logging.getLogger(STDOUT)

_LONGEST_GARBAGE_SHOWN = 200
_RETURN, _BRACE = b"\r{"  # a search for a number is several times as fast as `find` and `startswith`
# Questions of the upstream that the client of one call is asked.
MAX_QUESTIONS = 50
# Calls that became tasks, whose progress tokens are remembered.
_MAX_TASKS = 1000


class LinkOwner(Protocol):
    """The instance behind a link."""

    def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
        """Return a request of the upstream in the form for `caller`'s client."""
        ...

    def choose_caller(self, frame: Frame, callers: Sequence[Caller]) -> Caller | None:
        """Return the caller that answers a request of the upstream, among `callers` in flight, one for each client.

        None if the request could be meant for several clients.
        """
        ...

    def receive_notification(
        self, frame: Frame, callers: Sequence[Caller] | None, *, may_be_late: bool = False
    ) -> None:
        """Called with a notification that names no call, and the calls that it may be about, one for each client.

        They are the one call in whose answer it came, else all in flight. None: that call is over. What comes over
        another stream than answers `may_be_late`: it may be about a call that has been answered meanwhile.
        """
        ...

    def link_lost(self, link: AnyLink, error: LinkLost) -> None:
        """Called when a link has ended."""
        ...


class Link:
    """A connection to the upstream of `group`; `pid` is its process, if we started one.

    `mask` removes the secrets of the config from logged output that is not MCP.
    """

    is_modern = has_streams = False

    def __init__(
        self,
        group: str,
        transport: Transport,
        listener: LinkOwner,
        mask: Callable[[str], str] = str,
    ) -> None:
        self.group = group
        self.pid: int | None = None
        self._logger = group_logger(log, group)
        self.dropped = 0
        self.loss: LinkLost | None = None
        self._transport = transport
        self.listener = listener
        self._mask = mask
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._calls: dict[bytes, UpstreamCall] = {}
        self._alarm = _Alarm(self._loop, self._expire)
        self._tasks: BoundedDict[bytes, UpstreamCall] = BoundedDict(_MAX_TASKS)
        self._questions: dict[bytes, UpstreamQuestion] = {}
        self._closing: asyncio.Task[None] | None = None
        self._garbage = 0
        self._joiner = lines.MultilineJoiner()

    # --- to the upstream -------------------------------------------------------------------------------

    def number_from(self, number: int) -> None:
        """Number requests from here on."""
        self._ids = itertools.count(number)

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None = None,
        *,
        timeout_s: float,
        caller: Caller | None = None,
        label: str = "",
    ) -> Frame:
        """Send a request and return the answer, be it a result or an error.

        `label` names the request in messages. A progress token in `params` is replaced on the way out and restored in
        notifications. When the awaiting task is cancelled, and on timeout, the upstream is sent a cancellation.
        Raises TimedOut, LinkLost, NotSent and ProtocolViolation.
        """
        if self.loss is not None:
            raise NotSent(self.group, self.loss.reason)
        number = next(self._ids)
        key = wire.encode(number)
        now = self._loop.time()
        call = UpstreamCall(
            method, label or method, caller, timeout_s, now, now + timeout_s, self._loop.create_future()
        )
        if params is not None and "_meta" in params:
            params = self._with_own_token(params, key, call)
        self._transport.send(wire.request_line(number, method, params))
        self._calls[key] = call
        if call.deadline < self._alarm.at:
            self._alarm.ring_by(call.deadline)
        try:
            return await call.future
        except asyncio.CancelledError as exc:
            self._abandon(key, exc.args[0] if exc.args else "the request was cancelled")
            raise
        finally:
            self._calls.pop(key, None)

    async def is_alive(self, within_s: float) -> bool:
        try:
            await self.request("ping", timeout_s=within_s)
        except (TimedOut, LinkLost):
            return False
        except DynamicMcpError as exc:
            self._logger.debug("group %s: an odd answer to ping: %s", self.group, exc.message)
        return True

    def is_asking(self) -> bool:
        return bool(self._questions)

    def notify(self, method: str, params: bytes | Raw = ABSENT) -> None:
        if self.loss is None:
            try:
                self._transport.send(wire.notification_line(method, params))
            except NotSent as exc:
                self._logger.debug("group %s: %s was not sent: %s", self.group, method, exc.reason)

    def forget(self, client: Hashable) -> None:
        """Stop passing on the progress of a client's tasks."""
        for key in [key for key, call in self._tasks.items() if call.caller and call.caller.client == client]:
            del self._tasks[key]

    def is_awaiting(self, id: bytes) -> bool:
        return id in self._calls

    def left_s(self, id: bytes) -> float:
        """Return the seconds that a request may still wait for its answer; 0 if it no longer waits."""
        call = self._calls.get(id)
        return max(0.0, call.deadline - self._loop.time()) if call is not None else 0.0

    async def close(self) -> None:
        """End the link; requests in flight fail, with the reason for which the upstream ended where that is known.

        The end runs once and completely, even if a waiting task is cancelled or closes the link again.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._transport.close()
        finally:
            self._end(LinkLost(self.group, "the link was closed"))

    def _with_own_token(self, params: Mapping[str, Raw], key: bytes, call: UpstreamCall) -> Mapping[str, Raw]:
        token = wire.member(params["_meta"], "progressToken")
        if not len(token):
            return params
        call.token = token
        call.is_task = "task" in params
        return {**params, "_meta": wire.with_member(params["_meta"], Raw(key), "progressToken")}

    def _expire(self) -> None:
        """Fail the calls whose time is over; set the alarm for the others."""
        now = self._loop.time()
        for key, call in [*self._calls.items()]:
            if call.deadline <= now and self._is_asking(call.caller):
                call.extend(now)  # the upstream cannot go on before the client has answered
            if call.deadline <= now:
                self._abandon(key, "the request timed out")
                hint = "`timeout` in the config allows more time"
                if not call.is_harmless():
                    hint = f"it was cancelled, but it may have run; {hint}"
                why = f"{call.label} was not answered within {call.timeout_s:g} s"
                call.fail(TimedOut(self.group, why, hint=hint))
        if self._calls:
            self._alarm.ring_by(min(call.deadline for call in self._calls.values()))

    def _abandon(self, key: bytes, reason: str) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.is_cancellable():
            body = wire.encode({"requestId": int(key), "reason": reason})
            self.notify("notifications/cancelled", body)

    # --- from the upstream -----------------------------------------------------------------------------

    def receive(self, line: bytes, for_id: bytes | None = None) -> None:
        """Receive one line from the transport, in any condition.

        A transport that receives whole messages passes `for_id`: the id of the request in whose answer the message
        came, or empty. Only lines can be parts of a message.
        """
        line = self._joiner.feed(line) if for_id is None else line
        if not line:
            return
        if isinstance(line, lines.Oversized):
            self._take_unreadable(line, f"sent a message of {line.size} bytes, over `max_message_bytes`")
            return
        if _RETURN in line and line.find(b"\r", 0, -1) >= 0:
            line = lines.on_one_line(line)  # white space to JSON, and the end of a line to some clients
        if line[0] == _BRACE or not wire.is_batch(line):
            self._receive_one(line, for_id or b"")
            return
        try:
            messages: Iterable[bytes] = map(bytes, wire.batch(line))
        except wire.Malformed:
            messages = (line,)
        for message in messages:
            self._receive_one(message, for_id or b"")

    def _receive_one(self, message: bytes, for_id: bytes) -> None:
        try:
            frame = wire.parse(message)
        except wire.Malformed as exc:
            self._take_unreadable(message, f"sent a message that cannot be read: {exc}")
        else:
            if own_meta.may_be_in(message):
                own_meta.rename_in(frame)
            if frame.method:
                self._dispatch(frame, for_id)
            else:
                self._take_answer(frame)

    def fail_request(self, id: bytes, error: DynamicMcpError) -> None:
        """Fail one request whose exchange with the upstream has broken."""
        call = self._calls.pop(id, None)
        if call is None:
            return
        if isinstance(error, LinkLost) and not isinstance(error, NotSent):
            call.lose(error)
        else:
            call.fail(error)

    def lose(self, error: LinkLost) -> None:
        """Fail everything in flight at once, because the connection has ended."""
        if self.loss is None:
            self._end(error)
            self.listener.link_lost(self, error)

    def _end(self, error: LinkLost) -> None:
        if self.loss is not None:
            return
        self.loss = error
        self._alarm.stop()
        for call in self._calls.values():
            call.lose(error)
        self._calls.clear()
        self._tasks.clear()
        for question in self._questions.values():
            question.task.cancel()

    def _dispatch(self, frame: Frame, for_id: bytes) -> None:
        if len(frame.id):
            self._take_request(frame, for_id)
        elif frame.method == "notifications/progress":
            self._pass_progress_on(frame)
        elif frame.method == "notifications/cancelled":
            self._withdraw_question(frame)
        else:  # behind the answers that came before it, which take a turn of the loop
            may_be_late = self.has_streams and not for_id
            receive = partial(self.listener.receive_notification, may_be_late=may_be_late)
            self._loop.call_soon(receive, frame, self._callers(for_id))

    def _take_answer(self, frame: Frame) -> None:
        call = self._calls.pop(bytes(frame.id), None)
        if call is None or call.future.done():
            self.dropped += 1
            self._logger.debug("group %s: dropped an unexpected answer (%d so far)", self.group, self.dropped)
        elif bool(len(frame.result)) == bool(len(frame.error)):
            why = f"answered {call.label} with neither or both of result and error"
            call.fail(ProtocolViolation(self.group, why))
        else:
            call.future.set_result(frame)
            if call.is_task and len(wire.member(frame.result, "task", "taskId")):
                self._remember_task(bytes(frame.id), call)

    def _remember_task(self, key: bytes, call: UpstreamCall) -> None:
        """Keep the progress token of a call that goes on as a task after its answer (MCP 2025-11-25, tasks)."""
        self._tasks[key] = call

    def _pass_progress_on(self, frame: Frame) -> None:
        token = bytes(wire.member(frame.params, "progressToken"))
        call = self._calls.get(token) or self._tasks.get(token)
        if call is None or not len(call.token):
            return
        call.extend(self._loop.time())
        if call.caller is not None:
            params = wire.with_member(frame.params, call.token, "progressToken")
            self._loop.call_soon(call.caller.notify, Frame(method=frame.method, params=params))

    def _take_unreadable(self, line: bytes, reason: str) -> None:
        """Fail the call that a broken line answers, if the line names one; otherwise skip the line."""
        id = lines.find_response_id(line)
        call = self._calls.pop(bytes(id), None) if id is not None else None
        if call is not None:
            call.fail(ProtocolViolation(self.group, reason, hint=f"{call.label} ran, but its answer was lost"))
            return
        self._garbage += 1
        if self._garbage & (self._garbage - 1) == 0:  # the first, second, fourth, eighth, …
            shown = self._mask(line[:_LONGEST_GARBAGE_SHOWN].decode("utf-8", "replace"))
            group_logger(skipped, self.group).warning(
                "group %s: skipped a line that is not an MCP message (%d so far): %r",
                self.group,
                self._garbage,
                shown,
            )

    # --- requests of the upstream ----------------------------------------------------------------------

    def _take_request(self, frame: Frame, for_id: bytes) -> None:
        if frame.method == "ping":
            self._reply(frame.id, wire.result_frame(b"{}"))
            return
        callers = self._callers(for_id) or []
        caller = next(iter(callers), None) if for_id else self.listener.choose_caller(frame, callers)
        if caller is None:
            self._reply(frame.id, wire.error_frame(METHOD_NOT_FOUND, f"no client can be asked `{frame.method}`"))
            return
        key = bytes(frame.id)
        if key in self._questions:
            self._logger.debug("group %s: dropped a second request with the id %s", self.group, key)
            return
        if not self._may_ask(caller):
            why = f"no more than {MAX_QUESTIONS} questions are passed on while one call is answered"
            self._reply(frame.id, wire.error_frame(INVALID_REQUEST, why))
            return
        try:
            question = self.listener.prepare_question(frame, caller)
        except DynamicMcpError as exc:
            self._reply(frame.id, wire.error_frame(exc.rpc_code, str(exc)))
            return
        self._questions[key] = UpstreamQuestion(
            caller, self._loop.create_task(self._pass_question_on(caller, question))
        )

    def _may_ask(self, caller: Caller) -> bool:
        """Count a question, and return whether its client may still be asked it."""
        call = next((each for each in self._calls.values() if each.caller is caller), None)
        if call is not None:
            call.questions += 1
            return call.questions <= MAX_QUESTIONS
        return len(self._questions) < MAX_QUESTIONS

    def _callers(self, for_id: bytes) -> list[Caller] | None:
        """Return the callers that a message may be about: that of its stream, else the latest call of each recipient.

        A recipient that has several streams for its calls counts as itself, as such a client may be a gateway: each
        of its calls may be for somebody else. Parked calls count if there are no others. None if it came in the
        stream of a call that is over.
        """
        if for_id:
            call = self._calls.get(for_id)
            return [call.caller] if call is not None and call.caller is not None else None
        latest: dict[Caller, Caller] = {}
        for call in reversed(self._calls.values()):
            if (caller := call.caller) is not None:
                recipient = caller.recipient
                if latest.setdefault(recipient, caller).stream != caller.stream:
                    latest[recipient] = recipient
        return [each for each in latest.values() if not each.is_parked] or list(latest.values())

    def _is_asking(self, caller: Caller | None) -> bool:
        """Return whether the upstream waits for an answer of this caller's client."""
        waiting = (each.caller for each in self._questions.values())
        return caller is not None and any(each.recipient == caller.recipient for each in waiting)

    async def _pass_question_on(self, caller: Caller, frame: Frame) -> None:
        try:
            self._reply(frame.id, await caller.ask(frame, self._pass_status_on))
        except DynamicMcpError as exc:
            self._reply(frame.id, wire.error_frame(exc.rpc_code, str(exc)))
        except Exception:
            self._logger.exception("group %s: passing on %s failed", self.group, frame.method)
            self._reply(frame.id, wire.error_frame(INTERNAL_ERROR, "internal error of the proxy"))
        finally:
            question = self._questions.get(bytes(frame.id))
            if question is not None and question.task is asyncio.current_task():
                self._end_question(bytes(frame.id))

    def _end_question(self, key: bytes) -> UpstreamQuestion | None:
        """Remove a question; the timeouts of the calls that waited for its answer restart."""
        question = self._questions.pop(key, None)
        for call in self._calls.values():
            if question is not None and call.caller and question.caller.recipient == call.caller.recipient:
                call.extend(self._loop.time())
        return question

    def _pass_status_on(self, frame: Frame) -> None:
        self.notify(frame.method, frame.params)

    def _reply(self, id: Raw, answer: Frame) -> None:
        if self.loss is None:
            try:
                self._transport.send(wire.answer_line(id, answer))
            except NotSent as exc:
                self._logger.debug("group %s: an answer was not sent: %s", self.group, exc.reason)

    def _withdraw_question(self, frame: Frame) -> None:
        """Cancel a request of the upstream, which no longer wants the answer."""
        question = self._end_question(bytes(wire.member(frame.params, "requestId")))
        if question is not None:
            question.task.cancel(wire.text(wire.member(frame.params, "reason")))


class _Alarm:
    """Calls `on_ring` once, at `at`, the first of the times that were set, and drops the others.

    A timer for each call would cost more than everything else that a call needs of the loop.
    """

    __slots__ = ("_loop", "_on_ring", "_timer", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], None]) -> None:
        self._loop = loop
        self._on_ring = on_ring
        self.at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def ring_by(self, time: float) -> None:
        """Ring at this time of the loop at the latest."""
        if time < self.at:
            self.stop()
            self.at = time
            self._timer = self._loop.call_at(time, self._ring)

    def stop(self) -> None:
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self.at, self._timer = math.inf, None
        self._on_ring()
