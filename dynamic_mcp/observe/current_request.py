"""The current request: its ids, for JSON log lines, and the headers that propagate them.

Each request marks the context of its task. Work that outlives the request, such as a server started for it, keeps
the mark, which is then over and has no effect.
"""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Raw, Struct

Headers = tuple[tuple[bytes, bytes], ...]


class RequestMark(Struct, gc=False):
    """A client's request: its id, unchanged, and the ids of its trace and span, if it is traced."""

    id: Raw
    trace_id: str = ""
    span_id: str = ""
    is_over: bool = False


class OutgoingMark:
    """A request to an upstream: the headers with its span, for HTTP."""

    __slots__ = ("headers", "is_over")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.is_over = False


_request: ContextVar[RequestMark | None] = ContextVar("request", default=None)
_outgoing: ContextVar[OutgoingMark | None] = ContextVar("outgoing request", default=None)


def mark_request(id: Raw) -> RequestMark:
    """Mark this task as answering a request, until the mark is over."""
    mark = RequestMark(id)
    _request.set(mark)
    return mark


def current_request() -> RequestMark | None:
    """Return the request that is running, if it is not answered yet."""
    mark = _request.get()
    return None if mark is None or mark.is_over else mark


def mark_outgoing(headers: Headers) -> OutgoingMark:
    """Attach these headers to HTTP requests of this task and the tasks that it starts, until the mark is over."""
    mark = OutgoingMark(headers)
    _outgoing.set(mark)
    return mark


def outgoing_headers() -> Headers:
    """Return the headers for HTTP requests that are sent now."""
    mark = _outgoing.get()
    return () if mark is None or mark.is_over else mark.headers
