"""Facts about a program from one source. None and empty texts mean unknown."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.packs.model import Effect, FlagType, PositionalType, Style


class ValueFact(Struct, frozen=True, kw_only=True):
    """The values of a flag, as far as they are known."""

    type: FlagType | None = None
    values: tuple[str, ...] = ()
    repeatable: bool | None = None
    minimum: float | None = None
    maximum: float | None = None


class FlagFact(Struct, frozen=True, kw_only=True):
    """A flag. `names` are all of its names; `value` is None if it is unknown whether it takes one."""

    names: tuple[str, ...]
    value: ValueFact | None = None
    description: str = ""
    required: bool | None = None
    style: Style | None = None
    effect: Effect | None = None


class WordFact(Struct, frozen=True, kw_only=True):
    """A positional argument."""

    name: str
    type: PositionalType | None = None
    values: tuple[str, ...] = ()
    description: str = ""
    required: bool | None = None
    repeatable: bool | None = None


class Subcommand(Struct, frozen=True):
    """A subcommand, as its parent lists it; `usage` is its usage in that list."""

    name: str
    description: str = ""
    usage: str = ""


class CommandFact(Struct, frozen=True, kw_only=True):
    """A command, from one source.

    `source` names the source. One that `is_whole` lists all flags and words. `words` is None if they are unknown.
    `separator` is whether `--` ends the flags.
    """

    source: str
    path: tuple[str, ...] = ()
    description: str = ""
    flags: tuple[FlagFact, ...] = ()
    words: tuple[WordFact, ...] | None = None
    subcommands: tuple[Subcommand, ...] = ()
    separator: bool | None = None
    effect: Effect | None = None
    is_whole: bool = False
