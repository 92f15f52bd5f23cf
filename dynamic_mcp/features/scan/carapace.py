"""Reads a carapace spec: YAML with flags such as `-s, --long=`, whose last characters say what they take.

https://carapace-sh.github.io/carapace-spec: `=` takes a value, `?` may take one, `*` repeats, `!` is required and `&`
is hidden. Types and effects are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, Value
from dynamic_mcp.features.scan.help.text import shorten

SOURCE = "carapace spec"
_FLAG = re.compile(r"(?P<names>-{1,2}[^\s,=?*!&]+(?:,\s*-{1,2}[^\s,=?*!&]+)*)(?P<marks>[=?*!&]*)")
_FILES = ("$files", "$directories")


class _FlagMembers(Struct):
    description: str = ""


class _Completion(Struct):
    flag: dict[str, list[str]] = {}


class _Command(Struct):
    name: str
    description: str = ""
    hidden: bool = False
    flags: dict[str, str | _FlagMembers | None] = {}
    persistentflags: dict[str, str | _FlagMembers | None] = {}
    completion: _Completion | None = None
    commands: list[_Command] = []


_Flags = dict[str, str | _FlagMembers | None]


def read_carapace(tree: object) -> list[CommandFact]:
    """Return what a parsed spec says of each command. Raises msgspec.ValidationError."""
    command = msgspec.convert(tree, _Command)
    return list(_read_command(command, (), {}))


def _read_command(command: _Command, path: tuple[str, ...], inherited: _Flags) -> Iterator[CommandFact]:
    passed = {**inherited, **command.persistentflags}
    below = [each for each in command.commands if not each.hidden]
    values = command.completion.flag if command.completion is not None else {}
    flags = (_read_flag(spelled, about, values) for spelled, about in {**command.flags, **passed}.items())
    yield CommandFact(
        source=SOURCE,
        path=path,
        description=shorten(command.description),
        flags=tuple(flag for flag in flags if flag is not None),
        subcommands=tuple(Subcommand(each.name.split()[0], shorten(each.description)) for each in below),
        is_whole=True,
    )
    for each in below:
        yield from _read_command(each, (*path, each.name.split()[0]), passed)


def _read_flag(spelled: str, about: str | _FlagMembers | None, values: dict[str, list[str]]) -> FlagFact | None:
    found = _FLAG.fullmatch(spelled.strip())
    if found is None or "&" in found["marks"]:
        return None
    names = tuple(name.strip() for name in found["names"].split(","))
    marks = found["marks"]
    description = about.description if isinstance(about, _FlagMembers) else about or ""
    completed = next((values[key] for name in names if (key := name.lstrip("-")) in values), [])
    return FlagFact(
        names=names,
        value=_value(completed, is_repeatable="*" in marks) if set(marks) & set("=?") else _switch(marks),
        description=shorten(description),
        required="!" in marks,
    )


def _switch(marks: str) -> Value:
    return Value(type="boolean", repeatable=None if "*" not in marks else True)


def _value(completed: list[str], *, is_repeatable: bool) -> Value:
    """Return a type only if the values say it; a list that calls a macro is not whole."""
    words = [word.partition("\t")[0] for word in completed]
    if any(word.startswith(_FILES) for word in words):
        return Value(type="path", repeatable=is_repeatable)
    if words and not any(word.startswith("$") for word in words):
        return Value(type="enum", values=tuple(dict.fromkeys(words)), repeatable=is_repeatable)
    return Value(repeatable=is_repeatable)
