"""Trace contexts as they travel: `traceparent` and `tracestate` (W3C Trace Context, section 3.2 and 3.3)."""

from __future__ import annotations

import re
from random import getrandbits

from msgspec import Struct

SAMPLED = 0x01
_RANDOM = 0x02  # of level 2: the trace id is random, which samplers further on rely on
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
# Section 3.3.1.1: what is longer may be dropped.
_STATE = re.compile(r"[\x20-\x7e\t]{1,512}")


class TraceContext(Struct, frozen=True):
    """A span as others know it: the ids in hexadecimal, the flags, and what other vendors say of the trace."""

    trace_id: str
    span_id: str
    flags: int
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Whether the span is recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def parent(self) -> str:
        """The context as a `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def parse_context(parent: str, state: str = "") -> TraceContext | None:
    """Return what a `traceparent` and its `tracestate` say; None if it is not valid, which counts as none at all."""
    match = _PARENT.fullmatch(parent.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    kept = state.strip() if _STATE.fullmatch(state.strip()) else ""
    return TraceContext(trace_id, span_id, int(flags, 16) & (SAMPLED | _RANDOM), kept)


def begin_trace() -> str:
    """Return the id of a new trace."""
    return f"{getrandbits(128) or 1:032x}"


def begin_span() -> str:
    """Return the id of a new span."""
    return f"{getrandbits(64) or 1:016x}"
