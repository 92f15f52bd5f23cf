"""One foreign server while it is being converted: its fields by meaning, and all that has to be said about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.importer import variables
from dynamic_mcp.importer.adapter import Adapter, Field, Wait
from dynamic_mcp.importer.fields import COMMON
from dynamic_mcp.importer.found import Machine, Notice, Source
from dynamic_mcp.importer.variables import Input, Scene
from dynamic_mcp.system.text import replace_unprintable

_LONGEST_NAME = 80
_LONGEST_REASON = 400
_EMPTY: tuple[object, ...] = (None, "", [], {}, ())


class UnusableError(Exception):
    """Why a server cannot be imported; `field` is where."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True)
class Context:
    """What all servers of one file share."""

    adapter: Adapter
    source: Source
    machine: Machine
    inputs: Mapping[str, Input]

    def notice(self, server: str, field: str, reason: str) -> Notice:
        """What is to be said about a field of a server, or of the file where there is no server."""
        where = "/".join((self.source.tool, self.source.scope.value))
        named = ".".join(shown(part) for part in (server, field) if part)
        return Notice(f"{where}/{named}" if named else where, shown(mask_text(reason), _LONGEST_REASON))


@dataclass(frozen=True)
class Given:
    """One field of a server as it stands in the file."""

    name: str
    value: object


@dataclass
class Draft:
    """A server that is being converted."""

    context: Context
    name: str
    fields: dict[Field, list[Given]]
    waits: list[tuple[Wait, Given]]
    notices: list[Notice] = field(default_factory=list)
    exports: dict[str, None] = field(default_factory=dict)

    def note(self, field: str, reason: str) -> None:
        """Says something about a field, once."""
        notice = self.context.notice(self.name, field, reason)
        if notice not in self.notices:
            self.notices.append(notice)

    def take(self, *meanings: Field) -> Given | None:
        """The field with one of these meanings that counts: the first with something in it; the others are noted."""
        found = [given for meaning in meanings for given in self.fields.get(meaning, ()) if given.value not in _EMPTY]
        for other in found[1:]:
            if other.value != found[0].value:
                self.note(other.name, f"differs from `{found[0].name}`, which is used")
        return found[0] if found else None

    def all(self, *meanings: Field) -> Iterator[Given]:
        """All fields with these meanings, the empty ones too."""
        for meaning in meanings:
            yield from self.fields.get(meaning, ())

    def text(self, field: str, value: object, *, env_name: str = "", is_header: bool = False) -> str | None:
        """A value as text in our syntax; None, with a notice, where it is no text."""
        plain = self.plain(field, value)
        if plain is None:
            return None
        adapter, is_env = self.context.adapter, bool(env_name) or is_header
        syntax = (*adapter.variables, *(adapter.env_variables if is_env else ()))
        scene = self._scene(is_unset_empty=adapter.empties == "everywhere" or (adapter.empties == "env" and is_env))
        converted = variables.ours(plain, syntax, scene, field=field, env_name=env_name)
        for remark in converted.remarks:
            self.note(field, remark)
        self.exports.update(dict.fromkeys(converted.exports))
        return converted.text

    def plain(self, field: str, value: object) -> str | None:
        """A value as text, as it is; None, with a notice, where it is no text."""
        match value:
            case str():
                text = value
            case bool():
                text = str(value).lower()
                self.note(field, "is true or false, not text; it is taken as text")
            case int() | float():
                text = _number(value)
                self.note(field, "is a number, not text; it is taken as text")
            case _:
                self.note(field, f"is {kind(value)} and not text, and is left out")
                return None
        if "\0" in text or (not text.isprintable() and any("\ud800" <= mark <= "\udfff" for mark in text)):
            self.note(field, "holds a character that programs cannot take and is left out")
            return None
        return text

    def _scene(self, *, is_unset_empty: bool) -> Scene:
        context = self.context
        return Scene(
            context.machine,
            context.source.scope,
            context.adapter.name,
            self.name,
            inputs=context.inputs,
            own=frozenset(name for given in self.all(Field.ENV) for name in members(given.value) or ()),
            is_unset_empty=is_unset_empty,
        )


def sorted_fields(context: Context, name: str, server: Mapping[str, object]) -> Draft:
    """The draft of a server, its fields in the order of the meanings' names in our maps; unknown ones are noted."""
    draft = Draft(context, name, {}, [])
    known = {**COMMON, **context.adapter.fields}
    for given in _flat(server, known):
        meaning = known.get(given.name)
        if isinstance(meaning, Wait):
            draft.waits.append((meaning, given))
        elif meaning is None:
            draft.note(given.name, "has no counterpart here and is left out")
        else:
            draft.fields.setdefault(meaning, []).append(given)
    return draft


def members(value: object) -> dict[str, object] | None:
    """The names and values of an object, also where it is written as `["NAME=value"]` or `[{name, value}]`."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    made: dict[str, object] = {}
    for each in value:
        match each:
            case str() if "=" in each:
                name, _, text = each.partition("=")
                made[name] = text
            case {"name": str(name), "value": text} | {"key": str(name), "value": text}:
                made[name] = text
            case _:
                return None
    return made


def shown(text: str, longest: int = _LONGEST_NAME) -> str:
    """Foreign text that can be shown: no control characters, and not too long."""
    plain = replace_unprintable(text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def kind(value: object) -> str:
    """A word for the kind of a value."""
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
    return "a date"


def _flat(server: Mapping[str, object], known: Mapping[str, Field | Wait]) -> Iterator[Given]:
    nested = {name.partition(".")[0] for name in known if "." in name}
    for name, value in server.items():
        if name == "transport" and isinstance(value, dict):
            yield from _flat(value, known)
        elif name in nested and name not in known and isinstance(value, dict):
            yield from (Given(f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield Given(name, value)


def _number(value: float) -> str:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e21
    try:
        return str(int(value)) if is_whole else str(value)
    except ValueError:  # thousands of digits
        return "inf"
