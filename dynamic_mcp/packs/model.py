"""A pack: the commands of one program that can be tools, and how their arguments are written on its command line.

A pack contains all that is known of a program; listing the tools never runs the program. Calls can use only what the
pack declares. An invalid pack raises msgspec.ValidationError with the place of the problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Effect = Literal["unknown", "read", "write", "destructive"]
FlagType = Literal["boolean", "string", "integer", "number", "enum", "path", "pairs"]
PositionalType = Literal["string", "integer", "number", "enum", "path"]
Style = Literal["bare", "equals", "joined", "separate"]

# Arguments that any call may have besides those of the command, in this order.
RESERVED = ("cwd", "stdin")
FLAG = r"^(-[!-,.-<>-~]|--?[A-Za-z0-9][A-Za-z0-9._-]*)$"
_WORD = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
_PROPERTY = r"^[a-z][a-z0-9_]*$"

Matcher = Callable[[str], bool]
FlagName = Annotated[str, Meta(pattern=FLAG, max_length=100)]
Property = Annotated[str, Meta(pattern=_PROPERTY, max_length=64)]
Word = Annotated[str, Meta(pattern=_WORD, max_length=100)]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]
Source = Annotated[str, Meta(max_length=300, description="Where this is from: a manual page, `--help`, a person.")]
Values = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(min_length=1)]
# Texts that a pack itself adds to the command line and the environment.
FixedWord = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]
Wrapping = Annotated[str, Meta(max_length=100, pattern=r"^[^\x00]*$")]
Environment = dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Annotated[str, Meta(max_length=1000)]]


class PackPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An object of a pack."""


class PackArgument(PackPart, frozen=True, kw_only=True):
    """The common fields of flags and positionals.

    `values` are those of an enum. `literal`: to the program, `-` and what begins with `@` are values like others.
    """

    description: Annotated[Text, Meta(description="What it does, in a line.")] | None = None
    required: Annotated[bool, Meta(description="A call must give it.")] = False
    repeatable: Annotated[bool, Meta(description="A call gives a list.")] = False
    values: Annotated[Values, Meta(description="The values of an enum.")] | None = None
    minimum: Annotated[float, Meta(description="The smallest number.")] | None = None
    maximum: Annotated[float, Meta(description="The largest number.")] | None = None
    pattern: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=1000, description="A regular expression (RE2) that the whole text matches."
            ),
        ]
        | None
    ) = None
    except_: (
        Annotated[
            str,
            Meta(min_length=1, max_length=1000, description="A regular expression (RE2) of texts that are refused."),
        ]
        | None
    ) = field(default=None, name="except")
    literal: Annotated[
        bool,
        Meta(
            description="The program gives no meaning to a value `-`, or to one that begins with `@`. Without this,"
            " such values are refused, because many programs read stdin or a file instead."
        ),
    ] = False
    source: Source | None = None


