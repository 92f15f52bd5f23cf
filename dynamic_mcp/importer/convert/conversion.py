"""Converts one server of a tool into an entry of our config, with a notice for everything that is lost."""

from __future__ import annotations

import math
import re
from collections.abc import Container
from dataclasses import dataclass, replace

from dynamic_mcp.config import types
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.importer.adapter import Meaning, TimeoutField
from dynamic_mcp.importer.convert import naming
from dynamic_mcp.importer.convert.draft import (
    Context,
    FieldValue,
    ServerDraft,
    UnusableError,
    describe_kind,
    make_draft,
)
from dynamic_mcp.importer.convert.fields import TYPES
from dynamic_mcp.importer.convert.program import convert_program, read_plain_words
from dynamic_mcp.importer.convert.remote import convert_remote
from dynamic_mcp.importer.model import ForeignServer, Notice

_SWITCHES = (Meaning.ENABLED, Meaning.DISABLED, Meaning.NAME, Meaning.DESCRIPTION)
_PROGRAM_FIELDS = (Meaning.ARGS, Meaning.ENV, Meaning.ENV_NAMES, Meaning.ENV_FILE, Meaning.CWD)
_REMOTE_FIELDS = (
    Meaning.HEADERS,
    Meaning.HEADERS_FROM_ENV,
    Meaning.BEARER,
    Meaning.BEARER_FROM_ENV,
    Meaning.OAUTH,
    Meaning.CLIENT_ID,
    Meaning.CLIENT_SECRET,
    Meaning.SCOPES,
    Meaning.REDIRECT_PORT,
    Meaning.METADATA_URL,
)
_ADDRESSES = (Meaning.HTTP_URL, Meaning.URL)
_TRUE = frozenset(("true", "yes", "1", "on"))
_FALSE = frozenset(("false", "no", "0", "off"))
_PLAUSIBLE_MS = 1000
_LONGEST_DESCRIPTION = 2000


@dataclass(frozen=True)
class RawServer:
    """A server as in its file. `is_off` if the file disables it elsewhere; `remarks` are about its fields."""

    name: str
    value: object
    is_off: bool = False
    remarks: tuple[tuple[str, str], ...] = ()


def convert_server(raw: RawServer, context: Context, taken: Container[str]) -> ForeignServer | tuple[Notice, ...]:
    """Return the server in our form, under a name that is not taken, or the reasons why it is left out."""
    if not isinstance(raw.value, dict):
        return (context.make_notice(raw.name, "", f"is {describe_kind(raw.value)}, not a server, and is left out"),)
    draft = make_draft(context, raw.name, raw.value)
    for field, reason in raw.remarks:
        draft.note(field, reason)
    try:
        if _is_ours(draft):
            notice = context.make_notice(raw.name, "", "is dynamic-mcp itself and is left out: it would start itself")
            return (replace(notice, is_about_us=True),)
        entry = {**_convert_upstream(draft), **_convert_limits(draft, is_off=raw.is_off)}
    except UnusableError as exc:
        draft.note(exc.field, f"{exc.reason}; the server is left out")
        return tuple(draft.notices)
    _note_never_carried(draft)
    name, remark = naming.legalize(_choose_name(draft), taken)
    if remark:
        draft.note("", remark)
    inherits = (context.adapter.inherits or "safe") if "command" in entry else None
    return ForeignServer(name, entry, context.source, tuple(draft.notices), tuple(draft.exports), inherits)


def _is_ours(draft: ServerDraft) -> bool:
    command = draft.choose(Meaning.COMMAND)
    words = read_plain_words(draft, command) if command else []
    address = next((original for original in draft.find_all(*_ADDRESSES) if original.value), None)
    return naming.is_ours(
        draft.name, words[0] if words else None, words[1:], str(address.value) if address and not words else None
    )


def _choose_name(draft: ServerDraft) -> str:
    """Return the key, or the field with the name if the tool's keys carry no meaning."""
    original = next((original for original in draft.find_all(Meaning.NAME) if original.value not in (None, "")), None)
    if original is None:
        return draft.name
    if original.name == draft.context.adapter.named_by and isinstance(original.value, str):
        return original.value
    if original.value != draft.name:
        draft.note(original.name, "is a display name, which has no counterpart here")
    return draft.name


