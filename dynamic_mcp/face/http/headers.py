"""Reads request headers: accepted types, the type and length of the body, and the id of the last event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import refusal

_EVENT_ID = re.compile(rb"(\d{1,15})-(\d{1,15})")
# How many values of a header are cached.
_CACHED_VALUES = 256


def accepts_answers(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a client accepts JSON and event streams, as it must (MCP, transports, sending messages)."""
    accept = headers.get(b"accept")
    return accept is None or {b"application/json", b"text/event-stream"} <= _accepted(accept)


def accepts_events(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a client accepts event streams."""
    accept = headers.get(b"accept")
    return accept is None or b"text/event-stream" in _accepted(accept)


def is_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a body is JSON in UTF-8. Forms, which pages of any site can send, are not."""
    return _is_json(headers.get(b"content-type", b""))


def declared_bytes(headers: Mapping[bytes, bytes]) -> int:
    """Return the Content-Length; 0 if there is none."""
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() and len(declared) < 20 else 0


def parse_event_id(value: bytes) -> tuple[int, int] | None:
    """Return the stream and the number of an event; None if the id is not one of ours."""
    match = _EVENT_ID.fullmatch(value)
    return (int(match[1]), int(match[2])) if match else None


def refuse_post(headers: Mapping[bytes, bytes]) -> Response | None:
    """Return the refusal of a message's head; None if the body may follow, unless it is too long."""
    if not is_json(headers):
        return refusal(415, "`Content-Type` must be `application/json`")
    if not accepts_answers(headers):
        return refusal(406, "`Accept` must name both `application/json` and `text/event-stream`")
    return None


@lru_cache(_CACHED_VALUES)
def _accepted(accept: bytes) -> frozenset[bytes]:
    """Return which of our two types an `Accept` header allows (RFC 9110, section 12.5.1)."""
    taken: set[bytes] = set()
    for part in accept.lower().split(b","):
        kind, *parameters = (each.strip() for each in part.split(b";"))
        if any(re.fullmatch(rb"q=0(\.0{0,3})?", each) for each in parameters):
            continue
        if kind in (b"application/json", b"application/*", b"*/*"):
            taken.add(b"application/json")
        if kind in (b"text/event-stream", b"text/*", b"*/*"):
            taken.add(b"text/event-stream")
    return frozenset(taken)


@lru_cache(_CACHED_VALUES)
def _is_json(content_type: bytes) -> bool:
    kind, *parameters = (each.strip() for each in content_type.lower().split(b";"))
    charsets = [each.partition(b"=")[2].strip(b'"') for each in parameters if each.startswith(b"charset=")]
    return kind == b"application/json" and all(each in (b"utf-8", b"utf8", b"us-ascii") for each in charsets)
