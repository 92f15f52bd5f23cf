"""The requests that are made to a client, and what it says to them: answers, progress, and the status of tasks."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Container
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.session.answers import gone
from dynamic_mcp.system.bounded import BoundedDict

log = logging.getLogger(__name__)

# Tasks of the client whose askers are remembered, and as many progress tokens.
_MAX_TASKS = 1000


# What a client must have declared to be asked this: by the first word of the method.
_NEEDS = {"sampling": {"sampling"}, "elicitation": {"elicitation"}, "roots": {"roots"}, "tasks": {"tasks"}}
# What it must have declared, one or the other, to be asked what the protocol does not know.
_EXTENDED = {"experimental", "extensions"}


def may_be_asked(method: str, capabilities: Container[str]) -> bool:
    """Tell whether a client with these capabilities may be asked this."""
    return any(name in capabilities for name in _NEEDS.get(method.partition("/")[0], _EXTENDED))


class Journal(Protocol):
    """Remembers what another process must know to go on with a session."""

    def note_answer(self, request: Request, answer: Frame) -> None:
        """Note a request of the client and its answer."""
        ...

    def note_question(self, id: int) -> None:
        """Note a request to the client that is in flight."""
        ...

    def forget_question(self, id: int) -> None:
        """Note that a request to the client is no longer in flight."""
        ...


class _Question:
    """A request to the client that waits for its answer."""

    __slots__ = ("future", "on_status", "token")

    def __init__(self, future: asyncio.Future[Frame], token: Raw, on_status: Callable[[Frame], None]) -> None:
        self.future = future
        self.token = token
        self.on_status = on_status


class Questions:
    """What one client is being asked; `first_id` is the id of the first request."""

    def __init__(self, journal: Journal | None, first_id: int) -> None:
        self._journal = journal
        self._ids = itertools.count(first_id)
        self._in_flight: dict[bytes, _Question] = {}
        self._by_task_id: BoundedDict[bytes, _Question] = BoundedDict(_MAX_TASKS)
        self._by_token: BoundedDict[bytes, _Question] = BoundedDict(_MAX_TASKS)
        self._is_closed = False

    @property
    def are_open(self) -> bool:
        """Whether there is one without an answer."""
        return bool(self._in_flight)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None], send: Callable[[bytes], None]) -> Frame:
        """Send a request and return the client's answer.

        `on_status` takes the client's progress on it, and the status of a task that it becomes.
        """
        number = next(self._ids)
        key = b"%d" % number
        token = wire.member(frame.params, "_meta", "progressToken")
        params = wire.with_member(frame.params, number, "_meta", "progressToken") if len(token) else frame.params
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._in_flight[key] = _Question(future, token, on_status)
        if self._journal is not None:
            self._journal.note_question(number)
        send(wire.request_line(number, frame.method, params))
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
                self._journal.forget_question(number)

    def take_answer(self, frame: Frame) -> None:
        """Take an answer of the client; one that nobody waits for is dropped."""
        question = self._in_flight.pop(bytes(frame.id), None)
        if question is None or question.future.done():
            log.debug("dropped an unexpected answer of a client")
            return
        question.future.set_result(frame)
        if task := bytes(wire.member(frame.result, "task", "taskId")):
            self._by_task_id[task] = self._by_token[bytes(frame.id)] = question

    def refuse_answer(self, id: bytes, why: str) -> bool:
        """Fail the request whose answer cannot be taken; tell whether there is one."""
        question = self._in_flight.get(id)
        if question is None or question.future.done():
            return False
        question.future.set_result(wire.error_frame(INVALID_REQUEST, why))
        return True

    def take_status(self, frame: Frame) -> bool:
        """Pass the status of a task of the client on to whoever asked for it; tell whether somebody did."""
        question = self._by_task_id.get(bytes(wire.member(frame.params, "taskId")))
        if question is None:
            return False
        question.on_status(frame)
        return True

    def take_progress(self, frame: Frame) -> None:
        """Pass the client's progress on to whoever asked, with the token that it asked with."""
        token = bytes(wire.member(frame.params, "progressToken"))
        question = self._in_flight.get(token) or self._by_token.get(token)
        if question is not None and len(question.token):
            params = wire.with_member(frame.params, question.token, "progressToken")
            question.on_status(Frame(method=frame.method, params=params))

    def close(self) -> None:
        """Answer whoever waits that the client has gone."""
        self._is_closed = True
        for question in self._in_flight.values():
            if not question.future.done():
                question.future.set_result(gone())
        self._by_task_id.clear()
        self._by_token.clear()
