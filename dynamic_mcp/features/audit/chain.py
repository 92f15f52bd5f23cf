"""One line of the audit log, and the chain: each line ends with its own hash, after the hash of the line before it.

`hash` is the SHA-256 of the line's bytes without it: of `{…,"prev":"<64 hex>"}`. A line is ASCII without control
characters, so nothing in it can end it or reach a terminal. Lines of other versions can be read: unknown members are
ignored, and missing ones have a default.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.mcp.wire import ABSENT

VERSION = 1
# `prev` of the very first line.
ZERO = "0" * 64

LineOutcome = Literal["success", "failure", "denied", "pending", "cancelled", "unknown"]

_VERSION_MEMBER = b'{"v":%d,' % VERSION
_HASH_MEMBER = b',"hash":"'
_HASH_LENGTH = len(_HASH_MEMBER) + 64 + len(b'"}')
_PRINTABLE = bytes(range(0x20, 0x7F))
_UNSAFE = re.compile(r"[^\x20-\x7e]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HASH = re.compile(rb"[0-9a-f]{64}")
_encode = msgspec.json.Encoder().encode


class Damaged(ValueError):
    """A line of the log was changed, or is not a line at all."""


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event: what happened, who caused it, what was decided, and the result. Members are written in this order.

    `n` numbers the lines of a day from 1, and `at` is RFC 3339 with milliseconds, in UTC. `event` is `call`, `read`,
    `prompt`, `list`, or another name such as `auth.denied` or `approval.decided`, whose details are in `detail`.
    `session`, `request` and `trace` are ids; `session` is not the credential of a session, `parent` is the `id` of
    the line of the script that has made a call. `group`, `kind` and `name` say what was used, by the server's own
    name, or by its URI; `shown` is the name that the client wrote, if it is another. `arguments` are as the settings
    say: `names` and a keyed `digest`, or the arguments themselves.
    `result_bytes` is the size of the result or the error, `cached` is true for a cached result. `error` is the code
    of a JSON-RPC error, `tool_error` for a result that is one, or the name of our own error. `ms` is the time from
    request to answer, `wait_ms` the part of it that was spent waiting for a person. `definition` is the hash of the
    tool's definition.

    Absent JSON must be `ABSENT` itself: msgspec leaves out members that are the default, not ones that equal it.
    """

    v: int
    n: int = 0
    at: str = ""
    id: str = ""
    event: str = ""
    outcome: LineOutcome = "success"
    issuer: str = ""
    subject: str = ""
    roles: tuple[str, ...] = ()
    auth: str = ""
    client: str = ""
    client_version: str = ""
    address: str = ""
    session: str = ""
    request: str = ""
    trace: str = ""
    parent: str = ""
    config: str = ""
    pid: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""
    shown: str = ""
    access: str = ""
    decision: str = ""
    rule: str = ""
    approval: str = ""
    approved_by: str = ""
    arguments: Raw = ABSENT
    original_arguments: Raw = ABSENT
    result_bytes: int = 0
    cached: bool = False
    error: str = ""
    ms: float = 0.0
    wait_ms: float = 0.0
    upstream: str = ""
    upstream_version: str = ""
    definition: str = ""
    detail: Raw = ABSENT
    prev: str = ""
    hash: str = ""


class ChainLink(Struct, frozen=True, gc=False):
    """The number and hash of a line, which the next line continues."""

    n: int
    hash: str
    prev: str = ""


_decode_link = msgspec.json.Decoder(ChainLink).decode
_decode_line = msgspec.json.Decoder(AuditLine).decode


def encode(value: Struct) -> bytes:
    """Return the JSON of a line or a seal: ASCII, without control characters."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name and UTF-8 cannot write
        data = _encode(_without_surrogates(value))
    if not data.translate(None, _PRINTABLE):  # the fastest way to find any other byte
        return data
    return _UNSAFE.sub(_escape, data.decode(errors="replace")).encode("ascii")


def join(shared: bytes, line: bytes) -> bytes:
    """Return the JSON of one line from that of two, whose members differ but for `v`; the first may be empty."""
    return b"%b,%b" % (shared[:-1], line.removeprefix(_VERSION_MEMBER)) if shared else line


def finish(data: bytes) -> tuple[bytes, str]:
    """Add the hash to the result of `encode`; return the line with its newline, and the hash."""
    digest = hashlib.sha256(data).hexdigest()
    return b"".join((data[:-1], _HASH_MEMBER, digest.encode(), b'"}\n')), digest


def check(data: bytes) -> str:
    """Return the hash of a line, which may end with its newline. Raises Damaged if it does not fit the line."""
    data = data.removesuffix(b"\n")
    start = len(data) - _HASH_LENGTH
    stated = data[start + len(_HASH_MEMBER) : -2]
    if (
        start < 1
        or not data.startswith(_HASH_MEMBER, start)
        or not data.endswith(b'"}')
        or not _HASH.fullmatch(stated)
    ):
        raise Damaged("has no hash at its end")
    if hashlib.sha256(data[:start] + b"}").hexdigest().encode() != stated:
        raise Damaged("does not match its hash")
    return stated.decode()


def read_link(data: bytes) -> ChainLink:
    """Return the number and hashes of a line whose hash is right. Raises Damaged."""
    digest = check(data)
    try:
        link = _decode_link(data)
    except msgspec.MsgspecError as exc:
        raise Damaged(f"is not a line of the log: {exc}") from None
    if link.hash != digest:
        raise Damaged("has two hashes")
    return link


def read_line(data: bytes) -> AuditLine:
    """Parse a written line without checking its hash. Raises Damaged if it is not a line."""
    try:
        return _decode_line(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Damaged(f"is not a line of the log: {exc}") from None


def possible_hashes(data: bytes) -> tuple[str, str]:
    """Return what the line after a damaged one may have as `prev`: the hash that is stated, or the right one."""
    stated = data[-66:-2].decode("ascii", "replace")
    return stated, hashlib.sha256(data[:-_HASH_LENGTH] + b"}").hexdigest()


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:  # only between the tokens of opaque JSON: within texts it is escaped already
        return " "
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _without_surrogates(value: Struct) -> Struct:
    changes: dict[str, object] = {}
    for name, member in structs.asdict(value).items():
        if isinstance(member, str):
            changes[name] = _SURROGATE.sub("\ufffd", member)
        elif isinstance(member, tuple):
            changes[name] = tuple(_SURROGATE.sub("\ufffd", each) for each in member)
    return structs.replace(value, **changes)
