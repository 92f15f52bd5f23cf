"""Decodes JSON as a type, in any thread.

msgspec prepares a type when it is first needed. If another thread reads JSON as that type meanwhile, the process
crashes (seen with msgspec 0.22). So types are prepared one after the other, under a lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

_lock = threading.Lock()
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}  # Any: the types differ


def decode_as(data: bytes | str | msgspec.Raw, kind: type[_T]) -> _T:
    """Decode JSON as this type. Raises msgspec.DecodeError, and UnicodeDecodeError for invalid UTF-8."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _lock:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: _T = decoder.decode(data)
    return value
