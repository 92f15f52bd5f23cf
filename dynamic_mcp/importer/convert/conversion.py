"""Convert one server of a tool into an entry of our config, with a notice for everything that is lost."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, replace

from dynamic_mcp.importer.adapter import Field
from dynamic_mcp.importer.convert import naming
from dynamic_mcp.importer.convert.draft import Context, Draft, FieldValue, UnusableError, describe_kind, make_draft
from dynamic_mcp.importer.convert.fields import TYPES
from dynamic_mcp.importer.convert.limits import convert_limits
from dynamic_mcp.importer.convert.program import convert_program, read_plain_words
from dynamic_mcp.importer.convert.remote import convert_remote
from dynamic_mcp.importer.model import ForeignServer, Notice

_SWITCHES = (Field.ENABLED, Field.DISABLED, Field.NAME, Field.DESCRIPTION)
_PROGRAM_FIELDS = (Field.ARGS, Field.ENV, Field.ENV_NAMES, Field.ENV_FILE, Field.CWD)
_REMOTE_FIELDS = (
    Field.HEADERS,
    Field.HEADERS_FROM_ENV,
    Field.BEARER,
    Field.BEARER_FROM_ENV,
    Field.OAUTH,
    Field.CLIENT_ID,
    Field.CLIENT_SECRET,
    Field.SCOPES,
    Field.REDIRECT_PORT,
    Field.METADATA_URL,
)
_ADDRESSES = (Field.HTTP_URL, Field.URL)


@dataclass(frozen=True)
class RawServer:
    """A server as its file has it. `is_off` if the file disables it elsewhere; `remarks` are about its fields."""

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
        entry = {**_convert_upstream(draft), **convert_limits(draft, is_off=raw.is_off)}
    except UnusableError as exc:
        draft.note(exc.field, f"{exc.reason}; the server is left out")
        return tuple(draft.notices)
    _note_never_carried(draft)
    name, remark = naming.legalize(_choose_name(draft), taken)
    if remark:
        draft.note("", remark)
    inherits = (context.adapter.inherits or "safe") if "command" in entry else None
    return ForeignServer(name, entry, context.source, tuple(draft.notices), tuple(draft.exports), inherits)


def _is_ours(draft: Draft) -> bool:
    command = draft.choose(Field.COMMAND)
    words = read_plain_words(draft, command) if command else []
    address = next((given for given in draft.find_all(*_ADDRESSES) if given.value), None)
    return naming.is_ours(
        draft.name, words[0] if words else None, words[1:], str(address.value) if address and not words else None
    )


def _choose_name(draft: Draft) -> str:
    """Return the key, or the field with the name if the tool's keys carry no meaning."""
    given = next((given for given in draft.find_all(Field.NAME) if given.value not in (None, "")), None)
    if given is None:
        return draft.name
    if given.name == draft.context.adapter.named_by and isinstance(given.value, str):
        return given.value
    if given.value != draft.name:
        draft.note(given.name, "is a display name, which has no counterpart here")
    return draft.name


def _convert_upstream(draft: Draft) -> dict[str, object]:
    command, address = draft.choose(Field.COMMAND), draft.choose(*_ADDRESSES)
    kind_of = _read_type(draft)
    if kind_of == "ws" or (draft.choose(Field.WS_URL) and not (command or address)):
        raise UnusableError("", "WebSockets are not supported")
    if command is None and address is None:
        raise UnusableError("", _describe_missing(draft))
    is_remote = address is not None and (command is None or kind_of in ("http", "sse", "url"))
    if is_remote and address is not None:
        _note_others(draft, [*draft.find_all(Field.COMMAND, *_PROGRAM_FIELDS)], "applies only to programs")
        return convert_remote(draft, address, kind_of if kind_of in ("http", "sse") else None)
    assert command is not None
    _note_others(draft, [*draft.find_all(*_ADDRESSES, *_REMOTE_FIELDS)], "applies only to remote servers")
    if kind_of not in (None, "stdio"):
        draft.note("", "has a command but a remote type; the command is used")
    return convert_program(draft, command)


def _describe_missing(draft: Draft) -> str:
    is_switch = bool(draft.fields.keys() & {Field.ENABLED, Field.DISABLED}) and draft.fields.keys() <= set(_SWITCHES)
    if is_switch and not draft.timeouts:
        return "only enables or disables a server that is defined elsewhere"
    return "has neither a command nor a URL"


def _note_others(draft: Draft, others: list[FieldValue], reason: str) -> None:
    for given in others:
        if given.value not in (None, "", [], {}, False):
            draft.note(given.name, f"{reason} and is left out")


def _read_type(draft: Draft) -> str | None:
    """Return `stdio`, `http`, `sse`, `ws`, `url` for a remote server of any kind, or None if no type is given."""
    for given in draft.find_all(Field.TYPE):
        if not isinstance(given.value, str) or not given.value.strip():
            if given.value not in (None, ""):
                draft.note(given.name, f"is {describe_kind(given.value)}, not a type, and is left out")
            continue
        word = re.sub(r"[^a-z]", "", given.value.lower())
        if word in TYPES:
            return TYPES[word]
        draft.note(given.name, f"`{given.value[:40]}` is an unknown type and is left out")
    return None


def _note_never_carried(draft: Draft) -> None:
    reasons = {
        Field.APPROVAL: "is an approval; approvals are never imported",
        Field.TOKENS: "is a stored login; logins are never imported, so log in again",
        Field.HELPER: "is a program that generates headers and is never run: set the headers yourself",
        Field.NOTHING: "has no counterpart here and is left out",
    }
    for meaning, reason in reasons.items():
        for given in draft.find_all(meaning):
            if given.value not in (None, False, "", [], {}):
                draft.note(given.name, reason)
