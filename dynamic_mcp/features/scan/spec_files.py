"""Reads specs of a program's command line: usage specs as JSON, and carapace specs."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, ValueFact, WordFact
from dynamic_mcp.features.scan.help.text import shorten
from dynamic_mcp.features.scan.help.usage import property_name
from dynamic_mcp.features.scan.help.values import read_value
from dynamic_mcp.packs.model import Effect
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import read_bytes

MAX_BYTES = 16 << 20
_CARAPACE = "carapace spec"
_CARAPACE_FLAG = re.compile(r"(?P<names>-{1,2}[^\s,=?*!&]+(?:,\s*-{1,2}[^\s,=?*!&]+)*)(?P<marks>[=?*!&]*)")
_CARAPACE_FILES = ("$files", "$directories")
_USAGE = "usage spec"
_EFFECTS: Mapping[str | None, Effect] = {"read": "read", "write": "write", "destructive": "destructive"}


class BadSpec(ValueError):
    """Raised for an unusable spec, with a `hint`."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def read_spec_file(file: Path) -> Sequence[CommandFact]:
    """Return the commands in a spec. Raises BadSpec and OSError."""
    data = read_bytes(file, most=MAX_BYTES)
    if file.suffix == ".kdl":
        hint = f"`usage generate json --file {file}` prints it as JSON"
        raise BadSpec(f"`{file}` is KDL, which is not supported", hint=hint)
    try:
        if data.lstrip()[:1] == b"{":
            return _read_usage_spec(data)
        return _read_carapace(_parse_yaml(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadSpec(f"`{file}` is neither a usage spec as JSON nor a carapace spec: {exc}") from exc


def _parse_yaml(data: bytes) -> object:
    """Parse YAML of plain data. Raises msgspec.DecodeError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(io.BytesIO(data))
    except (YAMLError, ValueError, RecursionError) as exc:
        raise msgspec.DecodeError(str(exc).partition("\n")[0]) from exc


class _FlagMembers(Struct):
    description: str = ""


class _Completion(Struct):
    flag: dict[str, list[str]] = {}


class _CarapaceCommand(Struct):
    name: str
    description: str = ""
    hidden: bool = False
    flags: dict[str, str | _FlagMembers | None] = {}
    persistentflags: dict[str, str | _FlagMembers | None] = {}
    completion: _Completion | None = None
    commands: list[_CarapaceCommand] = []


_Flags = dict[str, str | _FlagMembers | None]


def _read_carapace(tree: object) -> list[CommandFact]:
    """Return the commands in a carapace spec. Raises msgspec.ValidationError.

    It is YAML with flags such as `-s, --long=`, whose last characters are marks: `=` takes a value, `?` may take one,
    `*` repeats, `!` is required and `&` is hidden (https://carapace-sh.github.io/carapace-spec). It has no types or
    effects.
    """
    command = msgspec.convert(tree, _CarapaceCommand)
    return list(_read_carapace_command(command, (), {}))


def _read_carapace_command(
    command: _CarapaceCommand, path: tuple[str, ...], inherited: _Flags
) -> Iterator[CommandFact]:
    passed = {**inherited, **command.persistentflags}
    below = [each for each in command.commands if not each.hidden]
    values = command.completion.flag if command.completion is not None else {}
    flags = (_read_carapace_flag(spelling, about, values) for spelling, about in {**command.flags, **passed}.items())
    yield CommandFact(
        source=_CARAPACE,
        path=path,
        description=shorten(command.description),
        flags=tuple(flag for flag in flags if flag is not None),
        subcommands=tuple(Subcommand(each.name.split()[0], shorten(each.description)) for each in below),
        is_whole=True,
    )
    for each in below:
        yield from _read_carapace_command(each, (*path, each.name.split()[0]), passed)


def _read_carapace_flag(
    spelling: str, about: str | _FlagMembers | None, values: dict[str, list[str]]
) -> FlagFact | None:
    match = _CARAPACE_FLAG.fullmatch(spelling.strip())
    if match is None or "&" in match["marks"]:
        return None
    names = tuple(name.strip() for name in match["names"].split(","))
    marks = match["marks"]
    description = about.description if isinstance(about, _FlagMembers) else about or ""
    completed = next((values[key] for name in names if (key := name.lstrip("-")) in values), [])
    return FlagFact(
        names=names,
        value=_read_carapace_value(completed, is_repeatable="*" in marks)
        if set(marks) & set("=?")
        else _switch(marks),
        description=shorten(description),
        required="!" in marks,
    )


def _switch(marks: str) -> ValueFact:
    return ValueFact(type="boolean", repeatable=None if "*" not in marks else True)


def _read_carapace_value(completed: list[str], *, is_repeatable: bool) -> ValueFact:
    """Return a type only if the values show it; a list that calls a macro is incomplete."""
    words = [word.partition("\t")[0] for word in completed]
    if any(word.startswith(_CARAPACE_FILES) for word in words):
        return ValueFact(type="path", repeatable=is_repeatable)
    if words and not any(word.startswith("$") for word in words):
        return ValueFact(type="enum", values=tuple(dict.fromkeys(words)), repeatable=is_repeatable)
    return ValueFact(repeatable=is_repeatable)


class _Choices(Struct):
    choices: list[str] = []


class _Argument(Struct):
    name: str
    help: str | None = None
    required: bool = True
    var: bool = False
    hide: bool = False
    double_dash: str | None = None
    choices: _Choices | None = None


class _Flag(Struct):
    name: str = ""
    short: list[str] = []
    long: list[str] = []
    help: str | None = None
    required: bool = False
    var: bool = False
    hide: bool = False
    global_: bool = msgspec.field(default=False, name="global")
    arg: _Argument | None = None
    effect: str | None = None
    negate: str | None = None


class _UsageCommand(Struct):
    subcommands: dict[str, _UsageCommand] = {}
    args: list[_Argument] = []
    flags: list[_Flag] = []
    help: str | None = None
    hide: bool = False
    effect: str | None = None


class _Spec(Struct):
    cmd: _UsageCommand
    about: str | None = None


def _read_usage_spec(data: bytes) -> list[CommandFact]:
    """Return the commands in a usage spec. Raises msgspec.DecodeError.

    It is JSON, as `usage generate json` prints it (https://usage.jdx.dev/spec).
    """
    spec = decode_as(data, _Spec)
    return list(_read_usage_command(spec.cmd, (), [], spec.about or ""))


def _read_usage_command(
    command: _UsageCommand, path: tuple[str, ...], inherited: list[_Flag], about: str = ""
) -> Iterator[CommandFact]:
    below = {name: each for name, each in command.subcommands.items() if not each.hide}
    flags = [flag for flag in [*command.flags, *inherited] if not flag.hide]
    yield CommandFact(
        source=_USAGE,
        path=path,
        description=shorten(command.help or about),
        flags=tuple(each for flag in flags for each in _read_usage_flag(flag)),
        words=tuple(_read_word(each) for each in command.args if not each.hide),
        subcommands=tuple(Subcommand(name, shorten(each.help or "")) for name, each in below.items()),
        separator=None,
        effect=_EFFECTS.get(command.effect),
        is_whole=True,
    )
    passed = [flag for flag in [*command.flags, *inherited] if flag.global_]
    for name, each in below.items():
        yield from _read_usage_command(each, (*path, name), passed)


def _read_usage_flag(flag: _Flag) -> Iterator[FlagFact]:
    names = (*(f"--{name}" for name in flag.long), *(f"-{name}" for name in flag.short))
    if not names:
        return
    yield FlagFact(
        names=names,
        value=ValueFact(type="boolean") if flag.arg is None else _read_usage_value(flag.arg, is_repeatable=flag.var),
        description=shorten(flag.help or ""),
        required=flag.required,
        effect=_EFFECTS.get(flag.effect),
    )
    if flag.negate:
        yield FlagFact(names=(flag.negate,), value=ValueFact(type="boolean"), description="The opposite.")


def _read_usage_value(argument: _Argument, *, is_repeatable: bool) -> ValueFact:
    if argument.choices is not None and argument.choices.choices:
        return ValueFact(type="enum", values=tuple(argument.choices.choices), repeatable=is_repeatable)
    value = read_value(argument.name)
    return ValueFact(type=value.type if value.type != "boolean" else "string", repeatable=is_repeatable)


def _read_word(argument: _Argument) -> WordFact:
    value = _read_usage_value(argument, is_repeatable=argument.var)
    type_ = value.type if value.type in ("integer", "number", "enum", "path") else "string"
    return WordFact(
        name=property_name(argument.name),
        type=type_,
        values=value.values,
        description=shorten(argument.help or ""),
        required=argument.required,
        repeatable=argument.var,
    )
