"""Cached results, prepared so that a hit only joins bytes, and bounded in bytes.

Only complete results of successful calls are cached, and only for as long as their server allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from msgspec import Raw, Struct

from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame, HintedFrame

# In `_meta` of a cached result: its age.
CACHED = "dynamic-mcp/cache"
# The memory of an entry beyond its bytes.
_OVERHEAD_BYTES = 500
_AGE = b'"%b":{"age_s":' % CACHED.encode()
_TTL = b',"%b":' % envelope.TTL_MS.encode()
_FALSE = (b"", b"false", b"null")


class KeptResult(Struct, frozen=True, gc=False):
    """A cached result: `head` is all of it up to its age.

    Times are readings of a clock, in seconds. If `is_private`, only the user who made the call gets it. `has_ttl`:
    the result states its own lifetime.
    """

    at: float
    expires_at: float
    is_private: bool
    has_ttl: bool
    head: bytes

    def answer(self, now: float) -> Frame:
        """Return the answer, with its age and remaining lifetime."""
        age = b"%d}}" % max(0, int(now - self.at))
        left = b"%b%d}" % (_TTL, max(0, int(1000 * (self.expires_at - now)))) if self.has_ttl else b"}"
        return Frame(jsonrpc="2.0", result=Raw(b"".join((self.head, age, left))))


def prepare(answer: Frame, ttl_s: float, now: float) -> KeptResult | None:
    """Return a cacheable form of an answer that lives for at most `ttl_s`; None if it must not be cached."""
    if len(answer.error) or not len(answer.result):
        return None
    try:
        members = wire.members(answer.result)
        meta = wire.members(members.get("_meta", wire.EMPTY_OBJECT))
    except wire.Malformed:
        return None
    if not _is_whole(members) or CACHED in meta:
        return None
    ttl_s, is_private = _heed_server(answer, members, ttl_s)
    if ttl_s <= 0:
        return None
    has_ttl = members.pop(envelope.TTL_MS, None) is not None
    if members.pop("_meta", None) is None and not has_ttl:
        head = _open(bytes(answer.result)) + b'"_meta":{' + _AGE
    else:
        head = _open(wire.encode(members)) + b'"_meta":' + _open(wire.encode(meta)) + _AGE
    return KeptResult(now, now + ttl_s, is_private, has_ttl, head)


def _is_whole(members: dict[str, Raw]) -> bool:
    """Return whether a result is complete, is not a task, and comes from a successful call."""
    kind = members.get(envelope.RESULT_TYPE)
    is_complete = kind is None or wire.text(kind) == envelope.COMPLETE
    return is_complete and "task" not in members and bytes(members.get("isError", wire.ABSENT)) in _FALSE


def _heed_server(answer: Frame, members: dict[str, Raw], ttl_s: float) -> tuple[float, bool]:
    """Return a result's lifetime, and whether it is private, with the server's limits applied."""
    ttl, scope = members.get(envelope.TTL_MS), members.get(envelope.CACHE_SCOPE)
    if isinstance(answer, HintedFrame):  # for clients without support for these members
        ttl, scope = answer.ttl_ms, answer.cache_scope
    if ttl is None and scope is None:
        return ttl_s, False
    is_private = scope is None or wire.text(scope) != "public"
    if ttl is not None:
        ttl_ms = wire.value(ttl)
        if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int | float):
            return 0.0, is_private
        ttl_s = min(ttl_s, ttl_ms / 1000)
    return ttl_s, is_private


def _open(data: bytes) -> bytes:
    """Return an object without its closing brace, ready for another member."""
    inner = data.rstrip()[:-1].rstrip()
    return inner if inner.endswith(b"{") else inner + b","


Flight = asyncio.Future["KeptResult | Abandoned | None"]


class Abandoned:
    """The call that others wait for was cancelled."""


ABANDONED = Abandoned()


class KeptResults:
    """The results cached by one rule, at most `max_bytes`, and the calls in flight that others wait for."""

    def __init__(self, server: str, max_bytes: int) -> None:
        self.server = server
        self.flights: dict[Hashable, Flight] = {}
        self.bytes = 0
        self._max_bytes = max_bytes
        self._entries: dict[Hashable, tuple[KeptResult, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable, now: float) -> KeptResult | None:
        """Return the result cached under a key, and mark it as recently used."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if entry[0].expires_at <= now:
            self.bytes -= entry[1]
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: Hashable, kept: KeptResult, key_bytes: int) -> None:
        """Cache a result, unless it is larger than the limit. `key_bytes` is the size of its key."""
        size = len(kept.head) + key_bytes + _OVERHEAD_BYTES
        if size > self._max_bytes:
            return
        before = self._entries.pop(key, None)
        self.bytes += size - (0 if before is None else before[1])
        self._entries[key] = kept, size
        while self.bytes > self._max_bytes:
            least_used = next(iter(self._entries))
            self.bytes -= self._entries.pop(least_used)[1]
