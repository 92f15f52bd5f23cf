"""What a source says of a program. None, and an empty text, mean that it does not say."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.packs.model import Effect, FlagType, PositionalType, Style


class Value(Struct, frozen=True, kw_only=True):
    """What a flag or a word takes, as far as a source says."""

    type: FlagType | None = None
    values: tuple[str, ...] = ()
    repeatable: bool | None = None
    minimum: float | None = None
    maximum: float | None = None


class FlagFact(Struct, frozen=True, kw_only=True):
    """A flag. `names` are all of its names, `value` None if it is not known whether it takes any."""

    names: tuple[str, ...]
    value: Value | None = None
    description: str = ""
    required: bool | None = None
    style: Style | None = None
    effect: Effect | None = None


class WordFact(Struct, frozen=True, kw_only=True):
    """A word without a flag before it."""

    name: str
    type: PositionalType | None = None
    values: tuple[str, ...] = ()
    description: str = ""
    required: bool | None = None
    repeatable: bool | None = None


class Subcommand(Struct, frozen=True):
    """A command below another one, as it is listed there; `usage` is what the list says that it takes."""

    name: str
    description: str = ""
    usage: str = ""


class CommandFact(Struct, frozen=True, kw_only=True):
    """A command, as one source has it.

    `source` says which one. A source that `is_whole` knows every flag and word: what it does not list is not there.
    `words` None are not known. `separator` tells whether `--` ends the flags.
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
