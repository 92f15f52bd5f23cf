"""Builds a pack for review from a scan. Parts that a pack cannot hold are left out, with a remark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dynamic_mcp.features.scan.facts import FlagFact, ValueFact, WordFact
from dynamic_mcp.features.scan.help.values import read_value
from dynamic_mcp.features.scan.merge import MergedCommand, SourcedFlag
from dynamic_mcp.packs.model import FLAG, RESERVED, Command, Flag, Pack, Positional

T = TypeVar("T", Command, Flag, Positional)
_PROPERTY = re.compile(r"[a-z][a-z0-9_]*")
_COMMAND = re.compile(r"[a-z0-9]([a-z0-9 _-]*[a-z0-9])?")
_NOT_NAME = re.compile(r"[^a-z0-9_]+")
# Flags that are useless in a call.
_NEVER = frozenset(("--help", "--version", "--help-all", "--show-completion", "--install-completion"))
_MAX_FLAGS = 500
ROOT = "run"
# Parts of names, in the order of the search.
_DANGEROUS_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"^(?:to-)?command$|-command$|^exec|-exec$|^eval(?:uate)?$|program$|^shell$|-shell$|^script|-script$|hook"
            r"|-action$|^(?:pre|post)(?:-|$)|^editor$|^pager$|^(?:upload|receive)-pack$|^rsh$|^ssh$|filter$|^plugin"
            r"|^interpreter$|^run$"
        ),
        "may run a program",
    ),
    (
        re.compile(
            r"^out(?:put|file)?(?:-|$)|-out(?:put|file)?$|^write|^save|^dump|-dump$|^export|^log-?file|-log$|^tee$"
            r"|^trace(?:-|$)|^backup|^append|^create|^in-?place$|^overwrite"
        ),
        "may write a file",
    ),
    (re.compile(r"^remove|^delete|^unlink|^purge|^force$|^clobber"), "may delete or replace files"),
    (re.compile(r"^config(?:-file|-dir)?$|^rc-?file$|^init-?file$|^include$|^load"), "may read other settings"),
)
_DANGEROUS_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\b(?:run|runs|execute|executes|invoke|invokes|call|spawn|launch|launches|start|starts)\b[^.;]{0,40}"
            r"\b(?:command|program|script|shell|binary|executable|COMMAND|PROG|CMD)\b"
            r"|\b(?:pipe|filter|through)\b[^.;]{0,30}\b(?:command|program|shell|PROG|COMMAND)\b",
            re.IGNORECASE,
        ),
        "may run a program",
    ),
    (
        re.compile(
            r"\b(?:write|writes|save|saves|store|stores|redirect|output|append|dump)\b[^.;]{0,40}"
            r"\b(?:file|files|path|directory)\b",
            re.IGNORECASE,
        ),
        "may write a file",
    ),
    (re.compile(r"\b(?:remove|delete|unlink|overwrite)s?\b[^.;]{0,40}\bfiles?\b", re.IGNORECASE), "may delete files"),
)


class BuiltPack(msgspec.Struct, frozen=True):
    """A pack, and remarks for the reviewer."""

    pack: Pack
    remarks: tuple[str, ...]


def build_pack(program: str, commands: Sequence[MergedCommand], *, description: str, source: str) -> BuiltPack | None:
    """Return the pack of a program with these commands; None if none of them fits into one."""
    remarks: list[str] = []
    built = (_build_command(command, remarks) for command in commands)
    by_name = {each.name: each for each in built if each is not None}
    if not by_name:
        return None
    name = _NOT_NAME.sub("-", program.lower().removesuffix(".exe")).strip("-_")[:40] or "program"
    pack = Pack(
        name=name if name[0].isalnum() else f"p{name}",
        program=program,
        description=(description or f"The program {program}.")[:2000],
        commands=list(by_name.values()),
        source=source[:300],
        reviewed=False,
    )
    return BuiltPack(pack, tuple(remarks))


def command_name(path: Sequence[str]) -> str:
    """Return the name of a command in the config."""
    return " ".join(path).lower().replace(".", "-").replace(":", "-").replace("+", "-") or ROOT


def _build_command(merged: MergedCommand, remarks: list[str]) -> Command | None:
    fact, name = merged.fact, command_name(merged.fact.path)
    if len(name) > 64 or not _COMMAND.fullmatch(name):
        remarks.append(f"`{name}` is left out: a pack cannot have this name")
        return None
    words = list(_build_words(fact.words or (), remarks, name))
    flags = list(_build_flags(merged.flags, {each["name"] for each in words}, remarks, name))
    if fact.words is None:
        remarks.append(f"`{name}`: the words that it takes are not known")
    members = {
        "name": name,
        "path": list(fact.path),
        "description": fact.description or f"Run {name}.",
        "effect": fact.effect or "unknown",
        "flags": flags[:_MAX_FLAGS],
        "positionals": words,
        "separator": bool(fact.separator and words),
        "source": fact.source[:300],
    }
    return _convert(members, Command, remarks, name)


# --- flags -------------------------------------------------------------------------------------------------------


def _build_flags(
    flags: Iterable[SourcedFlag], taken: set[str], remarks: list[str], command: str
) -> Iterator[Mapping[str, Any]]:  # Any: JSON
    arguments, names = {*taken, *RESERVED}, set[str]()
    for each in flags:
        if _NEVER.intersection(each.flag.names):
            continue
        if each.flag.value is None:
            remarks.append(f"`{command}`: `{each.flag.names[0]}` is left out: it is unknown whether it takes a value")
            continue
        members = _flag_members(each, names)
        if members is None:
            continue
        flag = _name_and_convert(members, arguments, remarks, command)
        if flag is not None:
            arguments.add(flag.argument)
            names.update((flag.name, *flag.aliases))
            yield msgspec.to_builtins(flag)


def _flag_members(sourced: SourcedFlag, taken: set[str]) -> dict[str, Any] | None:  # Any: JSON
    flag = sourced.flag
    names = [name for name in flag.names if re.match(FLAG, name) and name not in taken]
    if not names:
        return None
    name = max(names, key=lambda each: (each.startswith("--"), len(each) > 2, -names.index(each)))
    value = flag.value or ValueFact(type="boolean")
    type_ = value.type or "string"
    if type_ == "string" and read_value(name.lstrip("-")).type == "path":  # `--file=ARCHIVE`
        type_ = "path"
    members = {
        "name": name,
        "type": type_,
        "description": flag.description or None,
        "aliases": [each for each in names if each != name],
        "values": list(value.values) if type_ == "enum" else None,
        "required": bool(flag.required) and type_ != "boolean",
        "repeatable": bool(value.repeatable) and type_ not in ("boolean", "pairs"),
        "minimum": value.minimum,
        "maximum": value.maximum,
        "style": _style(flag, name, type_),
        "effect": flag.effect or "read",
        "danger": find_danger(flag) or None,
        "source": sourced.source[:300],
    }
    return {key: value for key, value in members.items() if value is not None}


def _style(flag: FlagFact, name: str, type_: str) -> str | None:
    is_long, is_gnu = len(name) > 2, name.startswith("--")
    if type_ == "boolean":
        return flag.style if flag.style == "equals" else None
    if type_ == "pairs":
        return None
    if flag.style is not None and not (flag.style == "joined" and is_long):
        return flag.style
    return "separate" if is_long and not is_gnu else None


def _name_and_convert(members: dict[str, Any], taken: set[str], remarks: list[str], command: str) -> Flag | None:
    """Return a flag with a unique argument: from its name with underscores, or else from another name."""
    names = [members["name"], *members["aliases"]]
    default = re.sub(r"[.-]", "_", members["name"].lstrip("-")).lower()
    options = [default, *(_argument(name) for name in names), f"flag_{_argument(members['name'])}"]
    options += [f"{options[-1]}_{number}" for number in range(2, 9)]
    for argument in options:
        if _PROPERTY.fullmatch(argument) and argument not in taken and len(argument) <= 64:
            return _convert({**members, **({} if argument == default else {"as": argument})}, Flag, remarks, command)
    remarks.append(f"`{command}`: the flag `{members['name']}` is left out: its name is taken")
    return None


def _argument(name: str) -> str:
    bare = name.lstrip("-")
    text = _NOT_NAME.sub("_", bare.lower()).strip("_")
    return f"upper_{text}" if len(bare) == 1 and bare.isupper() else text


# --- words -------------------------------------------------------------------------------------------------------


def _build_words(words: Sequence[WordFact], remarks: list[str], command: str) -> Iterator[Mapping[str, Any]]:
    taken = {*RESERVED}
    is_optional = False
    for number, word in enumerate(words):
        is_optional = is_optional or word.required is False
        name = word.name if _PROPERTY.fullmatch(word.name) else f"word_{number + 1}"
        name = next(each for each in (name, *(f"{name[:60]}_{i}" for i in range(2, 99))) if each not in taken)
        taken.add(name)
        members = {
            "name": name,
            "type": "enum" if word.values else word.type if word.type not in (None, "enum") else "string",
            "values": list(word.values) or None,
            "description": word.description or None,
            "required": bool(word.required) and not is_optional,
            "repeatable": bool(word.repeatable),
        }
        positional = _convert({k: v for k, v in members.items() if v is not None}, Positional, remarks, command)
        if positional is not None:
            yield msgspec.to_builtins(positional)
        if word.repeatable:
            if number + 1 < len(words):
                remarks.append(f"`{command}`: the words after `{name}` are left out: a pack does not support them")
            return


def _convert(members: Mapping[str, Any], kind: type[T], remarks: list[str], command: str) -> T | None:
    try:
        return msgspec.convert(dict(members), kind)
    except msgspec.ValidationError as exc:
        remarks.append(f"`{command}`: `{members.get('name')}` is left out: {exc}")
        return None


def find_danger(flag: FlagFact) -> str:
    """Return what a flag may do that a reviewer must allow; empty if nothing suggests a danger."""
    for name in flag.names:
        bare = name.lstrip("-").lower().replace("_", "-")
        for pattern, why in _DANGEROUS_NAMES:
            if len(bare) > 1 and pattern.search(bare):
                return why
    return next((why for pattern, why in _DANGEROUS_WORDS if pattern.search(flag.description)), "")
