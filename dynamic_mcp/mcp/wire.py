"""JSON-RPC frames that keep the bytes of their payloads.

Nothing here decodes `params`, `result` or `error`, so they pass through unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in practice, absent from typeshed

import msgspec
from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST, PARSE_ERROR

ABSENT = Raw()
_MAX_DUPLICATE_SEARCH_BYTES = 1 << 20
# The maximum number of messages of a batch. An array of millions of numbers must not be split just to be refused;
# it has more commas than any real batch.
MAX_BATCH = 4096
_MAX_COMMAS_OF_BATCH = 1 << 20
# The size limit of the slow parser, which blocks all clients while it runs.
_MAX_SLOW_PARTS = 100_000
NULL = Raw(b"null")
EMPTY_OBJECT = Raw(b"{}")
EMPTY_ARRAY = Raw(b"[]")


class Frame(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One JSON-RPC message. A missing member is `ABSENT` or an empty string."""

    jsonrpc: str = ""
    id: Raw = ABSENT
    method: str = ""
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class VendorFrame(Frame, gc=False):
    """A frame with members that JSON-RPC does not define, which are passed on."""

    extra: dict[str, Raw] = {}


class HintedFrame(VendorFrame, gc=False):
    """A modern server's response for a legacy client, with the server's cache hints kept apart."""

    ttl_ms: Raw | None = None
    cache_scope: Raw | None = None


class Malformed(ValueError):
    """A line that is not a valid frame. `code` is its JSON-RPC error code; `id` is the request's id, if known."""

    def __init__(self, reason: str, code: int = PARSE_ERROR, id: Raw = NULL) -> None:
        super().__init__(reason)
        self.code = code
        self.id = id


_decode = msgspec.json.Decoder(Frame).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_check = msgspec.json.Decoder(Raw).decode
_decode_text = msgspec.json.Decoder(str).decode
encode = msgspec.json.Encoder().encode
# The exceptions of msgspec for undecodable input. Some of it is valid JSON, so a slower parser tries again.
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# --- reading -----------------------------------------------------------------------------------------


def parse(line: bytes) -> Frame:
    """Parse one message.

    Invalid UTF-8 is replaced by U+FFFD, so that the output is always valid. Lone surrogate escapes, which msgspec
    rejects, are accepted. Raises Malformed.
    """
    if not line.isascii():
        line = _valid_utf8(line)
    try:
        return _decode(line)
    except _DECODE_ERRORS:
        return _build_frame(members(line))


def is_batch(line: bytes) -> bool:
    """Return whether a line is a JSON array: a batch, which only protocol 2025-03-26 defines."""
    return line.lstrip().startswith(b"[")


def count_members(line: bytes) -> int:
    """Return the number of messages of a batch; 1 if it cannot be split, and is refused for that."""
    try:
        return len(batch(line))
    except Malformed:
        return 1


def members(data: bytes | Raw) -> dict[str, Raw]:
    """Split a JSON object into its members and keep the bytes of each value. Raises Malformed."""
    try:
        return _decode_members(data)
    except _DECODE_ERRORS:
        members_by_name = None if _is_certainly_array(bytes(data)) else _split(bytes(data))
        if not isinstance(members_by_name, dict):
            raise Malformed("not a JSON object", INVALID_REQUEST) from None
        return members_by_name


def member(data: bytes | Raw, *path: str) -> Raw:
    """Return the value at a path of names, or `ABSENT` if there is none."""
    value = data if isinstance(data, Raw) else Raw(data)
    for name in path:
        try:
            value = members(value).get(name, ABSENT)
        except Malformed:
            return ABSENT
    return value


def with_member(data: bytes | Raw, value: object, *path: str) -> Raw:
    """Return the object with a new value at a path of names; everything else keeps its bytes and order."""
    object_members = members(data)
    name, *deeper = path
    inner = with_member(object_members.get(name, EMPTY_OBJECT), value, *deeper) if deeper else value
    return Raw(encode({**object_members, name: inner}))


def elements(data: bytes | Raw) -> list[Raw]:
    """Split a JSON array into its elements and keep the bytes of each. Raises Malformed."""
    try:
        return _decode_elements(data)
    except _DECODE_ERRORS:
        items = _split(bytes(data))
        if not isinstance(items, list):
            raise Malformed("not a JSON array", INVALID_REQUEST) from None
        return items


def batch(line: bytes) -> list[Raw]:
    """Split a batch into its messages. Raises Malformed, also if there are more than `MAX_BATCH`."""
    if line.count(b",") <= _MAX_COMMAS_OF_BATCH and len(messages := elements(line)) <= MAX_BATCH:
        return messages
    raise Malformed(f"a batch may have {MAX_BATCH} messages at most", INVALID_REQUEST)


