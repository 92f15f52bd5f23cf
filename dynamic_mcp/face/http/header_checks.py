"""Checks that the headers of a modern request match its body.

MCP 2026-07-28, streamable HTTP, server validation: an intermediary may have decided by the headers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.mirrored_headers import NAMED_BY, PREFIX, HeaderParameters, decode_value
from dynamic_mcp.mcp.wire import Frame

VERSION = b"mcp-protocol-version"
_METHOD, _NAME = b"mcp-method", b"mcp-name"
_SINGLE = frozenset((VERSION, _METHOD, _NAME))
_PARAMETER = PREFIX.lower().encode()


class ToolParameters(Protocol):
    """The tools that clients can call."""

    def header_parameters(
        self, tool: str, authentication: Authentication, only: str | None, profile: str | None
    ) -> HeaderParameters:
        """Return the parameters of a tool, by its listed name, that are repeated in headers, if they are known."""
        ...


def find_mismatch(arrival: Arrival, frame: Frame, members: RequestMembers, tools: ToolParameters) -> str:
    """Return how the headers of a request differ from its body; empty if they match.

    A body without a version differs in nothing, and is refused elsewhere.
    """
    headers = arrival.head.headers
    if arrival.head.repeated and (repeated := _find_repeated(arrival.head.repeated)):
        return f"duplicate header `{ascii(repeated.decode('latin-1'))[1:-1][:100]}`"
    method = headers.get(_METHOD)
    if method is None:
        return "missing header `Mcp-Method`"
    if method != frame.method.encode() or not method.isascii():
        return "the header `Mcp-Method` does not match the body"
    params = members.params
    version = members.meta.get(envelope.PROTOCOL_VERSION)
    if version is not None and not _is_text(version, headers[VERSION]):
        return "the header `MCP-Protocol-Version` does not match `_meta`"
    return _compare_name(headers, frame.method, params) or _compare_arguments(arrival, frame, params, tools)


def _is_text(data: Raw, value: bytes) -> bool:
    """Return whether a JSON string is this text."""
    return bytes(data) == b'"%b"' % value or (wire.text(data) or "").encode() == value


def _is_word(value: bytes) -> bool:
    """Return whether a value is the same in a header and in JSON."""
    return value.replace(b"_", b"").replace(b"-", b"").isalnum()


def _find_repeated(repeated: frozenset[bytes]) -> bytes:
    return next((name for name in sorted(repeated) if name in _SINGLE or name.startswith(_PARAMETER)), b"")


def _compare_name(headers: Mapping[bytes, bytes], method: str, params: Mapping[str, Raw]) -> str:
    member = NAMED_BY.get(method)
    if member is None:
        return ""
    expected, value = params.get(member), headers.get(_NAME)
    if value is None:
        return "missing header `Mcp-Name`" if member in params else ""
    if expected is not None and _is_word(value) and bytes(expected) == b'"%b"' % value:  # nearly always
        return ""
    name = decode_value(value)
    if name is None:
        return "the header `Mcp-Name` is malformed"
    return "" if name == wire.text(expected) else f"the header `Mcp-Name` does not match `params.{member}`"


def _compare_arguments(arrival: Arrival, frame: Frame, params: Mapping[str, Raw], tools: ToolParameters) -> str:
    name = wire.text(params.get("name")) if frame.method == "tools/call" else None
    if name is None:
        return ""
    route, headers = arrival.route, arrival.head.headers
    parameters = tools.header_parameters(name, arrival.authentication, route.only, route.profile)
    if parameters.is_empty:
        return ""
    return parameters.find_mismatch(params.get("arguments", wire.ABSENT), headers)
