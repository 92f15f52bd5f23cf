"""The results of tools as values of a script, and the result of a script for its client.

Values are JSON on both sides, and stay the bytes that the server sent. What is no text is kept here, and a script has
a handle of it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.decoding import decode_as

_BINARY = {"image": "data", "audio": "data"}
_TOKEN_BYTES = 12
# Of the message of an error.
_LONGEST_MESSAGE = 4000
TOOL_FAILED = 0
"""The code of an error that a tool has returned as its result."""


class Contents:
    """What the tools of one script have returned that is no text, by the handles that the script has."""

    def __init__(self, prefix: str = "", blocks: Mapping[str, bytes] | None = None) -> None:
        # no server can write one in its results
        self.prefix = prefix or f"content-{secrets.token_hex(_TOKEN_BYTES)}-"
        self._blocks = {handle: Raw(block) for handle, block in (blocks or {}).items()}

    @property
    def blocks(self) -> dict[str, bytes]:
        """What is kept, by its handles."""
        return {handle: bytes(block) for handle, block in self._blocks.items()}

    def keep(self, block: Raw, data: str, media_type: Raw | None, kind: str) -> bytes:
        """Keep a block of content; return the value that stands for it, as JSON."""
        handle = f"{self.prefix}{len(self._blocks) + 1}"
        self._blocks[handle] = block
        size = len(data) * 3 // 4 - data[-2:].count("=")
        return wire.encode({"type": kind, "mimeType": wire.text(media_type), "size": size, "handle": handle})

    def find(self, value: bytes) -> list[Raw]:
        """Return the blocks whose handles are in a value."""
        if not self._blocks:
            return []
        found = re.findall(re.escape(self.prefix.encode()) + rb"[0-9]+", value)
        return [self._blocks[name] for each in dict.fromkeys(found) if (name := each.decode()) in self._blocks]


def read_result(answer: Frame, contents: Contents) -> bytes:
    """Return what a call gives to a script, as JSON: `{"value": …}`, or `{"error": [code, message, data]}`."""
    if len(answer.error):
        error = wire.members(answer.error)
        code = wire.value(error["code"]) if "code" in error else TOOL_FAILED
        return encode_error(code, wire.text(error.get("message")) or "", error.get("data", wire.NULL))
    result = wire.members(answer.result)
    if bytes(result.get("isError", b"")) == b"true":
        texts = (wire.text(wire.member(block, "text")) for block in _blocks(result))
        message = "\n".join(filter(None, texts)) or "the tool failed without saying why"
        return encode_error(TOOL_FAILED, message, result.get("structuredContent", wire.NULL))
    return b'{"value":%s}' % _read_value(result, contents)


def encode_error(code: object, message: str, data: Raw = wire.NULL) -> bytes:
    """Return an error of a call for a script, as JSON."""
    return wire.encode({"error": [code, message[:_LONGEST_MESSAGE], data]})


def is_alone(value: bytes) -> bool:
    """Return whether a value is nothing but a handle."""
    try:
        members = wire.members(value)
    except wire.Malformed:
        return False
    return members.keys() == {"type", "mimeType", "size", "handle"}


def _read_value(result: Mapping[str, Raw], contents: Contents) -> bytes:
    structured = result.get("structuredContent")
    blocks = _blocks(result)
    others = [block for block in blocks if wire.text(wire.member(block, "type")) != "text"]
    if structured is not None and bytes(structured) != b"null" and not others:
        members = wire.members(structured) if bytes(structured)[:1] == b"{" else {}
        return bytes(members["result"] if members.keys() == {"result"} else structured)
    values = [_read_block(block, contents) for block in blocks]
    if structured is not None and bytes(structured) != b"null":
        values = [bytes(structured), *(_read_block(block, contents) for block in others)]
    return values[0] if len(values) == 1 else b"[%s]" % b",".join(values) if values else b"null"


def _blocks(result: Mapping[str, Raw]) -> list[Raw]:
    return wire.elements(result.get("content", wire.EMPTY_ARRAY))


def _read_block(block: Raw, contents: Contents) -> bytes:
    members = wire.members(block)
    kind = wire.text(members.get("type")) or ""
    if kind == "text":
        return _read_text(members.get("text", wire.NULL))
    if kind in _BINARY and (data := wire.text(members.get(_BINARY[kind]))) is not None:
        return contents.keep(block, data, members.get("mimeType"), kind)
    resource = wire.members(members["resource"]) if kind == "resource" and "resource" in members else {}
    if (blob := wire.text(resource.get("blob"))) is not None:
        return contents.keep(block, blob, resource.get("mimeType"), kind)
    if "text" in resource:
        return _read_text(resource["text"])
    return bytes(block)


def _read_text(text: Raw) -> bytes:
    """Return the JSON in a text; a text that is no JSON as it is."""
    plain = wire.text(text)
    if plain is None:
        return b"null"
    try:
        data = plain.strip().encode()
        decode_as(data, Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return bytes(text)
    return data
