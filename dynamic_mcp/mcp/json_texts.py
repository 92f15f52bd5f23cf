"""Finds and replaces texts in encoded JSON while every other byte stays.

Nothing here decodes values, so deep nesting, duplicate names and unusual numbers are all preserved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from msgspec import Raw

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TOKENS = re.compile(rb"(" + _STRING + rb")(\s*:)?|[{\[]|[}\]]", re.DOTALL)
_SCALARS = re.compile(rb"(" + _STRING + rb")(\s*:)?|[^\s{}\[\],:\"]+", re.DOTALL)
# Common escapes, the most common first.
_ESCAPES = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"))
_START_OF_JSON = (b"{", b"[", b'"')
_decode_texts = msgspec.json.Decoder(list[str]).decode
_check = msgspec.json.Decoder(Raw).decode

Replace = Callable[[bytes], bytes]


class MatchSpan(NamedTuple):
    """A place to replace, and that of the match that it belongs to."""

    start: int
    end: int
    match_start: int
    match_end: int


class PayloadPart(Enum):
    """A part of a message, which decides which of its texts are content."""

    MESSAGE = auto()  # a result, an error, or the params of a notification or of a question
    CONTENT = auto()  # blocks of content, contents of resources, messages of prompts
    DATA = auto()  # data of an error or of a log message
    META = auto()
    QUESTIONS = auto()  # a result's requests to the client, by ids
    WORDS = auto()  # all texts in it are
    PROTOCOL = auto()  # none of the texts in it are


_CONTENT_KEYS = dict.fromkeys(("content", "contents", "messages", "resource"), PayloadPart.CONTENT)
_PROTOCOL_KEYS = (
    *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "nextCursor", "requestState", "requestId"),
    *("progressToken", "level", "logger", "uri", "url", "elicitationId", "mode", "method", "model", "role"),
    *("stopReason", "requestedSchema", "modelPreferences", "toolChoice", "tools", "stopSequences", "includeContext"),
)
_CHILDREN: Mapping[PayloadPart, Mapping[str, PayloadPart]] = {
    PayloadPart.MESSAGE: {
        **dict.fromkeys(_PROTOCOL_KEYS, PayloadPart.PROTOCOL),
        **dict.fromkeys(("task", "tasks", "result", "error", "params", "elicitations"), PayloadPart.MESSAGE),
        "inputRequests": PayloadPart.QUESTIONS,
        **_CONTENT_KEYS,
        "data": PayloadPart.DATA,
        "_meta": PayloadPart.META,
    },
    PayloadPart.CONTENT: {
        **dict.fromkeys(
            ("type", "uri", "mimeType", "data", "blob", "name", "role", "annotations", "icons", "id", "toolUseId"),
            PayloadPart.PROTOCOL,
        ),
        **_CONTENT_KEYS,
        "_meta": PayloadPart.META,
    },
    PayloadPart.DATA: {"elicitations": PayloadPart.MESSAGE},
}
_OF_PROTOCOL = ("dynamic-mcp/", "io.modelcontextprotocol/", "modelcontextprotocol.io/", "mcp.dev/", "progressToken")


def find_texts(data: bytes) -> list[str]:
    """Return all texts and names in JSON, without escapes."""
    tokens = b"[" + b",".join(_STRINGS.findall(data)) + b"]"
    try:
        return _decode_texts(tokens)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [decode(each).decode("utf-8", "surrogatepass") for each in _STRINGS.findall(data)]


def unescape(data: bytes) -> bytes | None:
    """Return JSON bytes with the texts unescaped; None if that takes long."""
    if b"\\" not in data:
        return data
    for escape, character in _ESCAPES:
        data = character.join(data.split(escape))  # faster than replacing
        if b"\\" not in data:
            return data
    return None  # correct for an escaped backslash, too: the one before it stays


def rewrite(data: bytes, part: PayloadPart, replace: Replace) -> bytes:
    """Return JSON with replaced texts: `replace` gets each text that is content, as UTF-8.

    Names, numbers and protocol members stay.
    """
    pieces: list[bytes] = []
    stack: list[PayloadPart] = []
    end, container = 0, part
    for token in _TOKENS.finditer(data):
        literal, is_name = token.group(1, 2)
        if literal is None:
            if token[0] in b"{[":
                stack.append(container)
                container = part
            elif stack:
                part = container = stack.pop()
        elif is_name is not None:
            part = _part_of(container, literal)
        elif part is not PayloadPart.PROTOCOL:
            text = decode(literal)
            replaced = replace(text)
            if replaced is not text:
                pieces += data[end : token.start()], encode(replaced)
                end = token.end()
    return b"".join((*pieces, data[end:])) if pieces else data


def rewrite_all(data: bytes, replace: Replace) -> bytes:
    """Return JSON with replaced texts and names; the same object if none is another one."""

    def rewrite_literal(match: re.Match[bytes]) -> bytes:
        text = decode(match[0])
        replaced = replace(text)
        return match[0] if replaced is text else encode(replaced)

    rewritten = _STRINGS.sub(rewrite_literal, data)
    return data if rewritten == data else rewritten


def replace_values(data: bytes, spans: Sequence[MatchSpan], value: bytes) -> bytes:
    """Return JSON with this value in place of every text, number or literal that one of the spans overlaps.

    Names stay. A match within a single text concerns its encoding, and changes nothing. The spans are in order.
    """
    pieces: list[bytes] = []
    end = at = 0
    for token in _SCALARS.finditer(data):
        start, stop = token.span(1) if token[1] is not None else token.span()
        while at < len(spans) and spans[at].end <= start:
            at += 1
        if at == len(spans):
            break
        if token[2] is None and _is_reached(spans, at, start, stop, is_text=token[1] is not None):
            pieces += data[end:start], value
            end = stop
    return b"".join((*pieces, data[end:])) if pieces else data


def _is_reached(spans: Sequence[MatchSpan], at: int, start: int, stop: int, *, is_text: bool) -> bool:
    """Return whether one of the spans from `at` on overlaps a value that begins and ends here."""
    while at < len(spans) and spans[at].start < stop:
        if not is_text or spans[at].match_start < start or spans[at].match_end > stop:
            return True
        at += 1
    return False


def is_json(text: bytes) -> bool:
    """Return whether a text is JSON that contains texts."""
    if text.lstrip()[:1] not in _START_OF_JSON:
        return False
    try:
        return len(_check(text)) > 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def decode(literal: bytes) -> bytes:
    """Return the text of a JSON string, as UTF-8, in which a lone surrogate has three bytes."""
    if b"\\" not in literal:
        return literal[1:-1]
    try:
        return msgspec.json.decode(literal, type=str).encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        text: str = json.loads(literal.decode("utf-8", "replace"), strict=False)
    except ValueError:  # an invalid JSON escape
        return literal[1:-1].decode("utf-8", "replace").encode()
    return text.encode("utf-8", "surrogatepass")


def encode(text: bytes) -> bytes:
    """Return the JSON string of a text."""
    try:
        return msgspec.json.encode(text.decode())
    except UnicodeDecodeError:
        pass
    try:
        return json.dumps(text.decode("utf-8", "surrogatepass")).encode()
    except UnicodeDecodeError:  # a pattern has split a character
        return msgspec.json.encode(text.decode("utf-8", "replace"))


def _part_of(container: PayloadPart, name: bytes) -> PayloadPart:
    """Return the part that the value of this name is, within such a part."""
    if container is PayloadPart.WORDS or container is PayloadPart.PROTOCOL:
        return container
    if container is PayloadPart.QUESTIONS:
        return PayloadPart.MESSAGE
    text = decode(name).decode("utf-8", "replace")
    if container is PayloadPart.META:
        return PayloadPart.PROTOCOL if text.startswith(_OF_PROTOCOL) else PayloadPart.WORDS
    return _CHILDREN[container].get(text, PayloadPart.WORDS)
