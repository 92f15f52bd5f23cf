"""The fields that all servers have: whether it is enabled, its timeouts, its tools and its description."""

from __future__ import annotations

import math
import re

from dynamic_mcp.config import types
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.importer.adapter import Field, TimeoutField
from dynamic_mcp.importer.convert.draft import Draft, FieldValue, describe_kind

_TRUE = frozenset(("true", "yes", "1", "on"))
_FALSE = frozenset(("false", "no", "0", "off"))
_PLAUSIBLE_MS = 1000
_LONGEST_DESCRIPTION = 2000


def convert_limits(draft: Draft, *, is_off: bool) -> dict[str, object]:
    """Return the fields that programs and remote servers have in common."""
    entry: dict[str, object] = {}
    if description := _read_description(draft):
        entry["description"] = description
    if is_off or _is_disabled(draft):
        entry["enabled"] = False
    if timeout := _read_timeout(draft):
        entry["timeout"] = timeout
    if tools := _read_tools(draft):
        entry["tools"] = tools
    return entry


def _read_description(draft: Draft) -> str:
    given = draft.choose(Field.DESCRIPTION)
    text = draft.to_plain_text(given.name, given.value) if given else None
    words = " ".join((text or "").split())
    if given and len(words) > _LONGEST_DESCRIPTION:
        draft.note(given.name, f"is truncated to {_LONGEST_DESCRIPTION} characters")
    return words[:_LONGEST_DESCRIPTION]


def _is_disabled(draft: Draft) -> bool:
    on = [_parse_bool(draft, given) for given in draft.find_all(Field.ENABLED)]
    off = [_parse_bool(draft, given) for given in draft.find_all(Field.DISABLED)]
    return False in on or True in off


def _parse_bool(draft: Draft, given: FieldValue) -> bool | None:
    if isinstance(given.value, bool) or given.value is None:
        return given.value
    word = str(given.value).lower() if isinstance(given.value, (str, int)) else ""
    if word in _TRUE | _FALSE:
        return word in _TRUE
    draft.note(given.name, f"is {describe_kind(given.value)}, not a boolean, and is left out")
    return None


def _read_timeout(draft: Draft) -> dict[str, str]:
    timeout: dict[str, str] = {}
    for wait, given in draft.timeouts:
        if isinstance(given.value, dict):
            _add_parts(draft, timeout, given)
        elif given.value is not None and (seconds := _parse_seconds(draft, wait, given)) is not None:
            _set_timeout(draft, timeout, wait.part, given, seconds)
    return timeout


def _set_timeout(draft: Draft, timeout: dict[str, str], part: str, given: FieldValue, seconds: float) -> None:
    duration = _format_duration(seconds)
    if timeout.setdefault(part, duration) != duration:
        draft.note(given.name, f"is left out: another field says {timeout[part]}")


def _add_parts(draft: Draft, timeout: dict[str, str], given: FieldValue) -> None:
    """Read OpenCode's later form: one timeout for each phase of a server."""
    parts = {"startup": "connect", "execution": "tools", "request": "tools", "connect": "connect", "tools": "tools"}
    assert isinstance(given.value, dict)
    for name, value in given.value.items():
        inner = FieldValue(f"{given.name}.{name}", value)
        part = parts.get(name)
        if part is None:
            draft.note(inner.name, "has no counterpart here and is left out")
        elif (seconds := _parse_seconds(draft, TimeoutField("tools"), inner)) is not None:
            _set_timeout(draft, timeout, part, inner, seconds)


def _parse_seconds(draft: Draft, wait: TimeoutField, given: FieldValue) -> float | None:
    amount = _parse_amount(given)
    if amount is None or amount <= 0:
        draft.note(given.name, "is not a usable duration and is left out")
        return None
    if isinstance(given.value, str) and not re.fullmatch(r"[\d.\s]+", given.value):
        seconds = amount
    else:
        seconds = amount * _choose_unit_s(draft, wait, given, amount)
    if not 0 < seconds <= types.LONGEST_S:
        draft.note(given.name, "is not a usable duration and is left out")
        return None
    return seconds


def _parse_amount(given: FieldValue) -> float | None:
    try:
        amount = types.parse_seconds(given.value)
    except (FlawError, OverflowError):
        value = given.value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(_to_float(value)):
            return _to_float(value)  # too long in seconds, but perhaps not in milliseconds
        return None
    return amount


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _choose_unit_s(draft: Draft, wait: TimeoutField, given: FieldValue, amount: float) -> float:
    unit = wait.unit_s if wait.unit_s is not None else draft.context.adapter.timeout_unit_s
    if unit is not None:
        return unit
    guess = 0.001 if amount >= _PLAUSIBLE_MS else 1.0
    words = "milliseconds" if guess < 1 else "seconds"
    draft.note(given.name, f"is taken as {words}: the tool does not document its unit")
    return guess


def _format_duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    if milliseconds < 1:
        return "1ms"
    if milliseconds % 1000 == 0:
        return f"{milliseconds // 1000}s"
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:g}s"


def _read_tools(draft: Draft) -> dict[str, object]:
    tools: dict[str, object] = {}
    for given in draft.find_all(Field.INCLUDE):
        _set_names(draft, tools, "include", given)
    for given in draft.find_all(Field.EXCLUDE):
        _set_names(draft, tools, "exclude", given)
    for given in draft.find_all(Field.TOOLS):
        if isinstance(given.value, dict):
            _add_tools_object(draft, tools, given)
        else:
            _set_names(draft, tools, "include", given)
    return tools


def _add_tools_object(draft: Draft, tools: dict[str, object], given: FieldValue) -> None:
    assert isinstance(given.value, dict)
    for name, value in given.value.items():
        inner = FieldValue(f"{given.name}.{name}", value)
        if name in ("include", "exclude"):
            _set_names(draft, tools, name, inner)
        elif isinstance(value, dict) and any("approv" in key.lower() for key in value):
            draft.note(inner.name, "is an approval; approvals are never imported")
        elif value is False:
            _add_names(tools, "exclude", [name])
        elif value is not True and value is not None:
            draft.note(inner.name, "has no counterpart here and is left out")


def _set_names(draft: Draft, tools: dict[str, object], part: str, given: FieldValue) -> None:
    if given.value is None:
        return
    listed = [given.value] if isinstance(given.value, str) else given.value
    if not isinstance(listed, list):
        draft.note(given.name, f"is {describe_kind(given.value)}, not a list, and is left out")
        return
    names = [
        name for name in (draft.to_plain_text(f"{given.name}[{i}]", each) for i, each in enumerate(listed)) if name
    ]
    if part == "exclude" and not names:
        return
    if part == "include" and not listed:
        draft.note(given.name, "is an empty list, so the server offers no tools")
    if part == "include" and "*" in names:
        return
    _add_names(tools, part, names)


def _add_names(tools: dict[str, object], part: str, names: list[str]) -> None:
    known = tools.get(part)
    tools[part] = [*known, *names] if isinstance(known, list) else names
