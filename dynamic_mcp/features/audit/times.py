"""Reads times and durations as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import InvalidArguments

_TIME_HINT = "write a time until now such as `90s`, `1h` or `2d`, or a time: `2026-11-23` or `2026-11-23T14:00`"


def parse_time(option: str, text: str, now: float, *, is_end: bool = False) -> float:
    """Return the seconds since 1970 of a time until now, or of a date or time, which is local without a zone.

    A date is its beginning, or its end. Raises InvalidArguments.
    """
    try:
        return now - parse_seconds(text)
    except FlawError as exc:
        flaw = exc
    try:
        parsed = datetime.fromisoformat(text.strip())
        if len(text.strip()) <= len("2026-11-23") and is_end:
            parsed += timedelta(days=1)
        return parsed.timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidArguments(f"`{option} {text}` is not a time", hint=_TIME_HINT) from flaw


def parse_duration(option: str, text: str) -> float:
    """Return a duration in seconds. Raises InvalidArguments."""
    try:
        return parse_seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"`{option}` {exc}", hint=exc.hint) from exc
