"""A foreign server during its conversion: its fields by meaning, and the notices about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.importer.adapter import Adapter, Meaning, TimeoutField
from dynamic_mcp.importer.convert import variables
from dynamic_mcp.importer.convert.fields import COMMON
from dynamic_mcp.importer.convert.variables import PromptedInput, Scene
from dynamic_mcp.importer.model import Machine, Notice, SettingsSource
from dynamic_mcp.system.text import replace_unprintable

_LONGEST_NAME = 80
_LONGEST_REASON = 400
_EMPTY: tuple[object, ...] = (None, "", [], {}, ())


class UnusableError(Exception):
    """The reason why a server cannot be imported; `field` is the field that causes it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True)
class Context:
    """The properties that all servers of one file share."""

    adapter: Adapter
    source: SettingsSource
    machine: Machine
    inputs: Mapping[str, PromptedInput]

    def make_notice(self, server: str, field: str, reason: str) -> Notice:
        """Return a notice about a field of a server, or about the file if `server` is empty."""
        where = "/".join((self.source.tool, self.source.scope.value))
        named = ".".join(make_printable(part) for part in (server, field) if part)
        return Notice(f"{where}/{named}" if named else where, make_printable(mask_text(reason), _LONGEST_REASON))


@dataclass(frozen=True)
class FieldValue:
    """One field of a server, as in the file."""

    name: str
    value: object


@dataclass
class ServerDraft:
    """A server that is being converted."""

    context: Context
    name: str
    fields: dict[Meaning, list[FieldValue]]
    timeouts: list[tuple[TimeoutField, FieldValue]]
    notices: list[Notice] = field(default_factory=list)
    exports: dict[str, None] = field(default_factory=dict)

    def note(self, field: str, reason: str) -> None:
        """Add a notice about a field; the same notice is added only once."""
        notice = self.context.make_notice(self.name, field, reason)
        if notice not in self.notices:
            self.notices.append(notice)

    def choose(self, *meanings: Meaning) -> FieldValue | None:
        """Return the first field with one of these meanings that is not empty; add a notice if others differ."""
        found = [
            original
            for meaning in meanings
            for original in self.fields.get(meaning, ())
            if original.value not in _EMPTY
        ]
        for other in found[1:]:
            if other.value != found[0].value:
                self.note(other.name, f"differs from `{found[0].name}`, which is used")
        return found[0] if found else None

    def find_all(self, *meanings: Meaning) -> Iterator[FieldValue]:
        """Return all fields with these meanings, including empty ones."""
        for meaning in meanings:
            yield from self.fields.get(meaning, ())

    def convert_text(self, field: str, value: object, *, env_name: str = "", is_header: bool = False) -> str | None:
        """Return a value as text in our syntax; None, with a notice, if it cannot be text."""
        plain = self.to_plain_text(field, value)
        if plain is None:
            return None
        adapter, is_env = self.context.adapter, bool(env_name) or is_header
        syntax = (*adapter.variables, *(adapter.env_variables if is_env else ()))
        scene = self._make_scene(
            is_unset_empty=adapter.empties == "everywhere" or (adapter.empties == "env" and is_env)
        )
        converted = variables.convert_text(plain, syntax, scene, field=field, env_name=env_name)
        for remark in converted.remarks:
            self.note(field, remark)
        self.exports.update(dict.fromkeys(converted.exports))
        return converted.text

    def to_plain_text(self, field: str, value: object) -> str | None:
        """Return a value as literal text; None, with a notice, if it cannot be text."""
        match value:
            case str():
                text = value
            case bool():
                text = str(value).lower()
                self.note(field, "is a boolean, not a string; it is converted to a string")
            case int() | float():
                text = _format_number(value)
                self.note(field, "is a number, not a string; it is converted to a string")
            case _:
                self.note(field, f"is {describe_kind(value)}, not a string, and is left out")
                return None
        if "\0" in text or (not text.isprintable() and any("\ud800" <= mark <= "\udfff" for mark in text)):
            self.note(field, "contains a character that programs cannot accept and is left out")
            return None
        return text

    def _make_scene(self, *, is_unset_empty: bool) -> Scene:
        context = self.context
        return Scene(
            context.machine,
            context.source.scope,
            context.adapter.name,
            self.name,
            inputs=context.inputs,
            server_variables=frozenset(
                name for original in self.find_all(Meaning.ENV) for name in parse_members(original.value) or ()
            ),
            is_unset_empty=is_unset_empty,
        )


def make_draft(context: Context, name: str, server: Mapping[str, object]) -> ServerDraft:
    """Sort the fields of a server by meaning; unknown fields get a notice."""
    draft = ServerDraft(context, name, {}, [])
    adapter = context.adapter
    meanings = {**COMMON, **dict.fromkeys(adapter.ignored, Meaning.NOTHING), **adapter.fields}
    for original in _flatten(server, meanings):
        meaning = meanings.get(original.name)
        if isinstance(meaning, TimeoutField):
            draft.timeouts.append((meaning, original))
        elif meaning is None:
            draft.note(original.name, "has no counterpart here and is left out")
        else:
            draft.fields.setdefault(meaning, []).append(original)
    return draft


def parse_members(value: object) -> dict[str, object] | None:
    """Return an object's names and values; it may be written as `["NAME=value"]` or `[{name, value}]`."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    members: dict[str, object] = {}
    for each in value:
        match each:
            case str() if "=" in each:
                name, _, text = each.partition("=")
                members[name] = text
            case {"name": str(name), "value": text} | {"key": str(name), "value": text}:
                members[name] = text
            case _:
                return None
    return members


def make_printable(text: str, longest: int = _LONGEST_NAME) -> str:
    """Return foreign text that is safe to show: without control characters, and shortened."""
    plain = replace_unprintable(text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def describe_kind(value: object) -> str:
    """Return a phrase for the type of a value."""
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
    return "a date"


def _flatten(server: Mapping[str, object], meanings: Mapping[str, Meaning | TimeoutField]) -> Iterator[FieldValue]:
    nested = {name.partition(".")[0] for name in meanings if "." in name}
    for name, value in server.items():
        if name == "transport" and isinstance(value, dict):
            yield from _flatten(value, meanings)
        elif name in nested and name not in meanings and isinstance(value, dict):
            yield from (FieldValue(f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield FieldValue(name, value)


def _format_number(value: float) -> str:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e21
    try:
        return str(int(value)) if is_whole else str(value)
    except ValueError:  # thousands of digits
        return "inf"
