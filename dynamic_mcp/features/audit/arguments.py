"""The arguments in the audit log: their names and a keyed digest, or their values, within a bound.

Secrets are masked first, in digests too. Large values are not parsed: a digest is over their bytes, and a record has
their size instead.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.config.masking import is_secret_member, mask_string, mask_value
from dynamic_mcp.config.secrets import MASKED
from dynamic_mcp.features.audit import days
from dynamic_mcp.mcp import wire
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_private

ArgumentMode = Literal["keys", "redacted", "full", "off"]

# Arguments of up to this size are recorded or digested whole, as their JSON after masking.
_WHOLE = 16 * 1024
# Of larger ones, single values of up to this size are recorded, and the others digested by their first bytes.
_WHOLE_MEMBER = 1024
_DIGESTED = 1024 * 1024
_MAX_NAMES = 100
_LONGEST_NAME = 200

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
_KEY_BYTES = 32


class ArgumentNames(Struct, frozen=True, omit_defaults=True):
    """The names of arguments, and an HMAC-SHA256 (RFC 2104) of their canonical JSON.

    `more` is the number of names that are left out, and `bytes` the size of arguments that are too large.
    """

    names: list[str]
    digest: str = ""
    more: int = 0
    bytes: int = 0


class ArgumentRecord:
    """Describes arguments as the settings want; `key` returns the key of digests, or None if there is none."""

    def __init__(self, mode: ArgumentMode, key: Callable[[], bytes | None]) -> None:
        self._mode = mode
        self._key = key
        self._describe = {"keys": self._names, "redacted": _redacted, "full": _full, "off": _nothing}[mode]

    def describe(self, arguments: Raw | None) -> Raw:
        """Return what the log records of arguments; empty for nothing."""
        if arguments is None or not len(arguments):
            return wire.ABSENT
        described = self._describe(arguments)
        return Raw(described) if described else wire.ABSENT

    def describe_briefly(self, arguments: Raw | None) -> Raw:
        """Return what is recorded before a call is sent: the arguments in full, or their names without a digest."""
        if arguments is None or not len(arguments) or self._mode == "off":
            return wire.ABSENT
        if self._mode == "full":
            return Raw(_full(arguments))
        names = tuple(_members(arguments))
        return _find_brief(names) if len(arguments) <= _WHOLE else _encode_brief(names)

    def _names(self, arguments: Raw) -> bytes:
        if len(arguments) <= _WHOLE:
            try:
                masked = mask_value(_decode(arguments))
                names = list(masked) if isinstance(masked, dict) else []
                return self._encode_names(names, _canonical(masked), 0)
            except _UNREADABLE:
                pass
        members = _members(arguments)
        digested = _digest_members(members) if members else bytes(memoryview(arguments)[:_DIGESTED])
        return self._encode_names([mask_string(name) for name in members], digested, len(arguments))

    def _encode_names(self, names: list[str], digested: bytes, size: int) -> bytes:
        key = self._key()
        digest = "" if key is None else f"hmac:{hmac.digest(key, digested, 'sha256').hex()}"
        shown = [_shorten(name) for name in names[:_MAX_NAMES]]
        return _encode(ArgumentNames(shown, digest, len(names) - len(shown), size))


def _encode_brief(names: tuple[str, ...]) -> Raw:
    shown = [_shorten(mask_string(name)) for name in names[:_MAX_NAMES]]
    return Raw(_encode(ArgumentNames(shown, more=len(names) - len(shown))))


_find_brief = lru_cache(maxsize=256)(_encode_brief)  # for names that are short enough to be kept


def _nothing(arguments: Raw) -> bytes:
    return b""


def _redacted(arguments: Raw) -> bytes:
    if len(arguments) <= _WHOLE:
        try:
            return _encode(mask_value(_decode(arguments)))
        except _UNREADABLE:
            pass
    return _cut(arguments, _redacted_member)


def _full(arguments: Raw) -> bytes:
    if len(arguments) <= _WHOLE and _is_readable(arguments):
        return bytes(arguments)
    return _cut(arguments, _full_member)


def _redacted_member(name: str, value: Raw) -> object:
    if is_secret_member(name):
        return MASKED
    return mask_value(_decode(value)) if _is_readable(value) else {"cut": len(value)}


def _full_member(name: str, value: Raw) -> object:
    return value if _is_readable(value) else {"cut": len(value)}


def _is_readable(data: Raw) -> bool:
    """Return whether JSON can be read again from a line; half of a surrogate pair cannot."""
    try:
        _decode(data)
    except _UNREADABLE:
        return False
    return True


def _cut(arguments: Raw, show: Callable[[str, Raw], object]) -> bytes:
    """Return arguments that are too large or nested too deeply, with sizes in place of large values."""
    members = _members(arguments)
    if not members:
        return _encode({"cut": len(arguments)})
    shown: dict[str, object] = {}
    left = _WHOLE
    for name, value in list(members.items())[:_MAX_NAMES]:
        left -= min(len(value), _WHOLE_MEMBER)
        is_shown = len(value) <= _WHOLE_MEMBER and left > 0
        shown[_shorten(mask_string(name))] = show(name, value) if is_shown else {"cut": len(value)}
    return _encode({**shown, "cut": len(arguments)})


def _digest_members(members: Mapping[str, Raw]) -> bytes:
    """Return what is digested of arguments that are too large: the size and first bytes of each value."""
    digest = hashlib.sha256()
    left = _DIGESTED
    for name in sorted(members):
        value = b'"***"' if is_secret_member(name) else memoryview(members[name])
        head = value[:left]
        left -= len(head)
        digest.update(f"{name}\0{len(value)}\0".encode(errors="replace"))
        digest.update(head)
    return digest.digest()


def _members(arguments: Raw) -> Mapping[str, Raw]:
    try:
        return wire.members(arguments)
    except wire.Malformed:
        return {}


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def load_key(directory: Path) -> bytes:
    """Return the key of the log in a directory, and create it if there is none. Raises OSError and ValueError."""
    path = directory / days.KEY
    if not path.exists():
        paths.claim_private_dir(directory)
        new = directory / f".{days.KEY}-{os.urandom(8).hex()}"
        paths.write_private(new, os.urandom(_KEY_BYTES))
        try:
            os.link(new, path)  # unless another process was faster: its key stays
        except FileExistsError:
            pass
        finally:
            new.unlink()
    key = read_private(path, most=_KEY_BYTES)
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{path} does not have {_KEY_BYTES} bytes")
    return key
