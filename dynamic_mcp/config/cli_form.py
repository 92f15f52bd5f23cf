"""The form of a server that is a command line program, as `form` has it for the rest of the file."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config import cli_values
from dynamic_mcp.config.access_form import Globs
from dynamic_mcp.config.section import Duration, Section

Names = Annotated[list[str], cli_values.check_names]
OutputLimit = Annotated[str | int | None, cli_values.parse_output_limit]
Effects = Annotated[dict[str, Literal["read", "write", "destructive"]], cli_values.check_effects]
Flags = Annotated[list[str], cli_values.check_flags]


class Directories(Section, frozen=True, kw_only=True):
    """Where the program may work."""

    roots: Annotated[
        Names,
        "Directories, relative to this file. A call may choose one in them as `cwd`, and its paths must be in them,"
        " with all links followed. The first is the default.",
    ]


class Cli(Section, frozen=True, kw_only=True):
    """A command line program whose commands are tools."""

    use: Annotated[
        Annotated[str, Meta(min_length=1)],
        "The pack that says what commands there are: the name of one that comes with dynamic-mcp, such as `git`, or a"
        " file, relative to this one.",
    ]
    commands: Annotated[
        Names, "The commands that are tools, by the pack's names for them; names or globs. There are no others."
    ]
    command: Annotated[str | None, "The program, by name or path. Default: the one that the pack names."] = None
    deny_flags: Annotated[Flags | None, "Flags that no call may use: `--force`, or globs, such as `--no-*`."] = None
    effects: Annotated[
        Effects | None,
        "What commands do, where it is not what the pack says: `read`, `write` or `destructive`, by command; names or"
        " globs.",
    ] = None
    cwd: Annotated[
        Directories | None, "Where the program may work. Default: in the directory of the client, wherever that is."
    ] = None
    env: Annotated[
        Globs | None,
        "Variables that are passed on besides the few that programs need to run and those that the pack names; names"
        " or globs.",
    ] = None
    timeout: Annotated[
        Duration, "End the program after this time. Default: what `timeout.tools` says, which is 60s."
    ] = None
    output_limit: Annotated[
        OutputLimit,
        "How much of what the program writes to stdout, and to stderr, is kept: the first and the last part of it."
        " Default: 1MB.",
    ] = None
    stdin: Annotated[
        bool | None,
        "Let calls give the text for the program's stdin, where the pack knows a use for it. Default: true.",
    ] = None
    at_files: Annotated[
        bool | None,
        "Accept values that begin with `@`, and `-`, by which many programs read a file or stdin. Default: false.",
    ] = None
