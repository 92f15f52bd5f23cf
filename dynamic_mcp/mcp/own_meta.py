"""Reserved members of `_meta`: such members of a server's message are renamed.

So clients know that `dynamic-mcp/cache` and the like come from the proxy. Such names are rare, and a search in a
message's bytes finds them.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame

PREFIX = "dynamic-mcp/"
# In a result: the user's decision about the call, or that it is pending.
APPROVAL = f"{PREFIX}approval"
# In a request outside our use cases: the group that it is for. In a question: the group that asks.
GROUP = f"{PREFIX}group"
# The prefix for renamed members of servers.
RENAMED = "upstream."
# Protocol objects are not nested deeper; the data of tools may be.
_MAX_DEPTH = 10
_DATA = frozenset(("structuredContent", "arguments", "inputSchema", "outputSchema"))
_PLAIN = PREFIX.encode()
_NAME = _PLAIN[:-1]  # the slash may be written with an escape
_BACKSLASH = ord("\\")


def may_be_in(message: bytes) -> bool:
    """Return whether a message may contain such a name, also in an escaped form."""
    # `in` first checks for a number, and `find` is two to six times as slow for large messages
    if message.rfind(_NAME) >= 0:
        return True
    # a search for one character is far faster, and most texts of one line have no escapes
    return _BACKSLASH in message and b"\\u00" in message and _escaped().search(message) is not None


@cache
def _escaped() -> re.Pattern[bytes]:
    """Return the pattern of such a name in any spelling."""
    return re.compile(
        b"".join(
            b"(?:%s|\\\\u00%02x%s)" % (re.escape(bytes([each])), each, b"|\\\\/" if each == ord("/") else b"")
            for each in _PLAIN
        ),
        re.IGNORECASE,
    )


def rename_in(frame: Frame) -> None:
    """Rename such names in all members of a message."""
    frame.params, frame.result, frame.error = rename(frame.params), rename(frame.result), rename(frame.error)


def rename(payload: Raw, depth: int = _MAX_DEPTH) -> Raw:
    """Return a payload without such names in any `_meta`; the same object if there were none."""
    if depth == 0 or len(payload) < len(_PLAIN) or not may_be_in(bytes(payload)):
        return payload
    try:
        match bytes(payload).lstrip()[:1]:
            case b"{":
                members = wire.members(payload)
                changed = {name: _rename_member(name, value, depth) for name, value in members.items()}
                is_same = all(changed[name] is value for name, value in members.items())
            case b"[":
                elements = wire.elements(payload)
                renamed = [rename(each, depth - 1) for each in elements]
                is_same = all(one is other for one, other in zip(renamed, elements, strict=True))
                return payload if is_same else Raw(wire.encode(renamed))
            case _:
                return payload
    except wire.Malformed:
        return payload
    return payload if is_same else Raw(wire.encode(changed))


def _rename_member(name: str, value: Raw, depth: int) -> Raw:
    if name in _DATA:
        return value
    if name != "_meta" or bytes(value).lstrip()[:1] != b"{":
        return rename(value, depth - 1)
    members = wire.members(value)
    if not any(each.startswith(PREFIX) for each in members):
        return value
    return Raw(wire.encode({_name(each): inner for each, inner in members.items()}))


def _name(name: str) -> str:
    return f"{RENAMED}{name}" if name.startswith(PREFIX) else name