def text(data: Raw | None) -> str | None:
    """Return `data` as a string, or None if it is not a JSON string."""
    if data is None:
        return None
    try:
        return _decode_text(data)
    except _DECODE_ERRORS:
        if not len(data):
            return None
        try:
            value = json.loads(bytes(data))
        except (ValueError, RecursionError):
            return None
        # a lone surrogate cannot be written as UTF-8 again
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def value(data: Raw) -> object:
    """Return `data` as Python values; None if it is invalid or too deeply nested."""
    try:
        return msgspec.json.decode(data)
    except _DECODE_ERRORS:
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError):
            return None


def list_names(data: bytes | Raw) -> list[str]:
    """Return the names of an object's members, equal ones too. Raises RecursionError if it is nested too deeply."""
    # numbers stay texts, since Python reads none of more than 4,300 digits
    names: list[str] = json.loads(
        bytes(data), object_pairs_hook=lambda pairs: [name for name, _ in pairs], parse_int=str
    )
    return names


def find_duplicate_name(data: bytes | Raw, *, is_flat: bool = False) -> str | None:
    """Return a name that appears twice in an object or, unless `is_flat`, in one nested in it; else None.

    Objects longer than 1 MiB are not searched.
    """
    source = bytes(data)
    if (
        source.count(b":") < 2
        or len(source) > _MAX_DUPLICATE_SEARCH_BYTES
        or _is_certainly_unique(source, is_flat=is_flat)
    ):
        return None
    duplicates: list[str | None] = []  # one entry per object, the outermost last
    try:
        json.loads(source, object_pairs_hook=lambda pairs: duplicates.append(_first_duplicate(pairs)), parse_int=str)
    except (ValueError, RecursionError):
        return None
    return duplicates[-1] if is_flat else next((name for name in duplicates if name is not None), None)


def has_unique_names(members: Mapping[str, Raw], source: bytes | Raw) -> bool:
    """Return cheaply whether an object has only these members, and so no duplicate names.

    Nothing shorter says the same, so there is no room for one more member; or each member has one colon, besides
    those in its name and value. True is certain; False means unknown.
    """
    if len(source) - len(encode(members)) < len('"n":1,') and "" not in members:
        return True
    return bytes(source).count(b":") == len(members) + b"".join(members.values()).count(b":")


def _is_certainly_unique(source: bytes, *, is_flat: bool) -> bool:
    try:
        if not is_flat and source.find(b"{", source.find(b"{") + 1) >= 0:
            return False
        return has_unique_names(_decode_members(source), source)
    except _DECODE_ERRORS:
        return False


def _is_certainly_array(data: bytes) -> bool:
    try:
        return is_batch(data) and len(_check(data)) > 0
    except _DECODE_ERRORS:
        return False


def _first_duplicate(pairs: list[tuple[str, object]]) -> str | None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            return name
        names.add(name)
    return None


def is_request_id(id: bytes | Raw) -> bool:
    """Return whether these bytes are an id that MCP allows: a string or a number."""
    data = bytes(id)
    return data != b"" and data[0] in ID_START


def id_for_answer(frame: Frame) -> Raw:
    """Return the id for the answer to a message: its own, or null if MCP does not allow it."""
    return frame.id if is_request_id(frame.id) else NULL


ID_START = frozenset(b'0123456789"-')


