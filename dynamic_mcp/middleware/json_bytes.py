"""JSON for plug-ins: bytes that are decoded only on access."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def decode_object(data: bytes) -> dict[str, Any]:  # Any: JSON
    """Return a JSON object. Raises ValueError for any other value, and for one that is nested too deeply."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the content is wrong, not the argument
    return value


def encode_object(value: Mapping[str, Any]) -> bytes:  # Any: JSON
    """Return an object as JSON. Raises TypeError and ValueError for values that JSON does not have."""
    if not isinstance(value, Mapping):
        raise TypeError("not a mapping")
    try:
        return json.dumps(dict(value), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can represent
        return json.dumps(dict(value), allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