class Flag(PackArgument, frozen=True, kw_only=True):
    """A flag, by the name that is written on the command line."""

    name: Annotated[FlagName, Meta(description="As it is written: `--max-count`, `-S`.")]
    type: FlagType
    as_: (
        Annotated[
            Property,
            Meta(description="The argument's name. Default: the flag's, without dashes in front, and `_` for `-`."),
        ]
        | None
    ) = field(default=None, name="as")
    aliases: Annotated[list[FlagName], Meta(description="Its other names, which are never written.")] = []
    style: (
        Annotated[
            Style,
            Meta(
                description="How it is written: `bare` is `--flag`, `equals` `--flag=value`, `joined` `-fvalue`,"
                " `separate` two words. Default: `bare` for booleans, `separate` for pairs, else `equals` after two"
                " dashes and `joined` after one."
            ),
        ]
        | None
    ) = None
    effect: Annotated[Effect, Meta(description="What the command does with this flag, if that is worse.")] = "read"
    danger: (
        Annotated[
            Text,
            Meta(
                description="What a scan suspects that it may do. The flag is not offered until a person has looked"
                " at it and removed this."
            ),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        """Check the constraints between fields. Raises ValueError."""
        _check_values(self)
        if self.type == "boolean" and (self.style not in (None, "bare", "equals") or self.repeatable):
            raise ValueError(f"`{self.name}`: a boolean is `bare` or `equals`, and not repeatable")
        if self.type == "pairs" and (self.style not in (None, "separate") or self.repeatable):
            raise ValueError(f"`{self.name}`: pairs are `separate`, and not repeatable")
        if self.type not in ("boolean", "pairs") and self.style == "bare":
            raise ValueError(f"`{self.name}`: only a boolean is `bare`")
        if self.style == "joined" and len(self.name) > 2:
            raise ValueError(f"`{self.name}`: only a flag of one letter is `joined`")
        if self.style is None and len(self.name) > 2 and not self.name.startswith("--") and self.type != "boolean":
            raise ValueError(f"`{self.name}`: a long name after one dash needs a `style`")
        if not re.match(_PROPERTY, self.argument):
            raise ValueError(f"`{self.name}`: needs a name in `as`")

    @property
    def argument(self) -> str:
        return self.as_ or re.sub(r"[.-]", "_", self.name.lstrip("-")).lower()

    @property
    def written(self) -> Style:
        if self.style is not None:
            return self.style
        if self.type in ("boolean", "pairs"):
            return "bare" if self.type == "boolean" else "separate"
        return "equals" if self.name.startswith("--") else "joined"


class Positional(PackArgument, frozen=True, kw_only=True):
    """A word without a flag before it. `before_separator`: it is written before the `--` of its command."""

    name: Annotated[Property, Meta(description="The argument's name.")]
    type: PositionalType = "string"
    wrap: Annotated[
        tuple[Wrapping, Wrapping],
        Meta(description="What is put in front of the text and behind it, such as parentheses around an expression."),
    ] = ("", "")
    before_separator: Annotated[
        bool, Meta(description="It is written before the `--`, so it never begins with `-`.")
    ] = False

    def __post_init__(self) -> None:
        """Check the constraints between fields. Raises ValueError."""
        _check_values(self)

    @property
    def argument(self) -> str:
        return self.name


class Command(PackPart, frozen=True, kw_only=True):
    """A command, which is one tool."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([a-z0-9 _-]*[a-z0-9])?$",
            max_length=64,
            description="What the config calls it: `log`, `config view`.",
        ),
    ]
    path: Annotated[list[Word], Meta(description="The words of the command, after the program's name.")] = []
    description: Annotated[Text, Meta(description="What the tool is for, in a line or two.")]
    effect: Annotated[
        Effect, Meta(description="What it does; `unknown` counts as `write`. `destructive` loses what was there.")
    ] = "unknown"
    fixed: Annotated[list[FixedWord], Meta(description="Words that always follow the command.")] = []
    flags: Annotated[list[Flag], Meta(description="The flags that a call may give; there are no others.")] = []
    positionals: Annotated[list[Positional], Meta(description="The words that a call may give, in their order.")] = []
    separator: Annotated[
        bool,
        Meta(description="`--` ends the flags, and is always written. Without it, no word may begin with `-`."),
    ] = False
    stdin: Annotated[bool, Meta(description="A call may give a text as the standard input.")] = False
    open_world: Annotated[bool, Meta(description="It reaches things outside of the machine.")] = False
    ok_exit_codes: Annotated[
        list[Annotated[int, Meta(ge=0, le=255)]], Meta(description="Exit codes that are no error, besides 0.")
    ] = []
    environment: Annotated[Environment, Meta(description="Variables that are set for this command.")] = {}
    source: Source | None = None

    def __post_init__(self) -> None:
        """Check the constraints between fields. Raises ValueError."""
        names = [*(each.argument for each in self.flags), *(each.argument for each in self.positionals), *RESERVED]
        if twice := _find_twice(names):
            raise ValueError(f"`{self.name}`: duplicate argument `{twice}`")
        if twice := _find_twice(name for each in self.flags for name in (each.name, *each.aliases)):
            raise ValueError(f"`{self.name}`: duplicate flag `{twice}`")
        if "--" in self.fixed:
            raise ValueError(f"`{self.name}`: `--` in `fixed` would make words of all flags")
        before = [each.before_separator for each in self.positionals]
        if any(before) and not self.separator:
            raise ValueError(f"`{self.name}`: `before_separator` without a `separator`")
        if before != sorted(before, reverse=True):
            raise ValueError(f"`{self.name}`: what comes before the separator must come first")
        for side in self.sides:
            if any(each.repeatable for each in side[:-1]):
                raise ValueError(f"`{self.name}`: only the last word on each side of `--` may be repeatable")
            if any(each.required and not before.required for before, each in pairwise(side)):
                raise ValueError(f"`{self.name}`: a word that is required comes before those that are not")

    @property
    def sides(self) -> tuple[list[Positional], list[Positional]]:
        """The words before the separator, and all others."""
        before = [each for each in self.positionals if each.before_separator]
        return before, self.positionals[len(before) :]

    @property
    def worst_effect(self) -> Effect:
        """The worst effect of the command and its flags."""
        return max((self.effect, *(flag.effect for flag in self.flags)), key=_BADNESS.__getitem__)


class Pack(PackPart, frozen=True, kw_only=True):
    """The commands of one program."""

    schema_: str | None = field(default=None, name="$schema")
    name: Annotated[
        str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40, description="Its tools begin with it.")
    ]
    program: Annotated[
        str, Meta(min_length=1, max_length=200, description="The program, as it is found on the `PATH`.")
    ]
    description: Annotated[Text, Meta(description="What the program is for, in a line.")]
    version: Annotated[list[FixedWord], Meta(description="The words with which it prints its version.")] | None = None
    checked: Annotated[str, Meta(description="The version of the program that this was compared with.")] | None = None
    fixed: Annotated[list[FixedWord], Meta(description="Words that come before every command.")] = []
    environment: Annotated[Environment, Meta(description="Variables that are set for every command.")] = {}
    inherit: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]],
        Meta(description="Variables that the program gets from the environment of the proxy."),
    ] = []
    ceiling: (
        Annotated[
            str,
            Meta(
                pattern=r"^[A-Z_]+$",
                description="The variable that takes the directories in which the program must not look for its"
                " files: those above the roots.",
            ),
        ]
        | None
    ) = None
    places: Annotated[
        list[FixedWord],
        Meta(
            description="The words with which the program prints the files and directories that it would work with,"
            " one a line. It is asked before each call, which is refused if one of them is not in the roots.",
        ),
    ] = []
    commands: Annotated[list[Command], Meta(min_length=1)]
    source: Source | None = None
    reviewed: Annotated[
        bool,
        Meta(description="Whether a person has reviewed it. A scan writes false, and `check` warns of it."),
    ] = True

    def __post_init__(self) -> None:
        """Check the constraints between fields. Raises ValueError."""
        if twice := _find_twice(tool_name(self.name, each.name) for each in self.commands):
            raise ValueError(f"two commands make a tool `{twice}`")


def tool_name(pack: str, command: str) -> str:
    """Return the name of the tool for a command: `git_log`, `kubectl_config_view`."""
    return re.sub(r"[^a-z0-9]+", "_", f"{pack} {command}")


@cache
def compile_pattern(pattern: str) -> Matcher:
    """Return a function that matches whole texts, in linear time. Raises ValueError if the pattern is invalid."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as exc:
        raise ValueError(f"`{pattern[:100]}` is not a regular expression") from exc
    return lambda text: compiled.fullmatch(text) is not None


_BADNESS: Mapping[Effect, int] = {"read": 0, "unknown": 1, "write": 1, "destructive": 2}


def _check_values(each: Flag | Positional) -> None:
    if (each.type == "enum") != (each.values is not None):
        raise ValueError("an enum, and nothing else, has `values`")
    for name, pattern in (("pattern", each.pattern), ("except", each.except_)):
        if pattern is not None and each.type not in ("string", "path"):
            raise ValueError(f"only a string or a path has `{name}`")
        if pattern is not None:
            compile_pattern(pattern)


def _find_twice(names: Iterable[str]) -> str | None:
    names_so_far: set[str] = set()
    return next(_repeated(names, names_so_far), None)


def _repeated(names: Iterable[str], names_so_far: set[str]) -> Iterator[str]:
    for name in names:
        if name in names_so_far:
            yield name
        names_so_far.add(name)
