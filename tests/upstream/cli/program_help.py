"""The flags that a program names in its help, and their types, to compare packs with."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from tests.program import BOUND_S

Kind = Literal["boolean", "integer", "number", "list", "text"]

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("int", "uint", "uint16"), "integer"),
    **dict.fromkeys(("decimal", "float"), "number"),
    **dict.fromkeys(("list", "strings", "stringArray", "filter", "map"), "list"),
}
# What cobra writes: `-a, --all    All` and `-f, --filter filter    Only`.
_COBRA = re.compile(r"^ {1,6}(?:(-\w), )?(?: {4})?(--[a-z][a-z0-9-]*)(?: (\S+))?(?: {2,}|$)", re.MULTILINE)
# What kubectl writes: `-A, --all-namespaces=false:`.
_KUBECTL = re.compile(r"^ {4}(?:(-\w), )?(--[a-z][a-z0-9-]*)=(.*?):?$", re.MULTILINE)
# What terraform writes: `-lock=false   Do not`, `-var 'a=b'  Set`.
_TERRAFORM = re.compile(r"^ {2,4}(-[a-z][a-z-]*)(?:=(\S*)| '(\S*)')?(?:\s|$)", re.MULTILINE)


class KnownFlag(Struct, frozen=True):
    """A flag as a program describes it; `kind` is None if it does not say."""

    names: frozenset[str]
    kind: Kind | None


def read_flags(program: str, words: list[str], environment: Mapping[str, str]) -> dict[str, KnownFlag]:
    """Return the flags of a command, by each of their names."""
    flag = "-help" if program == "terraform" else "--help"
    asked = [[program, *words, flag], *([[program, "options"]] if program == "kubectl" else [])]
    found: dict[str, KnownFlag] = {}
    for each in asked:
        done = subprocess.run(each, env=dict(environment), capture_output=True, text=True, timeout=BOUND_S)
        found |= {name: flag for flag in _parse(program, done.stdout + done.stderr) for name in flag.names}
    return found


def _parse(program: str, text: str) -> Iterator[KnownFlag]:
    match program:
        case "kubectl":
            for short, name, default in _KUBECTL.findall(text):
                yield KnownFlag(frozenset({short, name} - {""}), _kind_of_default(default))
        case "terraform":
            for name, default, _ in _TERRAFORM.findall(text):
                yield KnownFlag(frozenset({name}), "boolean" if default in ("true", "false") else None)
        case _:
            for short, name, kind in _COBRA.findall(text):
                yield KnownFlag(frozenset({short, name} - {""}), _KINDS.get(kind, None) if kind else "boolean")


def _kind_of_default(default: str) -> Kind | None:
    if default in ("true", "false"):
        return "boolean"
    if re.fullmatch(r"-?\d+", default):
        return "integer"
    return "list" if default == "[]" else "text"
