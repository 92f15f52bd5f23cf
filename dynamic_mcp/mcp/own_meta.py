"""Members of `_meta` that are the proxy's own: what a server writes under such a name gets another one.

So a client knows that `dynamic-mcp/cache` and the like come from the proxy. Almost no message has such a name, and a
search in its bytes tells so.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame

PREFIX = "dynamic-mcp/"
# Of a result: what a person has said of the call, or that nobody has yet.
APPROVAL = f"{PREFIX}approval"
# Of a request that is no use case of ours: the group that it is for. Of a question: the group that asks.
GROUP = f"{PREFIX}group"
# What the names of servers get before theirs.
RENAMED = "upstream."
# Protocol objects are not nested deeper; the data of tools may be.
_MAX_DEPTH = 10
_DATA = frozenset(("structuredContent", "arguments", "inputSchema", "outputSchema"))
_PLAIN = PREFIX.encode()
_NAME = _PLAIN[:-1]  # the slash may be written with an escape


def may_be_in(message: bytes) -> bool:
    """Return whether a message may have such a name, also where it is written with escapes."""
    # `in` first asks whether it is given a number, and `find` reads large messages two to six times as slowly
    if message.rfind(_NAME) >= 0:
        return True
    # one character is found far faster than several, and most texts of one line have no escapes
    return message.find(b"\\") >= 0 and b"\\u00" in message and _escaped().search(message) is not None


@cache
def _escaped() -> re.Pattern[bytes]:
    """Return what matches such a name however it is written."""
    return re.compile(
        b"".join(
            b"(?:%s|\\\\u00%02x%s)" % (re.escape(bytes([each])), each, b"|\\\\/" if each == ord("/") else b"")
            for each in _PLAIN
        ),
        re.IGNORECASE,
    )


def rename_in(frame: Frame) -> None:
    """Rename such names in all that a message has."""
    frame.params, frame.result, frame.error = rename(frame.params), rename(frame.result), rename(frame.error)


def rename(payload: Raw, depth: int = _MAX_DEPTH) -> Raw:
    """Return a payload in which no `_meta` has such a name; the same object if there is none."""
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