def _convert_upstream(draft: ServerDraft) -> dict[str, object]:
    command, address = draft.choose(Meaning.COMMAND), draft.choose(*_ADDRESSES)
    kind_of = _read_type(draft)
    if kind_of == "ws" or (draft.choose(Meaning.WS_URL) and not (command or address)):
        raise UnusableError("", "WebSockets are not supported")
    if command is None and address is None:
        raise UnusableError("", _describe_missing(draft))
    is_remote = address is not None and (command is None or kind_of in ("http", "sse", "url"))
    if is_remote and address is not None:
        _note_others(draft, [*draft.find_all(Meaning.COMMAND, *_PROGRAM_FIELDS)], "applies only to programs")
        return convert_remote(draft, address, kind_of if kind_of in ("http", "sse") else None)
    assert command is not None
    _note_others(draft, [*draft.find_all(*_ADDRESSES, *_REMOTE_FIELDS)], "applies only to remote servers")
    if kind_of not in (None, "stdio"):
        draft.note("", "has a command but a remote type; the command is used")
    return convert_program(draft, command)


def _describe_missing(draft: ServerDraft) -> str:
    is_switch = bool(draft.fields.keys() & {Meaning.ENABLED, Meaning.DISABLED}) and draft.fields.keys() <= set(
        _SWITCHES
    )
    if is_switch and not draft.timeouts:
        return "only enables or disables a server that is defined elsewhere"
    return "has neither a command nor a URL"


def _note_others(draft: ServerDraft, others: list[FieldValue], reason: str) -> None:
    for original in others:
        if original.value not in (None, "", [], {}, False):
            draft.note(original.name, f"{reason} and is left out")


def _read_type(draft: ServerDraft) -> str | None:
    """Return `stdio`, `http`, `sse`, `ws`, `url` for a remote server of any kind, or None if no type is given."""
    for original in draft.find_all(Meaning.TYPE):
        if not isinstance(original.value, str) or not original.value.strip():
            if original.value not in (None, ""):
                draft.note(original.name, f"is {describe_kind(original.value)}, not a type, and is left out")
            continue
        word = re.sub(r"[^a-z]", "", original.value.lower())
        if word in TYPES:
            return TYPES[word]
        draft.note(original.name, f"`{original.value[:40]}` is an unknown type and is left out")
    return None


def _note_never_carried(draft: ServerDraft) -> None:
    reasons = {
        Meaning.APPROVAL: "is an approval; approvals are never imported",
        Meaning.TOKENS: "is a stored login; logins are never imported, so log in again",
        Meaning.HELPER: "is a program that generates headers and is never run: set the headers yourself",
        Meaning.NOTHING: "has no counterpart here and is left out",
    }
    for meaning, reason in reasons.items():
        for original in draft.find_all(meaning):
            if original.value not in (None, False, "", [], {}):
                draft.note(original.name, reason)


def _convert_limits(draft: ServerDraft, *, is_off: bool) -> dict[str, object]:
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


def _read_description(draft: ServerDraft) -> str:
    original = draft.choose(Meaning.DESCRIPTION)
    text = draft.to_plain_text(original.name, original.value) if original else None
    words = " ".join((text or "").split())
    if original and len(words) > _LONGEST_DESCRIPTION:
        draft.note(original.name, f"is truncated to {_LONGEST_DESCRIPTION} characters")
    return words[:_LONGEST_DESCRIPTION]


def _is_disabled(draft: ServerDraft) -> bool:
    on = [_parse_bool(draft, original) for original in draft.find_all(Meaning.ENABLED)]
    off = [_parse_bool(draft, original) for original in draft.find_all(Meaning.DISABLED)]
    return False in on or True in off


def _parse_bool(draft: ServerDraft, original: FieldValue) -> bool | None:
    if isinstance(original.value, bool) or original.value is None:
        return original.value
    word = str(original.value).lower() if isinstance(original.value, (str, int)) else ""
    if word in _TRUE | _FALSE:
        return word in _TRUE
    draft.note(original.name, f"is {describe_kind(original.value)}, not a boolean, and is left out")
    return None


def _read_timeout(draft: ServerDraft) -> dict[str, str]:
    timeout: dict[str, str] = {}
    for wait, original in draft.timeouts:
        if isinstance(original.value, dict):
            _add_parts(draft, timeout, original)
        elif original.value is not None and (seconds := _parse_seconds(draft, wait, original)) is not None:
            _set_timeout(draft, timeout, wait.part, original, seconds)
    return timeout


def _set_timeout(
    draft: ServerDraft, timeout: dict[str, str], part: str, original: FieldValue, seconds: float
) -> None:
    duration = _format_duration(seconds)
    if timeout.setdefault(part, duration) != duration:
        draft.note(original.name, f"is left out: another field says {timeout[part]}")


