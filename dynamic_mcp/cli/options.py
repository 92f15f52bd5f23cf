"""The options that commands share: which config, how much to print, and in which form."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click
from msgspec.structs import replace

from dynamic_mcp.cli.suggestions import complete_profile
from dynamic_mcp.config.location import choose_profile

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

P = ParamSpec("P")
Command = Callable[P, int | None]

config_option = click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(),
    help="The config. Default: $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json, else the one in your config directory.",
)
proxies_option = click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(),
    help="Only what runs with this config. Default: all.",
)
person_option = click.option("--yes", "-y", is_flag=True, help="Do not ask, and do without a terminal.")
timeout_option = click.option(
    "--timeout", metavar="TIME", help="How long to wait for the answer, e.g. `2m`. Default: as configured."
)
save_option = click.option(
    "--save", metavar="DIR", type=click.Path(file_okay=False), help="The directory to save images and other files in."
)
project_option = click.option(
    "--project",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The project directory. Default: the current one.",
)
partial_option = click.option(
    "--partial", is_flag=True, help="Exit with 0 if at least one server answered; errors of the others go to stderr."
)
alone_option = click.option(
    "--alone", is_flag=True, help="Start servers of its own, even if the daemon of the config runs."
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="Only the servers and tools of this profile. Default: $DYNAMIC_MCP_PROFILE, else all.",
)
client_id_option = click.option(
    "--client-id", metavar="ID", help="The client ID, if one was registered with the server by hand."
)
client_secret_option = click.option(
    "--client-secret-env", metavar="VARIABLE", help="The environment variable that holds the secret of that client."
)
scope_option = click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="A scope to request. Default: those that the server asks for.",
)
header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header for every request; `NAME=VALUE` does as well.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
verbose_option = click.option("-v", "--verbose", count=True, help="Print more on stderr; -vv prints everything.")
json_option = click.option(
    "--json/--table",
    "as_json",
    default=None,
    help="Print JSON or tables. Default: tables on a terminal, JSON where it is piped.",
)


def log_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of the log to a command that serves, which receives them as `log_level` and `log_format`."""

    @click.option("--log-level", metavar="LEVEL", help="What to log on stderr: debug, info, warning or error.")
    @click.option("--log-format", type=click.Choice(["text", "json"]), help="The format of the log on stderr.")
    @click.option("-q", "--quiet", is_flag=True, help="Short for --log-level error.")
    @click.option("-v", "--verbose", is_flag=True, help="Short for --log-level debug.")
    @functools.wraps(function)
    def command(*args: object, log_level: str | None, quiet: bool, verbose: bool, **kwargs: object) -> int:
        level = log_level or ("error" if quiet else "debug" if verbose else None)
        return function(*args, log_level=level, **kwargs)

    return command


def common_options(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Add the common options to a command, which receives an Invocation and returns its exit code."""
    return config_option(output_options(function))


def asking_options(function: Callable[Concatenate[Invocation, ...], int | None]) -> Command[...]:
    """Add the options of a command that is a client of servers, in a profile."""

    @functools.wraps(function)
    def command(context: Invocation, /, *args: object, profile: str | None, **kwargs: object) -> int | None:
        return function(replace(context, profile=choose_profile(profile, os.environ)), *args, **kwargs)

    return profile_option(examining_options(command))


def examining_options(function: Callable[Concatenate[Invocation, ...], int | None]) -> Command[...]:
    """Add the options of a command that reaches servers, through the daemon or with `--alone` directly."""

    @functools.wraps(function)
    def command(context: Invocation, /, *args: object, alone: bool, **kwargs: object) -> int | None:
        return function(replace(context, is_alone=alone), *args, **kwargs)

    return alone_option(common_options(command))


def proxy_options(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Add the options of a command about running proxies, which `--config` filters."""
    return proxies_option(output_options(function))


def output_options(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Add the options of a command that uses no config."""

    @quiet_option
    @verbose_option
    @json_option
    @functools.wraps(function)
    def command(
        quiet: bool,  # noqa: FBT001 - click passes them by name, and no keyword may follow *args
        verbose: int,
        as_json: bool | None,  # noqa: FBT001
        config_file: str | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> int | None:
        from dynamic_mcp.cli.invocation import start_invocation

        context = start_invocation(
            config_file,
            quiet=quiet,
            verbose=verbose,
            as_json=as_json,
            command=click.get_current_context().command_path,
        )
        return function(context, *args, **kwargs)

    return command


def with_config_argument(context: Invocation, config: str | None) -> Invocation:
    """Return the invocation with the config of its argument or of --config. Raises UsageError if both are given."""
    if config and context.config_option:
        raise click.UsageError(f"two configs are given: `{config}` and `{context.config_option}`")
    return replace(context, config_option=config or context.config_option)


class DefaultGroup(click.Group):
    """A group of commands with a default."""

    default = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default if no command is named."""
        wants_help = bool(args) and args[0] in ctx.help_option_names
        if not ctx.resilient_parsing and not wants_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
