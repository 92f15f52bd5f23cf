"""The part of an entry that every server has: whether it is on, how long to wait, which tools, what it is for."""

from __future__ import annotations

import math
import re

from dynamic_mcp.config import values
from dynamic_mcp.importer.adapter import Field, Wait
from dynamic_mcp.importer.draft import Draft, Given, kind

_TRUE = frozenset(("true", "yes", "1", "on"))
_FALSE = frozenset(("false", "no", "0", "off"))
_PLAUSIBLE_MS = 1000
_LONGEST_DESCRIPTION = 2000


def limits(draft: Draft, *, is_off: bool) -> dict[str, object]:
    """The fields that a program and a remote server have in common."""
    entry: dict[str, object] = {}
    if description := _description(draft):
        entry["description"] = description
    if is_off or _is_disabled(draft):
        entry["enabled"] = False
    if timeout := _timeout(draft):
        entry["timeout"] = timeout
    if tools := _tools(draft):
        entry["tools"] = tools
    return entry


def _description(draft: Draft) -> str:
    given = draft.take(Field.DESCRIPTION)
    text = draft.plain(given.name, given.value) if given else None
    words = " ".join((text or "").split())
    if given and len(words) > _LONGEST_DESCRIPTION:
        draft.note(given.name, f"is cut to {_LONGEST_DESCRIPTION} characters")
    return words[:_LONGEST_DESCRIPTION]


def _is_disabled(draft: Draft) -> bool:
    on = [_truth(draft, given) for given in draft.all(Field.ENABLED)]
    off = [_truth(draft, given) for given in draft.all(Field.DISABLED)]
    return False in on or True in off


def _truth(draft: Draft, given: Given) -> bool | None:
    if isinstance(given.value, bool) or given.value is None:
        return given.value
    word = str(given.value).lower() if isinstance(given.value, (str, int)) else ""
    if word in _TRUE | _FALSE:
        return word in _TRUE
    draft.note(given.name, f"is {kind(given.value)} and not true or false, and is left out")
    return None


def _timeout(draft: Draft) -> dict[str, str]:
    timeout: dict[str, str] = {}
    for wait, given in draft.waits:
        if isinstance(given.value, dict):
            _note_parts(draft, timeout, given)
        elif given.value is not None and (seconds := _seconds(draft, wait, given)) is not None:
            _set(draft, timeout, wait.part, given, seconds)
    return timeout


def _set(draft: Draft, timeout: dict[str, str], part: str, given: Given, seconds: float) -> None:
    duration = _duration(seconds)
    if timeout.setdefault(part, duration) != duration:
        draft.note(given.name, f"is left out, as another field says {timeout[part]}")


def _note_parts(draft: Draft, timeout: dict[str, str], given: Given) -> None:
    """OpenCode's later form: a time for each part of a server's life."""
    parts = {"startup": "connect", "execution": "tools", "request": "tools", "connect": "connect", "tools": "tools"}
    assert isinstance(given.value, dict)
    for name, value in given.value.items():
        inner = Given(f"{given.name}.{name}", value)
        part = parts.get(name)
        if part is None:
            draft.note(inner.name, "has no counterpart here and is left out")
        elif (seconds := _seconds(draft, Wait("tools"), inner)) is not None:
            _set(draft, timeout, part, inner, seconds)


def _seconds(draft: Draft, wait: Wait, given: Given) -> float | None:
    amount = _amount(given)
    if amount is None or amount <= 0:
        draft.note(given.name, "is not a usable duration and is left out")
        return None
    if isinstance(given.value, str) and not re.fullmatch(r"[\d.\s]+", given.value):
        seconds = amount
    else:
        seconds = amount * _unit_s(draft, wait, given, amount)
    if not 0 < seconds <= values.LONGEST_S:
        draft.note(given.name, "is not a usable duration and is left out")
        return None
    return seconds


def _amount(given: Given) -> float | None:
    try:
        amount = values.parse_seconds(given.value)
    except (values.FlawError, OverflowError):
        value = given.value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(_float(value)):
            return _float(value)  # too many seconds may be a fair number of milliseconds
        return None
    return amount


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _unit_s(draft: Draft, wait: Wait, given: Given, amount: float) -> float:
    unit = wait.unit_s if wait.unit_s is not None else draft.context.adapter.timeout_unit_s
    if unit is not None:
        return unit
    guess = 0.001 if amount >= _PLAUSIBLE_MS else 1.0
    words = "milliseconds" if guess < 1 else "seconds"
    draft.note(given.name, f"is taken as {words}, since the tool does not say which unit it is")
    return guess


def _duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    if milliseconds < 1:
        return "1ms"
    if milliseconds % 1000 == 0:
        return f"{milliseconds // 1000}s"
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:g}s"


def _tools(draft: Draft) -> dict[str, object]:
    tools: dict[str, object] = {}
    for given in draft.all(Field.INCLUDE):
        _set_names(draft, tools, "include", given)
    for given in draft.all(Field.EXCLUDE):
        _set_names(draft, tools, "exclude", given)
    for given in draft.all(Field.TOOLS):
        if isinstance(given.value, dict):
            _from_object(draft, tools, given)
        else:
            _set_names(draft, tools, "include", given)
    return tools


def _from_object(draft: Draft, tools: dict[str, object], given: Given) -> None:
    assert isinstance(given.value, dict)
    for name, value in given.value.items():
        inner = Given(f"{given.name}.{name}", value)
        if name in ("include", "exclude"):
            _set_names(draft, tools, name, inner)
        elif isinstance(value, dict) and any("approv" in key.lower() for key in value):
            draft.note(inner.name, "is an approval, which is never imported")
        elif value is False:
            _add(tools, "exclude", [name])
        elif value is not True and value is not None:
            draft.note(inner.name, "has no counterpart here and is left out")


def _set_names(draft: Draft, tools: dict[str, object], part: str, given: Given) -> None:
    if given.value is None:
        return
    listed = [given.value] if isinstance(given.value, str) else given.value
    if not isinstance(listed, list):
        draft.note(given.name, f"is {kind(given.value)} and not a list, and is left out")
        return
    names = [name for name in (draft.plain(f"{given.name}[{i}]", each) for i, each in enumerate(listed)) if name]
    if part == "exclude" and not names:
        return
    if part == "include" and not listed:
        draft.note(given.name, "is an empty list, which offers no tool at all")
    if part == "include" and "*" in names:
        return
    _add(tools, part, names)


def _add(tools: dict[str, object], part: str, names: list[str]) -> None:
    known = tools.get(part)
    tools[part] = [*known, *names] if isinstance(known, list) else names
