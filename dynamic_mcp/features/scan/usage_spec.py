"""Reads a usage spec in the form of JSON, as `usage generate json` prints it (https://usage.jdx.dev/spec)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, Value, WordFact
from dynamic_mcp.features.scan.help.text import shorten
from dynamic_mcp.features.scan.help.usage import property_name
from dynamic_mcp.features.scan.help.values import read_value
from dynamic_mcp.packs.model import Effect
from dynamic_mcp.system.decoding import decode_as

SOURCE = "usage spec"
_EFFECTS: Mapping[str | None, Effect] = {"read": "read", "write": "write", "destructive": "destructive"}


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


class _Command(Struct):
    subcommands: dict[str, _Command] = {}
    args: list[_Argument] = []
    flags: list[_Flag] = []
    help: str | None = None
    hide: bool = False
    effect: str | None = None


class _Spec(Struct):
    cmd: _Command
    about: str | None = None


def read_usage_spec(data: bytes) -> list[CommandFact]:
    """Return what a spec says of each command. Raises msgspec.DecodeError."""
    spec = decode_as(data, _Spec)
    return list(_read_command(spec.cmd, (), [], spec.about or ""))


def _read_command(
    command: _Command, path: tuple[str, ...], inherited: list[_Flag], about: str = ""
) -> Iterator[CommandFact]:
    below = {name: each for name, each in command.subcommands.items() if not each.hide}
    flags = [flag for flag in [*command.flags, *inherited] if not flag.hide]
    yield CommandFact(
        source=SOURCE,
        path=path,
        description=shorten(command.help or about),
        flags=tuple(each for flag in flags for each in _read_flag(flag)),
        words=tuple(_read_word(each) for each in command.args if not each.hide),
        subcommands=tuple(Subcommand(name, shorten(each.help or "")) for name, each in below.items()),
        separator=None,
        effect=_EFFECTS.get(command.effect),
        is_whole=True,
    )
    passed = [flag for flag in [*command.flags, *inherited] if flag.global_]
    for name, each in below.items():
        yield from _read_command(each, (*path, name), passed)


def _read_flag(flag: _Flag) -> Iterator[FlagFact]:
    names = (*(f"--{name}" for name in flag.long), *(f"-{name}" for name in flag.short))
    if not names:
        return
    yield FlagFact(
        names=names,
        value=Value(type="boolean") if flag.arg is None else _value(flag.arg, is_repeatable=flag.var),
        description=shorten(flag.help or ""),
        required=flag.required,
        effect=_EFFECTS.get(flag.effect),
    )
    if flag.negate:
        yield FlagFact(names=(flag.negate,), value=Value(type="boolean"), description="The opposite.")


def _value(argument: _Argument, *, is_repeatable: bool) -> Value:
    if argument.choices is not None and argument.choices.choices:
        return Value(type="enum", values=tuple(argument.choices.choices), repeatable=is_repeatable)
    read = read_value(argument.name)
    return Value(type=read.type if read.type != "boolean" else "string", repeatable=is_repeatable)


def _read_word(argument: _Argument) -> WordFact:
    value = _value(argument, is_repeatable=argument.var)
    type_ = value.type if value.type in ("integer", "number", "enum", "path") else "string"
    return WordFact(
        name=property_name(argument.name),
        type=type_,
        values=value.values,
        description=shorten(argument.help or ""),
        required=argument.required,
        repeatable=argument.var,
    )
