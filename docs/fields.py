"""The tables of fields in the two pages of the config's reference, from the declarations of the fields.

A table follows a line `<!-- fields of PLACE -->`, or `<!-- fields of PLACE: NAME, NAME -->` for some fields in this
order. PLACE is an object in the file, such as `settings.http`. The table also has the fields of the objects in this
object that have no table of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta

from dynamic_mcp.config import form
from dynamic_mcp.config.section import (
    Deferred,
    PresentFields,
    Section,
    Shorthand,
    Switch,
    Value,
    alternatives,
    describe,
    describe_tag,
    file_fields,
    is_everyday,
    is_user_key,
)

DOCS = Path(__file__).parent
EVERYDAY, ADVANCED = "configuration.md", "configuration-advanced.md"
FILE = "the file"
SERVER, DEFAULTS = "mcpServers.NAME", "settings.defaults"
_MARK = rf"<!-- fields of ({FILE}|\S+?)(?:: (.+))? -->"


# --- the fields ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field at a place in the file. `kind` is that of its object, if a person writes it there."""

    place: str
    key: str
    kind: str
    form: str
    text: str
    is_everyday: bool
    has_fields: bool  # it is one object, whose fields explain it

    @property
    def path(self) -> str:
        return f"{self.place}.{self.key}".removeprefix(".")

    def contains(self, other: Field) -> bool:
        """Return whether another field is in an object in this one."""
        return re.match(rf"{re.escape(self.path)}(\[\]|\.)", other.path) is not None

    @property
    def page(self) -> str:
        return EVERYDAY if self.is_everyday else ADVANCED


@cache
def _all_fields() -> Sequence[Field]:
    """Return the fields of all objects; one that several kinds of servers have is there once."""
    return [*dict.fromkeys(_walk([form.Root], "", "", is_everyday_there=True))]


def list_fields() -> Sequence[Field]:
    """Return all fields, those that `settings.defaults` has in common with servers in a list in its text."""
    defaults = [field.key for field in _all_fields() if field.place == DEFAULTS and _is_default(field)]
    listed = f" They are {', '.join(f'`{key}`' for key in defaults)}."
    fields = [field for field in _all_fields() if not _is_default(field)]
    return [replace(field, text=field.text + listed) if field.path == DEFAULTS else field for field in fields]


def _is_default(field: Field) -> bool:
    place = f"{field.place}.".replace(f"{DEFAULTS}.", f"{SERVER}.", 1).removesuffix(".")
    return place != field.place and replace(field, place=place) in _all_fields()


def _walk(sections: Sequence[type[Section]], place: str, kind: str, *, is_everyday_there: bool) -> Iterator[Field]:
    """Yield the fields of an object of one of these kinds, and of the objects in it."""
    tag_field = sections[0].__struct_config__.tag_field
    has_kinds = tag_field is not None and not is_user_key(tag_field)
    if tag_field is not None and has_kinds:
        kinds = [str(each.__struct_config__.tag) for each in sections]
        text = " ".join(map(describe_tag, sections)) + " Required."
        yield Field(place, tag_field, "", _one_of(kinds), text, is_everyday_there, has_fields=False)
    for section in sections:
        own = str(section.__struct_config__.tag) if has_kinds else kind
        for key, info in file_fields(section).items():
            path = f"{place}.{key}".removeprefix(".")
            level = is_everyday_there and is_everyday(info)
            inner = _group(_objects_in(info.type, path))
            is_needed = info.required and (has_kinds or len(sections) == 1)  # else it makes the kind
            text = describe(info) + (_required(place) if is_needed else "")
            has_fields = path in inner and not _is_switch(info.type)
            yield Field(place, key, own, form_of(info.type), text, level, has_fields)
            for inner_place, inner_sections in inner.items():
                yield from _walk(inner_sections, inner_place, own, is_everyday_there=level)


def _required(place: str) -> str:
    """Return that a field is required, and where, if the object that it is in may be left out."""
    name = place.rpartition(".")[2]
    return " Required." if name in ("", "NAME") or name.endswith("[]") else f" Required in `{name}`."


def _objects_in(annotation: object, place: str) -> Iterator[tuple[str, type[Section]]]:
    """Yield the objects that a value may be or contain, each with its place."""
    for part in alternatives(annotation):
        parts = get_args(part)
        if isinstance(part, type) and issubclass(part, Section):
            yield place, part
        elif get_origin(part) in (list, tuple):
            yield from _objects_in(parts[0], f"{place}[]")
        elif parts and isinstance(get_origin(part), type) and issubclass(get_origin(part), Mapping):
            yield from _objects_in(parts[1], f"{place}.NAME")


def _group(objects: Iterable[tuple[str, type[Section]]]) -> dict[str, list[type[Section]]]:
    found: dict[str, list[type[Section]]] = {}
    for place, section in objects:
        found.setdefault(place, []).append(section)
    return found


def _is_switch(annotation: object) -> bool:
    return any(isinstance(part, (Switch, Shorthand)) or _is_switch(part) for part in get_args(annotation))


# --- the forms of values ---------------------------------------------------------------------------------------

_NAMES: Mapping[object, str] = {
    bool: "`true` or `false`",
    int: "a number",
    float: "a number",
    str: "a text",
    Path: "a path",
    Any: "any JSON",
}


