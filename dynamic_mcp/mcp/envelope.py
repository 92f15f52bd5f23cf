"""The metadata of modern requests and results: the `_meta` of a request, and the type of a result.

MCP 2026-07-28, basic, `_meta` and ResultType. Everything else keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
# Members for one hop, which are rewritten for the next.
_PER_HOP = frozenset((PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL))

# The requests that may be answered `input_required` (basic/patterns/mrtr).
MAY_ASK = frozenset(("tools/call", "prompts/get", "resources/read"))
# Requests to clients, and the capability that each one requires.
ASKED_WITH = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
# The members that only the retry of such a request has.
RETRY_MEMBERS = frozenset(("requestState", "inputResponses"))
COMPLETE = "complete"
INPUT_REQUIRED = "input_required"
# Members of a result for modern clients only.
TTL_MS, CACHE_SCOPE, RESULT_TYPE = "ttlMs", "cacheScope", "resultType"
_TYPE, _META = b'"resultType"', b'"_meta"'
_SERVER_INFO = SERVER_INFO.encode()
# The number of cached `_meta` objects, and their maximum length.
_REMEMBERED, _REMEMBERED_BYTES = 256, 1024
_COMPLETE_MEMBER = b'"resultType":"complete"'


class Envelope(Struct, frozen=True):
    """The sender's metadata in a modern request: revision, name and capabilities, unchanged, and a log level.

    A missing member is empty.
    """

    version: str
    client_info: Raw = wire.ABSENT
    capabilities: Raw = wire.ABSENT
    log_level: Raw = wire.ABSENT


class RequestMembers(Struct, frozen=True):
    """The members of a request's params, and of their `_meta`, whose bytes are `raw_meta`."""

    params: dict[str, Raw]
    meta: Mapping[str, Raw]
    raw_meta: bytes = b""

    @classmethod
    def of(cls, frame: wire.Frame) -> RequestMembers:
        """Split the params of a request. Raises Malformed."""
        params = wire.members(frame.params) if len(frame.params) else {}
        raw = bytes(params.get("_meta", b""))
        meta = _split_meta(raw) if 0 < len(raw) <= _REMEMBERED_BYTES else meta_of(params)
        return cls(params, meta, raw)


@lru_cache(_REMEMBERED)
def _split_meta(raw: bytes) -> Mapping[str, Raw]:
    """Return the members of a `_meta`. Cached, since a client sends the same one with each request."""
    return meta_of({"_meta": Raw(raw)})


def read_envelope(meta: Mapping[str, Raw]) -> Envelope | None:
    """Return the sender's metadata in the `_meta` of a request; None for a legacy request."""
    version = meta.get(PROTOCOL_VERSION)
    if version is None:
        return None
    return Envelope(
        wire.text(version) or "",
        meta.get(CLIENT_INFO, wire.ABSENT),
        meta.get(CLIENT_CAPABILITIES, wire.ABSENT),
        meta.get(LOG_LEVEL, wire.ABSENT),
    )


def without_envelope(params: Mapping[str, Raw], meta: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return params without the sender's metadata, and without `_meta` if it has no other members."""
    plain = {**params}
    if is_for_one_hop(meta):
        plain.pop("_meta", None)
    else:
        plain["_meta"] = Raw(wire.encode({name: value for name, value in meta.items() if name not in _PER_HOP}))
    return plain


def is_for_one_hop(meta: Mapping[str, Raw]) -> bool:
    """Return whether a `_meta` contains only the sender's metadata."""
    return meta.keys() <= _PER_HOP


def meta_of(params: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the members of `_meta`; none if it is missing or not an object."""
    try:
        return wire.members(params["_meta"]) if "_meta" in params else {}
    except wire.Malformed:
        return {}


def result_type(result: Raw) -> str:
    """Return the type of a result; the default is complete."""
    if bytes(result).rfind(_TYPE) < 0:  # faster than `in` for large results
        return COMPLETE
    return wire.text(wire.member(result, RESULT_TYPE)) or COMPLETE


def as_modern(
    result: Raw, server_info: Raw, write_state: Callable[[str], str], members: Mapping[str, object] | None = None
) -> Raw:
    """Return a result for a modern client: with a type, and with the server's name in its `_meta`.

    `write_state` returns what the client gets for the `requestState` of an upstream. `members` are added too.
    Existing members of the result stay.
    """
    data = bytes(result)
    if not members and data.rfind(_TYPE) < 0 and data.rfind(_META) < 0:
        rest = data[1:].lstrip()
        comma = b"" if rest.startswith(b"}") else b","
        return Raw(
            b"".join((b"{", _COMPLETE_MEMBER, b',"_meta":{"', _SERVER_INFO, b'":', server_info, b"}", comma, rest))
        )
    result_members = wire.members(result)
    if "_meta" not in result_members or bytes(result_members["_meta"]).startswith(b"{"):
        result_members["_meta"] = Raw(wire.encode({SERVER_INFO: server_info, **meta_of(result_members)}))
    state = wire.text(result_members.get("requestState"))
    if state is not None and (written := write_state(state)) != state:
        result_members["requestState"] = Raw(wire.encode(written))
    return Raw(wire.encode({RESULT_TYPE: COMPLETE, **(members or {}), **result_members}))


class StateRefused(Exception):
    """A `requestState` was refused. `reason` is for programs: `invalid`, `expired`, `used` or `restarted`."""

    def __init__(self, reason: str) -> None:
        super().__init__(_STATE_REFUSALS[reason])
        self.reason = reason


_STATE_REFUSALS = {
    "invalid": "`requestState` is not valid for this request; make the request again without it",
    "expired": "`requestState` has expired, and the request was cancelled; make it again without `requestState`",
    "used": "`requestState` was used before; use the latest one, or make the request again without it",
    "restarted": (
        "dynamic-mcp was restarted since it gave this `requestState`, and the request was lost; it may have run in "
        "part. Make it again without `requestState`"
    ),
}
