"""Recognises an installed Python program by its script, and reads the probe's output about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, ValueFact, WordFact
from dynamic_mcp.features.scan.help.text import shorten
from dynamic_mcp.features.scan.help.usage import property_name
from dynamic_mcp.packs.model import PositionalType
from dynamic_mcp.system.decoding import decode_as

_MAX_SCRIPT_BYTES = 64_000
_SHEBANG = re.compile(
    rb"#!\s*(?P<plain>/\S*python[\d.]*)\s*\n|#!/bin/sh\s*\n'''exec' \"?(?P<long>/[^\"\n]*?python[\d.]*)\"? "
)


class EntryPoint(Struct, frozen=True):
    """The object of a module that a script calls, and its interpreter."""

    interpreter: str
    module: str
    name: str


def find_entry(file: Path) -> EntryPoint | None:
    """Return the entry point of an installed script; None if the file is not one."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_SCRIPT_BYTES)
    except OSError:
        return None
    shebang = _SHEBANG.match(data)
    if shebang is None:
        return None
    interpreter = (shebang["plain"] or shebang["long"]).decode(errors="replace")
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return next((EntryPoint(interpreter, module, name) for module, name in _called(tree)), None)


def probe_words(entry: EntryPoint, program: str) -> tuple[str, ...]:
    """Return the words with which the interpreter describes the program."""
    script = files(__package__).joinpath("python_probe.py").read_text(encoding="utf-8")
    return ("-c", script, entry.module, entry.name, program)


def _called(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what is imported and called: `from a.b import main`, then `sys.exit(main())`."""
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, _, rest = ast.unparse(node.func).partition(".")
            if name in imported and not (node.args or node.keywords):
                module, attribute = imported[name]
                yield module, ".".join(filter(None, (attribute, rest)))


# --- the probe's output --------------------------------------------------------------------------------------


class _Described(Struct):
    description: str = ""
    type: str = "string"
    values: list[str] = []
    required: bool = False
    repeatable: bool = False
    minimum: float | None = None
    maximum: float | None = None


class _ProbedFlag(_Described):
    names: list[str] = []
    off: list[str] = []
    arity: int = 1


class _Word(_Described):
    name: str = ""


class _Command(Struct):
    description: str = ""
    flags: list[_ProbedFlag] = []
    words: list[_Word] = []
    commands: dict[str, _Command] = {}


class _ProbeOutput(Struct):
    kind: str
    command: _Command


def read_probe(text: str) -> list[CommandFact]:
    """Return the commands in the probe's output, which is its last line. Raises msgspec.DecodeError."""
    last = text.rstrip().rpartition("\n")[2]
    answer = decode_as(last, _ProbeOutput)
    return list(_read_command(answer.command, (), f"{answer.kind} introspection"))


def _read_command(command: _Command, path: tuple[str, ...], source: str) -> Iterator[CommandFact]:
    yield CommandFact(
        source=source,
        path=path,
        description=shorten(command.description),
        flags=tuple(each for flag in command.flags for each in _read_flag(flag)),
        words=tuple(_read_word(each) for each in command.words),
        subcommands=tuple(Subcommand(name, shorten(each.description)) for name, each in command.commands.items()),
        separator=True,
        is_whole=True,
    )
    for name, each in command.commands.items():
        yield from _read_command(each, (*path, name), source)


def _read_flag(flag: _ProbedFlag) -> Iterator[FlagFact]:
    yield FlagFact(
        names=tuple(flag.names),
        value=_value(flag),
        description=shorten(flag.description),
        required=flag.required,
        style="equals" if flag.arity == 1 and flag.type == "boolean" else None,
    )
    if flag.off:
        yield FlagFact(names=tuple(flag.off), value=ValueFact(type="boolean"), description="The opposite.")


def _value(flag: _ProbedFlag) -> ValueFact:
    if flag.arity == 0:
        return ValueFact(type="boolean")
    if flag.arity == 2:
        return ValueFact(type="pairs")
    types = {"integer": "integer", "number": "number", "path": "path", "boolean": "boolean"}
    return ValueFact(
        type="enum" if flag.values else types.get(flag.type, "string"),  # type: ignore[arg-type]  # of these five
        values=tuple(flag.values),
        repeatable=flag.repeatable,
        minimum=flag.minimum,
        maximum=flag.maximum,
    )


def _read_word(word: _Word) -> WordFact:
    types: dict[str, PositionalType] = {"integer": "integer", "number": "number", "path": "path"}
    return WordFact(
        name=property_name(word.name),
        type="enum" if word.values else types.get(word.type, "string"),
        values=tuple(word.values),
        description=shorten(word.description),
        required=word.required,
        repeatable=word.repeatable,
    )