def form_of(annotation: Any) -> str:  # Any: types are values here
    """Return what a value of this type looks like in the file, in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return next(filter(None, (_marked(mark, parts[0]) for mark in parts[1:])), "") or form_of(parts[0])
    if origin is Literal:
        return _one_of(parts)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(form_of(part) for part in parts if part is not type(None)))
    if origin in (list, tuple):
        return f"a list of {_plural(form_of(parts[0]))}"
    if origin is not None and issubclass(origin, Mapping):
        return f"{_plural(form_of(parts[1]))} by name"
    if isinstance(annotation, type) and issubclass(annotation, Deferred):
        return form_of(annotation.load())
    return _NAMES.get(annotation, "an object")


def _marked(mark: object, annotation: Any) -> str:
    match mark:
        case Value():
            return mark.type_name or form_of(mark.written)
        case PresentFields():
            return "an object"
        case Switch():
            return "`true`, `false` or an object"
        case Shorthand():
            return f"{', '.join(f'`{each}`' for each in mark.words)} or an object"
        case Meta() if mark.le is not None:
            return f"a number from {mark.ge} to {mark.le}"
        case Meta() if mark.ge is not None:
            return f"a number, at least {mark.ge}"
    return ""


def _one_of(values: Sequence[object]) -> str:
    names = [f"`{value}`" for value in values]
    return f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names)


def _plural(words: str) -> str:
    if (found := re.match(r"an? (\w+)(.*)", words)) is None:
        return words.removeprefix("one of ")
    return f"{found[1]}s{found[2]}"


# --- the tables ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of a page: the object that it describes, and the fields of that, all others if it names none."""

    page: str
    heading: str
    place: str
    names: tuple[str, ...]

    def rank(self, field: Field) -> tuple[int, int] | None:
        """Return how well a field fits in; None if it does not."""
        if self.page != field.page:
            return None
        if self.place == FILE:
            return None if field.place else (0, 0)
        if not field.path.startswith((f"{self.place}.", f"{self.place}[")):
            return None
        if self.names and self.position(field) == len(self.names):
            return None
        return len(self.place), len(self.names) > 0

    def position(self, field: Field) -> int:
        """Return the position of a field, or of the object that it is in, among the names."""
        name = self.name(field)
        fits = [name == each or name.startswith((f"{each}.", f"{each}[")) for each in self.names]
        return fits.index(True) if True in fits else len(self.names)

    def name(self, field: Field) -> str:
        """Return the path of a field in the object that the table describes."""
        return field.path if self.place == FILE else field.path.removeprefix(self.place).removeprefix(".")


def fill_in(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the pages with their tables up to date. Raises ValueError if a field is in no table."""
    tables = [table for page, text in pages.items() for table in _list_tables(page, text)]
    tables_of: dict[Field, Table] = {}
    for field in list_fields():
        fitting = [table for table in tables if table.rank(field) is not None]
        if not fitting:
            raise ValueError(f"no table of {field.page} has `{field.path}`")
        tables_of[field] = max(fitting, key=lambda table: table.rank(field) or (0, 0))
    if empty := [table for table in tables if table not in tables_of.values()]:
        raise ValueError(f"{empty[0].page}: no field is in the table of `{empty[0].place}`, {empty[0].names}")
    rendered = {page: iter([_render(each, tables_of) for each in tables if each.page == page]) for page in pages}
    return {
        page: re.sub(rf"^({_MARK})\n(\|.*\n)*", partial(_replace, rendered[page]), text, flags=re.MULTILINE)
        for page, text in pages.items()
    }


def anchor(heading: str) -> str:
    """Return the fragment that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _list_tables(page: str, text: str) -> Iterator[Table]:
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if mark := re.fullmatch(_MARK, line):
            yield Table(page, heading, mark[1], tuple(mark[2].split(", ")) if mark[2] else ())


def _replace(rendered: Iterator[str], mark: re.Match[str]) -> str:
    return f"{mark[1]}\n{next(rendered)}\n"


def _render(table: Table, tables: Mapping[Field, Table]) -> str:
    fields = [field for field, its_table in tables.items() if its_table is table]
    shown = [field for field in fields if not field.has_fields or not any(map(field.contains, fields))]
    rows = [_row(field, table, tables) for field in sorted(shown, key=table.position)]
    return "\n".join(["| field | value | meaning |", "|---|---|---|", *rows])


def _row(field: Field, table: Table, tables: Mapping[Field, Table]) -> str:
    note = f" (`{field.kind}`)" if field.kind else ""
    return f"| `{table.name(field)}`{note} | {cell(_value(field, table, tables))} | {cell(field.text)} |"


def _value(field: Field, table: Table, tables: Mapping[Field, Table]) -> str:
    """Return the form of a value, with a link if its own fields are in another table."""
    found = [its_table for each, its_table in tables.items() if field.contains(each)]
    if not found or table in found:
        return field.form
    there = next((each for each in found if each.page == table.page), found[0])
    link = f"{'' if there.page == table.page else there.page}#{anchor(there.heading)}"
    return re.sub(r"\b(objects?)\b", rf"[\1]({link})", field.form, count=1)


def cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
