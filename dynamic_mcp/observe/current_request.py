"""The request that a piece of code runs for: its ids, which JSON log lines carry, and the headers that hand them on.

Each request marks the context of its task. What goes on after the request, such as a server that was started for it,
still has the mark, which says then that it is over, and counts no more.
"""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Raw, Struct

Headers = tuple[tuple[bytes, bytes], ...]


class RequestMark(Struct, gc=False):
    """A request of a client: its id as it came, and the ids of its trace and its span, if it is traced."""

    id: Raw
    trace_id: str = ""
    span_id: str = ""
    is_over: bool = False


class OutgoingMark:
    """A request to an upstream: the headers that name its span where it goes over HTTP."""

    __slots__ = ("headers", "is_over")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.is_over = False


_request: ContextVar[RequestMark | None] = ContextVar("request", default=None)
_outgoing: ContextVar[OutgoingMark | None] = ContextVar("outgoing request", default=None)


def mark_request(id: Raw) -> RequestMark:
    """Mark this task as the one that answers a request, until the mark is over."""
    mark = RequestMark(id)
    _request.set(mark)
    return mark


def current_request() -> RequestMark | None:
    """Return the request that this code runs for, if it is still being answered."""
    mark = _request.get()
    return None if mark is None or mark.is_over else mark


def mark_outgoing(headers: Headers) -> OutgoingMark:
    """Have what this task and those that it starts send over HTTP carry these headers, until the mark is over."""
    mark = OutgoingMark(headers)
    _outgoing.set(mark)
    return mark


def outgoing_headers() -> Headers:
    """Return the headers that a request over HTTP carries now."""
    mark = _outgoing.get()
    return () if mark is None or mark.is_over else mark.headers
