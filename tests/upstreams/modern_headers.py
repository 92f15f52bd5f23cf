"""The headers in which a request of MCP 2026-07-28 repeats its body (basic/transports/streamable-http).

A header that is missing, differs from the body, is sent twice or stands for nothing in the body is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .modern_request import HEADER_MISMATCH, META, Json, Refusal, name_versions
else:  # started by its path, as an upstream is
    from modern_request import HEADER_MISMATCH, META, Json, Refusal, name_versions

_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_PARAM = "mcp-param-"
_PLAIN = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def check_version_header(headers: Mapping[str, str], message: Json) -> None:
    """Refuse a request that does not say its revision."""
    if not headers.get("mcp-protocol-version"):
        raise _mismatch(f"there is no MCP-Protocol-Version{name_versions(message)}")


def check_headers(headers: Mapping[str, str], message: Json, tools: Sequence[Json]) -> None:
    """Refuse a request whose headers do not say what its body says; header names are lower case."""
    params = message.get("params", {})
    version = params["_meta"][f"{META}protocolVersion"]
    if headers.get("mcp-protocol-version") != version:
        raise _mismatch(f"MCP-Protocol-Version is not {version}")
    if headers.get("mcp-method") != message["method"]:
        raise _mismatch(f"Mcp-Method is not {message['method']}")
    _check_name(headers, message)
    _check_arguments(headers, message, tools)


def _check_name(headers: Mapping[str, str], message: Json) -> None:
    member = _NAMED.get(message["method"])
    expected = message.get("params", {}).get(member) if member else None
    header = headers.get("mcp-name")
    if expected is None:
        if header is not None:
            raise _mismatch("Mcp-Name stands for nothing in the body")
    elif header is None or _decode(header) != expected:
        raise _mismatch(f"Mcp-Name is not {expected}")


def _check_arguments(headers: Mapping[str, str], message: Json, tools: Sequence[Json]) -> None:
    params = message.get("params", {})
    sent = {name: value for name, value in headers.items() if name.startswith(_PARAM)}
    if message["method"] == "tools/call":
        schema: Json = next((tool["inputSchema"] for tool in tools if tool["name"] == params.get("name")), {})
        for header, path in mirrored(schema):
            value = _find(params.get("arguments") or {}, path)
            found = sent.pop(_PARAM + header.lower(), None)
            if value is None:
                if found is not None:
                    raise _mismatch(f"Mcp-Param-{header} stands for nothing in the body")
            elif found is None or not _is_equal(_decode(found), value):
                raise _mismatch(f"Mcp-Param-{header} is not {value}")
    if sent:
        raise _mismatch(f"{', '.join(sent)} stands for nothing in the schema")


def mirrored(schema: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the headers that a schema asks for, and the path of the property that each repeats."""
    for name, inner in schema.get("properties", {}).items():
        if "x-mcp-header" in inner:
            yield inner["x-mcp-header"], (*path, name)
        yield from mirrored(inner, (*path, name))


def _find(arguments: Json, path: Sequence[str]) -> Json:
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments


def _decode(value: str) -> str:
    """Return what a header says, which may be encoded."""
    if not _PLAIN.fullmatch(value):
        raise _mismatch("a header has characters that no header may have")
    encoded = _ENCODED.fullmatch(value)
    if encoded is None:
        return value
    try:
        return base64.b64decode(encoded[1], validate=True).decode()
    except (binascii.Error, ValueError):
        raise _mismatch("a header is not Base64 though it says so") from None


def _is_equal(text: str, value: Json) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return bool(text == value)


def _mismatch(words: str) -> Refusal:
    return Refusal(HEADER_MISMATCH, f"header mismatch: {words}")
