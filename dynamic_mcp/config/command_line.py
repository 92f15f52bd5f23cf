"""A server that is a command line program: selects the commands and flags of its pack that calls may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from dynamic_mcp.config import environment
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import CommandLine
from dynamic_mcp.config.section import Everyday, Section, Value
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.config.types import Duration, Effects, Flags, Globs, Names, Size, Text, check_names
from dynamic_mcp.errors import closest
from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag, Pack

# No pager, no colour: the output is not shown on a terminal.
_ENVIRONMENT = {"PAGER": "cat", "NO_COLOR": "1", "TERM": "dumb"}
_Paths = Annotated[
    tuple[str, ...], Value(check_names, written=list[str], schema={"minItems": 1}, type_name="a list of paths")
]


class Directories(Section, frozen=True, kw_only=True):
    """Where the program may work."""

    roots: Annotated[
        _Paths,
        "The directories, relative to the config, in which the program may work: a call may choose one in"
        " them as `cwd`, and its paths must be in them, with all links followed. The first is the default."
        " Without `cwd`, it works in the client's directory.",
        Everyday(),
    ]


class Cli(Section, frozen=True, kw_only=True):
    """A command line program whose commands are tools."""

    use: Annotated[
        Text,
        "Which commands there are: the name of a pack that comes with dynamic-mcp, such as `git`, or a pack"
        " file, relative to the config.",
        Everyday(),
    ]
    commands: Annotated[
        Names,
        "The commands that become tools, by their names in the pack. There are no others.",
        Everyday(),
    ]
    command: Annotated[str | None, "The program, by name or path. Default: the one in the pack."] = None
    deny_flags: Annotated[Flags, "Flags that no call may use, such as `--force` or `--no-*`.", Everyday()] = ()
    effects: Annotated[
        Effects,
        "What commands do, if the pack is wrong about it. Names can be globs.",
    ] = {}
    cwd: Annotated[
        Directories | None,
        "Where the program may work. Default: in the directory of the client, wherever that is.",
        Everyday(),
    ] = None
    env: Annotated[
        Globs,
        "Environment variables that are passed on, besides the few that programs need to run and those of the pack.",
    ] = ()
    timeout: Annotated[
        Duration | None, "End the program after this time. Default: that of `timeout.tools`, which is 60s."
    ] = None
    output_limit: Annotated[
        Size,
        "How much of the program's stdout, and of its stderr, is kept: the first and the last part. Default: 1MB.",
    ] = 1_000_000
    stdin: Annotated[
        bool,
        "Let calls provide the text for the program's stdin, if the pack knows a use for it. Default: true.",
    ] = True
    at_files: Annotated[
        bool,
        "Accept `-` and values that begin with `@`, by which many programs read stdin or a file. Default: false.",
    ] = False


def resolve_command_line(
    at: Keys, cli: Cli, *, texts: Substitution, surroundings: Surroundings
) -> CommandLine | None:
    """Return the program and its commands. Return None, with a failure in `texts`, if the pack cannot be used."""
    pack = _read_pack((*at, "use"), texts.fill((*at, "use"), cli.use, is_required=True), texts, surroundings)
    command = _resolve_command(at, cli, texts=texts, surroundings=surroundings)
    roots = _resolve_roots(at, cli, texts=texts, surroundings=surroundings)
    if pack is None:
        return None
    env = _environment(cli, pack, roots, surroundings)
    return CommandLine(
        command=command or pack.program,
        pack=pack.name,
        description=pack.description,
        commands=tuple(_select_commands(at, cli, pack, texts)),
        env=env,
        cwd=roots[0] if roots else surroundings.working_directory,
        roots=roots,
        fixed=tuple(pack.fixed),
        version=tuple(pack.version or ()),
        places=tuple(pack.places),
        timeout_s=cli.timeout,
        output_limit=cli.output_limit,
        at_files=cli.at_files,
    )


def pack_file(use: str, surroundings: Surroundings) -> Path | None:
    """Return the file of a pack, or None for a pack that comes with the program."""
    return resolve_path(use, surroundings) if library.is_file(use) else None


def _read_pack(at: Keys, use: str, texts: Substitution, surroundings: Surroundings) -> Pack | None:
    file = pack_file(use, surroundings)
    try:
        return library.read_shipped(use) if file is None else library.read_file(file)
    except library.BadPack as exc:
        names = library.shipped_names()
        choices = (
            f"; there are {', '.join(f'`{name}`' for name in names)}" if file is None and use not in names else ""
        )
        texts.fail(at, f"{exc}{choices}")
        return None


def _resolve_command(at: Keys, cli: Cli, *, texts: Substitution, surroundings: Surroundings) -> str | None:
    if cli.command is None:
        return None
    command = texts.fill((*at, "command"), cli.command, is_required=True)
    if not command:
        texts.fail((*at, "command"), "is empty")
    has_directory = "/" in command or "\\" in command
    return str(resolve_path(command, surroundings)) if has_directory else command


def _resolve_roots(at: Keys, cli: Cli, *, texts: Substitution, surroundings: Surroundings) -> tuple[str, ...]:
    written = enumerate(cli.cwd.roots if cli.cwd is not None else ())
    filled = (texts.fill((*at, "cwd", "roots", i), text, is_required=True) for i, text in written)
    return tuple(os.path.normpath(resolve_path(text, surroundings)) for text in filled)


def _environment(cli: Cli, pack: Pack, roots: tuple[str, ...], surroundings: Surroundings) -> dict[str, str]:
    names = (*pack.inherit, *cli.env)
    inherited = environment.minimal_variables(surroundings.environment, names, platform=surroundings.platform)
    variables = dict(pack.environment)
    if pack.ceiling is not None and roots:
        # programs compare it with their working directory after resolving links
        real = (os.path.realpath(root) for root in roots)
        variables[pack.ceiling] = os.pathsep.join(dict.fromkeys(str(Path(root).parent) for root in (*roots, *real)))
    return environment.merge([inherited, _ENVIRONMENT, variables], platform=surroundings.platform)


# --- commands and flags --------------------------------------------------------------------------------------


def _select_commands(at: Keys, cli: Cli, pack: Pack, texts: Substitution) -> Iterator[Command]:
    """Yield the commands that the config selects, without the flags that it denies."""
    names = [each.name for each in pack.commands]
    for place, globs in (("commands", cli.commands), ("effects", cli.effects)):
        for glob in globs:
            if not any(_matching(names, (glob,))):
                near = ", ".join(f"`{each}`" for each in closest(glob, names))
                hint = f"did you mean {near}?" if near else f"it has {', '.join(f'`{name}`' for name in names)}"
                texts.fail((*at, place), f"the pack `{pack.name}` has no command `{glob}`: {hint}")
    selected = [each for each in pack.commands if any(_matching([each.name], cli.commands))]
    _warn_of_unknown_flags((*at, "deny_flags"), cli, selected, texts)
    if not pack.reviewed:
        why = "set its `reviewed` to true once a person has looked at what its commands and flags do"
        texts.warn((*at, "use"), f"the pack `{pack.name}` is not reviewed: {why}")
    for each in selected:
        flags = [flag for flag in each.flags if flag.danger is None and not _is_denied(flag, cli)]
        for flag in each.flags:
            if flag.required and _is_denied(flag, cli):
                texts.fail((*at, "deny_flags"), f"`{each.name}` cannot be used without `{flag.name}`")
            elif flag.required and flag.danger is not None:
                why = "review it, and remove its `danger`"
                texts.fail((*at, "use"), f"`{each.name}` cannot be used without `{flag.name}`: {why}")
        stdin = each.stdin and cli.stdin
        effect = next((value for glob, value in cli.effects.items() if fnmatchcase(each.name, glob)), None)
        changed = replace(each, flags=flags, stdin=stdin)
        yield changed if effect is None else _with_effect(changed, effect)


def _with_effect(command: Command, effect: str) -> Command:
    """Return the command with this effect for all its flags."""
    flags = [replace(flag, effect="read") for flag in command.flags]
    return replace(command, effect=effect, flags=flags)


def _warn_of_unknown_flags(at: Keys, cli: Cli, commands: Iterable[Command], texts: Substitution) -> None:
    names = [name for each in commands for flag in each.flags for name in (flag.name, *flag.aliases)]
    for glob in cli.deny_flags:
        if not any(_matching(names, (glob,))):
            near = ", ".join(f"`{each}`" for each in closest(glob, sorted(set(names))))
            texts.warn(at, f"none of the commands has a flag `{glob}`" + (f"; did you mean {near}?" if near else ""))


def _is_denied(flag: Flag, cli: Cli) -> bool:
    return any(_matching((flag.name, *flag.aliases), cli.deny_flags))


def _matching(names: Iterable[str], globs: Iterable[str]) -> list[str]:
    globs = [*globs]
    return [name for name in names if any(fnmatchcase(name, glob) for glob in globs)]
