"""Trace contexts in transit: `traceparent` and `tracestate` (W3C Trace Context, section 3.2 and 3.3)."""

from __future__ import annotations

import re
from random import getrandbits

from msgspec import Struct

SAMPLED = 0x01
_RANDOM = 0x02  # of level 2: the trace id is random, which later samplers rely on
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
# Section 3.3.1.1: longer values may be dropped.
_STATE = re.compile(r"[\x20-\x7e\t]{1,512}")


class TraceContext(Struct, frozen=True):
    """A span's context: the ids in hexadecimal, the flags, and the state of other vendors."""

    trace_id: str
    span_id: str
    flags: int
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Return whether the span is recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def parent(self) -> str:
        """The value for `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def parse_context(parent: str, state: str = "") -> TraceContext | None:
    """Parse a `traceparent` and its `tracestate`; None if it is invalid, which is equal to none at all."""
    match = _PARENT.fullmatch(parent.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    valid_state = state.strip() if _STATE.fullmatch(state.strip()) else ""
    return TraceContext(trace_id, span_id, int(flags, 16) & (SAMPLED | _RANDOM), valid_state)


def begin_trace() -> str:
    """Return a new trace id."""
    return f"{getrandbits(128) or 1:032x}"


def begin_span() -> str:
    """Return a new span id."""
    return f"{getrandbits(64) or 1:016x}"
