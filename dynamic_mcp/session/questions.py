"""Requests to a client, and its messages about them: answers, progress, and the status of tasks."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.answers import disconnected
from dynamic_mcp.system.bounded import BoundedDict

if TYPE_CHECKING:  # loaded where a daemon serves windows
    from dynamic_mcp.session.continuation import SessionJournal

log = logging.getLogger(__name__)

# The limits of remembered client tasks and progress tokens.
_MAX_TASKS = 1000

# The capability that a request needs, by the first word of its method.
_NEEDS = {"sampling": {"sampling"}, "elicitation": {"elicitation"}, "roots": {"roots"}, "tasks": {"tasks"}}
# The capabilities, any of which other requests need.
_EXTENDED = {"experimental", "extensions"}


def may_be_asked(method: str, capabilities: Container[str]) -> bool:
    """Return whether a client with these capabilities supports this request."""
    return any(name in capabilities for name in _NEEDS.get(method.partition("/")[0], _EXTENDED))


class _Question:
    """A request to the client that waits for its answer."""

    __slots__ = ("future", "on_status", "token")

    def __init__(self, future: asyncio.Future[Frame], token: Raw, on_status: Callable[[Frame], None]) -> None:
        self.future = future
        self.token = token
        self.on_status = on_status


class Questions:
    """The requests to one client; `first_id` is the id of the first one."""

    def __init__(self, journal: SessionJournal | None, first_id: int) -> None:
        self._journal = journal
        self._ids = itertools.count(first_id)
        self._in_flight: dict[bytes, _Question] = {}
        self._by_task_id: BoundedDict[bytes, _Question] = BoundedDict(_MAX_TASKS)
        self._by_token: BoundedDict[bytes, _Question] = BoundedDict(_MAX_TASKS)
        self._is_closed = False

    @property
    def are_open(self) -> bool:
        """True if any request waits for its answer."""
        return bool(self._in_flight)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None], send: Callable[[bytes], None]) -> Frame:
        """Send a request and return the client's answer.

        `on_status` gets the client's progress, and the status of a task that it creates.
        """
        number = next(self._ids)
        key = b"%d" % number
        token = wire.member(frame.params, "_meta", "progressToken")
        params = wire.with_member(frame.params, number, "_meta", "progressToken") if len(token) else frame.params
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._in_flight[key] = _Question(future, token, on_status)
        if self._journal is not None:
            self._journal.record_question(number)
        send(wire.request_line(number, frame.method, params or None))
        try:
            return await future
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else "the server no longer needs the answer"
            body = wire.encode({"requestId": number, "reason": reason})
            if not self._is_closed:
                send(wire.notification_line("notifications/cancelled", body))
            raise
        finally:
            self._in_flight.pop(key, None)
            if self._journal is not None:
                self._journal.remove_question(number)

    def take_answer(self, frame: Frame) -> None:
        """Handle an answer of the client; one that no request waits for is dropped."""
        question = self._in_flight.pop(bytes(frame.id), None)
        if question is None or question.future.done():
            log.debug("dropped an unexpected answer from a client")
            return
        question.future.set_result(frame)
        if task := bytes(wire.member(frame.result, "task", "taskId")):
            self._by_task_id[task] = self._by_token[bytes(frame.id)] = question

    def refuse_answer(self, id: bytes, why: str) -> bool:
        """Fail the request whose answer cannot be read; return whether there is one."""
        question = self._in_flight.get(id)
        if question is None or question.future.done():
            return False
        question.future.set_result(wire.error_frame(INVALID_REQUEST, why))
        return True

    def take_status(self, frame: Frame) -> bool:
        """Pass the status of a client's task to its request; return whether there is one."""
        question = self._by_task_id.get(bytes(wire.member(frame.params, "taskId")))
        if question is None:
            return False
        question.on_status(frame)
        return True

    def take_progress(self, frame: Frame) -> None:
        """Pass the client's progress to its request, with the original token."""
        token = bytes(wire.member(frame.params, "progressToken"))
        question = self._in_flight.get(token) or self._by_token.get(token)
        if question is not None and len(question.token):
            params = wire.with_member(frame.params, question.token, "progressToken")
            question.on_status(Frame(method=frame.method, params=params))

    def close(self) -> None:
        """Answer all requests with an error: the client has disconnected."""
        self._is_closed = True
        for question in self._in_flight.values():
            if not question.future.done():
                question.future.set_result(disconnected())
        self._by_task_id.clear()
        self._by_token.clear()