def _valid_utf8(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError:
        line = line.decode("utf-8", "replace").encode()
    return line.removeprefix(b"\xef\xbb\xbf")


def _build_frame(members: dict[str, Raw]) -> Frame:
    """Build a frame from members, some of which are unknown or have the wrong type."""
    id = members.pop("id", ABSENT)
    frame = VendorFrame(id=id, jsonrpc=text(members.pop("jsonrpc", None)) or "")
    if "method" in members:
        method = text(members.pop("method"))
        if not method:
            raise Malformed("`method` is not a string", INVALID_REQUEST, id if is_request_id(id) else NULL)
        frame.method = method
    frame.params = members.pop("params", ABSENT)
    frame.result = members.pop("result", ABSENT)
    frame.error = members.pop("error", ABSENT)
    frame.extra = members
    return frame


# --- the slow parser, for JSON that msgspec rejects --------------------------------------------

_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode


def _split(data: bytes) -> dict[str, Raw] | list[Raw] | None:
    """Split a JSON object or array into its members or elements with the standard library's scanner."""
    source = data.decode("utf-8", "replace")
    start = _skip(source, 0)
    try:
        if source[start : start + 1] == "{":
            value, end = _cut_object(source, start + 1)
        elif source[start : start + 1] == "[":
            value, end = _cut_array(source, start + 1)
        else:
            _, end = _scan(source, start)
            value = None
    except Malformed:
        raise
    except (ValueError, IndexError) as exc:
        raise Malformed(f"not JSON: {exc}") from None
    except RecursionError:
        raise Malformed("nested too deeply") from None
    if _skip(source, end) != len(source):
        raise Malformed("not JSON: something follows the end of the message")
    return value


def _skip(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    return match.end() if match else at


def _cut_object(source: str, at: int) -> tuple[dict[str, Raw] | list[Raw] | None, int]:
    members: dict[str, Raw] = {}
    at = _skip(source, at)
    if source[at] == "}":
        return members, at + 1
    for _ in range(_MAX_SLOW_PARTS):
        if source[at] != '"':
            raise ValueError(f"a key was expected at character {at}")
        key, at = scanstring(source, at + 1, True)  # noqa: FBT003 - takes no keyword
        at = _skip(source, at)
        if source[at] != ":":
            raise ValueError(f"`:` was expected at character {at}")
        members[key.encode("utf-8", "replace").decode()], at, more = _cut_value(source, at + 1, "}")
        if not more:
            return members, at
    raise _too_many_parts()


def _cut_array(source: str, at: int) -> tuple[dict[str, Raw] | list[Raw] | None, int]:
    elements: list[Raw] = []
    at = _skip(source, at)
    if source[at] == "]":
        return elements, at + 1
    for _ in range(_MAX_SLOW_PARTS):
        value, at, more = _cut_value(source, at, "]")
        elements.append(value)
        if not more:
            return elements, at
    raise _too_many_parts()


def _too_many_parts() -> Malformed:
    return Malformed(f"more than {_MAX_SLOW_PARTS} parts, in JSON that is written unusually")


def _cut_value(source: str, at: int, closing: str) -> tuple[Raw, int, bool]:
    """Return the value at `at`, the position of the next value, and whether there is one."""
    start = _skip(source, at)
    _, end = _scan(source, start)
    value = Raw(source[start:end].encode())
    at = _skip(source, end)
    if source[at] == closing:
        return value, at + 1, False
    if source[at] != ",":
        raise ValueError(f"`,` or `{closing}` was expected at character {at}")
    return value, _skip(source, at + 1), True


# --- writing -------------------------------------------------------------------------------------------


class _Request(msgspec.Struct, gc=False):
    """A request of the proxy as it is written; msgspec leaves out a member that is `UNSET`."""

    jsonrpc: str
    id: int
    method: str
    params: Mapping[str, Raw] | Raw | msgspec.UnsetType


def request_line(id: int, method: str, params: Mapping[str, Raw] | Raw | None = None) -> bytes:
    """Encode a request of the proxy, with or without params."""
    return encode(_Request("2.0", id, method, msgspec.UNSET if params is None else params)) + b"\n"


def notification_line(method: str, params: bytes | Raw = ABSENT) -> bytes:
    """Encode a notification; `params` is already JSON."""
    head = b'{"jsonrpc":"2.0","method":%s' % encode(method)
    return b"".join((head, b',"params":', params, b"}\n")) if len(params) else head + b"}\n"


def answer_line(id: Raw, answer: Frame) -> bytes:
    """Encode a response: all members of `answer`, with `id` as its id."""
    kind, payload = (b',"result":', answer.result) if len(answer.result) else (b',"error":', answer.error)
    if type(answer) is Frame:
        return b"".join((b'{"jsonrpc":"2.0","id":', id, kind, payload, b"}\n"))
    return b"".join((b'{"jsonrpc":"2.0","id":', id, kind, payload, _extra_members(answer), b"}\n"))


def _extra_members(frame: Frame) -> bytes:
    if not isinstance(frame, VendorFrame) or not frame.extra:
        return b""
    return b"," + encode(frame.extra)[1:-1]


def error_frame(code: int, message: str, data: object = None) -> Frame:
    """Return a response that is a JSON-RPC error."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Frame(error=Raw(encode(error)))


def result_frame(result: Mapping[str, object] | bytes) -> Frame:
    """Return a response with this result; bytes are already JSON."""
    return Frame(result=Raw(result if isinstance(result, bytes) else encode(result)))


def compact(data: Raw) -> bytes:
    """Remove the white space from JSON and nothing else: numbers, order and escapes stay."""
    try:
        return msgspec.json.format(bytes(data), indent=-1)
    except _DECODE_ERRORS:
        return bytes(data)


def join_batch(lines: Iterable[bytes]) -> bytes:
    """Join responses into one batch, the array of protocol 2025-03-26."""
    return b"[" + b",".join(line.rstrip(b"\n") for line in lines) + b"]\n"
