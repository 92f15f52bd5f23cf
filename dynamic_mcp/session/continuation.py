"""Continues a session in another process: the notes that are stored meanwhile, and their use.

The client does not notice, except that requests in flight are answered with an error: they may have run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from dynamic_mcp.errors import DynamicMcpError, Interrupted
from dynamic_mcp.mcp import envelope, names, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.session.answers import to_answer
from dynamic_mcp.session.server import LineSession
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# The number of ids of requests to the client that each process has.
_IDS = 1 << 32

_INITIALIZE = "initialize"
_LEVEL = "logging/setLevel"
_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
_READ = "resources/read"
# Requests without effects, or with the same effect when repeated.
_REPEATABLE = frozenset(
    {
        _INITIALIZE,
        "ping",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "skills/list",
        _LEVEL,
        _SUBSCRIBE,
        _UNSUBSCRIBE,
    }
)
_LISTS = ("tools", "resources", "prompts")
_PAGE = b"page "
# Which pages of apps are noted: the latest ones. Each is read once more when another process takes over, and one page
# of a server is enough for all its tools.
_MOST_PAGES = 64
_MOST_PAGE_BYTES = 32 << 10


class Continuation(Struct, frozen=True):
    """The state of a session from another process: the notes of its journal, and unanswered lines.

    `generation` counts the processes that have served it; 0 is a new session. `unwritten` was written for the client
    and has not reached it; `unread` has arrived from the client and was not read.
    """

    generation: int = 0
    notes: dict[bytes, bytes] = {}
    interrupted: tuple[bytes, ...] = ()
    unwritten: bytes = b""
    unread: bytes = b""

    @property
    def first_id(self) -> int:
        """The first id of a request to the client, so that no answer to an earlier process meets a new request."""
        return self.generation * _IDS + 1


class SessionJournal:
    """Notes for a process that may continue the session. `keep` stores a note, or removes it if it is empty."""

    def __init__(self, keep: Callable[[bytes, bytes], None]) -> None:
        self._keep = keep
        self._pages: dict[bytes, None] = {}

    def record_answer(self, request: Request, answer: Frame) -> None:
        """Store a request of the client that has a lasting effect."""
        if request.method in _LASTING and not len(answer.error):
            name, note = _LASTING[request.method](request)
            if name:
                self._keep(name, note)
                self.bound_pages(name)

    def bound_pages(self, name: bytes) -> None:
        """Remove the notes of the pages that were opened first, if this one of another page is too much."""
        if name.startswith(_PAGE):
            self._pages.pop(name, None)
            self._pages[name] = None
            while len(self._pages) > _MOST_PAGES or sum(map(len, self._pages)) > _MOST_PAGE_BYTES:
                self._pages.pop(oldest := next(iter(self._pages)))
                self._keep(oldest, b"")

    def record_question(self, id: int) -> None:
        """Store a request to the client that is in flight."""
        self._keep(b"question %d" % id, b"%d" % id)

    def remove_question(self, id: int) -> None:
        """Remove a request to the client that has ended."""
        self._keep(b"question %d" % id, b"")


def _note(request: Request) -> tuple[bytes, bytes]:
    return request.method.encode(), wire.request_line(0, request.method, request.params or None)


def _note_subscription(request: Request) -> tuple[bytes, bytes]:
    return _name_subscription(request), wire.request_line(0, request.method, request.params or None)


def _forget_subscription(request: Request) -> tuple[bytes, bytes]:
    return _name_subscription(request), b""


def _name_subscription(request: Request) -> bytes:
    return b"subscription " + bytes(wire.member(request.params, "uri"))


def _note_page(request: Request) -> tuple[bytes, bytes]:
    """Return the note of a page of an app, which goes on to call tools; no other resource has a lasting effect."""
    uri, client = wire.member(request.params, "uri"), request.client
    if client.only is not None or not names.is_ui(wire.text(uri) or ""):
        return b"", b""
    from dynamic_mcp.mcp.apps import may_render  # with the first page

    name = _PAGE + bytes(uri) if may_render(client.hello.capabilities) else b""
    return name, wire.request_line(0, _READ, {"uri": uri})


_LASTING = {
    _INITIALIZE: _note,
    _LEVEL: _note,
    _SUBSCRIBE: _note_subscription,
    _UNSUBSCRIBE: _forget_subscription,
    _READ: _note_page,
}


class Resumption:
    """Takes a session over. `tasks` renew the client's subscriptions.

    `journal` is that of the session, if another process may continue it in turn.
    """

    def __init__(
        self, session: LineSession, send: Callable[[bytes], None], journal: SessionJournal | None = None
    ) -> None:
        self.tasks = TaskSet(log)
        self._session = session
        self._send = send
        self._journal = journal

    async def resume(self, continuation: Continuation, reply: Callable[[int, bytes], None]) -> None:
        """Repeat requests with a lasting effect, unseen by the client, then answer the interrupted ones.

        `reply` gets the number of an interrupted line, from 1, and its answer.
        """
        for name, note in continuation.notes.items():
            if name.startswith(b"question "):
                self._cancel_question(note)
            else:
                if self._journal is not None:
                    self._journal.bound_pages(name)
                await self._repeat(wire.parse(note))
        if self._session.is_initialized:
            for kind in _LISTS:
                self._session.notify(Frame(method=f"notifications/{kind}/list_changed"))
        for number, line in enumerate(continuation.interrupted, 1):
            self._answer_interrupted(line, partial(reply, number))

    async def _repeat(self, frame: Frame) -> None:
        if frame.method in (_SUBSCRIBE, _READ):  # its server may take long to start
            self.tasks.create(self._ask(frame), name=f"repeated {frame.method}")
        else:
            await self._ask(frame)

    async def _ask(self, frame: Frame) -> None:
        with contextlib.suppress(DynamicMcpError, wire.Malformed):
            await self._session.answer(frame)

    def _cancel_question(self, id: bytes) -> None:
        body = wire.encode({"requestId": int(id), "reason": "the daemon of dynamic-mcp was restarted"})
        self._send(wire.notification_line("notifications/cancelled", body))
        if self._journal is not None:  # else the next process cancels it again
            self._journal.remove_question(int(id))

    def _answer_interrupted(self, line: bytes, reply: Callable[[bytes], None]) -> None:
        try:
            frame = wire.parse(line)
        except wire.Malformed:
            if wire.is_batch(line):
                answers = [_refuse(bytes(item)) for item in wire.elements(line)]
                reply(wire.join_batch(filter(None, answers)) if any(answers) else b"")
            else:
                self._session.receive(line, reply)
            return
        if frame.method in _REPEATABLE and len(frame.id):
            self._session.receive(line, reply)
        else:
            reply(_refuse(line))


def _refuse(line: bytes) -> bytes:
    """Return the error for a request that may have run; nothing for other lines."""
    try:
        frame = wire.parse(line)
    except wire.Malformed:
        return b""
    if not (frame.method and len(frame.id)):
        return b""
    answer = to_answer(frame.method, Interrupted(frame.method))
    if len(answer.result) and len(wire.member(frame.params, "_meta", envelope.PROTOCOL_VERSION)):
        answer = Frame(result=wire.with_member(answer.result, envelope.COMPLETE, envelope.RESULT_TYPE))
    return wire.answer_line(wire.id_for_answer(frame), answer)