def _add_parts(draft: ServerDraft, timeout: dict[str, str], original: FieldValue) -> None:
    """Convert OpenCode's later form: one timeout for each phase of a server."""
    parts = {"startup": "connect", "execution": "tools", "request": "tools", "connect": "connect", "tools": "tools"}
    assert isinstance(original.value, dict)
    for name, value in original.value.items():
        inner = FieldValue(f"{original.name}.{name}", value)
        part = parts.get(name)
        if part is None:
            draft.note(inner.name, "has no counterpart here and is left out")
        elif (seconds := _parse_seconds(draft, TimeoutField("tools"), inner)) is not None:
            _set_timeout(draft, timeout, part, inner, seconds)


def _parse_seconds(draft: ServerDraft, wait: TimeoutField, original: FieldValue) -> float | None:
    amount = _parse_amount(original)
    if amount is None or amount <= 0:
        draft.note(original.name, "is not a usable duration and is left out")
        return None
    if isinstance(original.value, str) and not re.fullmatch(r"[\d.\s]+", original.value):
        seconds = amount
    else:
        seconds = amount * _choose_unit_s(draft, wait, original, amount)
    if not 0 < seconds <= types.LONGEST_S:
        draft.note(original.name, "is not a usable duration and is left out")
        return None
    return seconds


def _parse_amount(original: FieldValue) -> float | None:
    try:
        amount = types.parse_seconds(original.value)
    except (FlawError, OverflowError):
        value = original.value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(_to_float(value)):
            return _to_float(value)  # too long in seconds, but perhaps not in milliseconds
        return None
    return amount


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _choose_unit_s(draft: ServerDraft, wait: TimeoutField, original: FieldValue, amount: float) -> float:
    unit = wait.unit_s if wait.unit_s is not None else draft.context.adapter.timeout_unit_s
    if unit is not None:
        return unit
    guess = 0.001 if amount >= _PLAUSIBLE_MS else 1.0
    words = "milliseconds" if guess < 1 else "seconds"
    draft.note(original.name, f"is taken as {words}: the tool does not document its unit")
    return guess


def _format_duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    if milliseconds < 1:
        return "1ms"
    if milliseconds % 1000 == 0:
        return f"{milliseconds // 1000}s"
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:g}s"


def _read_tools(draft: ServerDraft) -> dict[str, object]:
    tools: dict[str, object] = {}
    for original in draft.find_all(Meaning.INCLUDE):
        _set_names(draft, tools, "include", original)
    for original in draft.find_all(Meaning.EXCLUDE):
        _set_names(draft, tools, "exclude", original)
    for original in draft.find_all(Meaning.TOOLS):
        if isinstance(original.value, dict):
            _add_tools_object(draft, tools, original)
        else:
            _set_names(draft, tools, "include", original)
    return tools


def _add_tools_object(draft: ServerDraft, tools: dict[str, object], original: FieldValue) -> None:
    assert isinstance(original.value, dict)
    for name, value in original.value.items():
        inner = FieldValue(f"{original.name}.{name}", value)
        if name in ("include", "exclude"):
            _set_names(draft, tools, name, inner)
        elif isinstance(value, dict) and any("approv" in key.lower() for key in value):
            draft.note(inner.name, "is an approval; approvals are never imported")
        elif value is False:
            _add_names(tools, "exclude", [name])
        elif value is not True and value is not None:
            draft.note(inner.name, "has no counterpart here and is left out")


def _set_names(draft: ServerDraft, tools: dict[str, object], part: str, original: FieldValue) -> None:
    if original.value is None:
        return
    listed = [original.value] if isinstance(original.value, str) else original.value
    if not isinstance(listed, list):
        draft.note(original.name, f"is {describe_kind(original.value)}, not a list, and is left out")
        return
    names = [
        name for name in (draft.to_plain_text(f"{original.name}[{i}]", each) for i, each in enumerate(listed)) if name
    ]
    if part == "exclude" and not names:
        return
    if part == "include" and not listed:
        draft.note(original.name, "is an empty list, so the server offers no tools")
    if part == "include" and "*" in names:
        return
    _add_names(tools, part, names)


def _add_names(tools: dict[str, object], part: str, names: list[str]) -> None:
    patterns = tools.get(part)
    tools[part] = [*patterns, *names] if isinstance(patterns, list) else names
