"""What every command takes: which config, how much to say, and in which form."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

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
    help="Only proxies that serve this config. Default: all.",
)
timeout_option = click.option(
    "--timeout", metavar="TIME", help="How long to wait for the answer, e.g. `2m`. Default: as in the config."
)
save_option = click.option(
    "--save", metavar="DIR", type=click.Path(file_okay=False), help="Where to save images and other files."
)
partial_option = click.option(
    "--partial", is_flag=True, help="Exit with 0 if at least one server answered; the others are on stderr."
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
verbose_option = click.option("-v", "--verbose", count=True, help="Print more on stderr; -vv prints everything.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, also on a terminal.")


def common(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Give a command the options that all have; it gets them as its first argument, and returns its exit code."""
    return config_option(without_config(function))


def about_proxies(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Do the same for a command about running proxies, where a config only narrows down which."""
    return proxies_option(without_config(function))


def without_config(function: Callable[Concatenate[Invocation, P], int | None]) -> Command[...]:
    """Do the same for a command that uses no config."""

    @quiet_option
    @verbose_option
    @json_option
    @functools.wraps(function)
    def command(
        quiet: bool,  # noqa: FBT001 - click gives them by name, and nothing may stand between *args and **kwargs
        verbose: int,
        as_json: bool,  # noqa: FBT001
        config_file: str | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> int | None:
        from dynamic_mcp.cli.invocation import invocation

        return function(invocation(config_file, quiet=quiet, verbose=verbose, as_json=as_json), *args, **kwargs)

    return command


def one_config(this: Invocation, config: str | None) -> Invocation:
    """Take the config from an argument or from --config. Raises UsageError where both name one."""
    if config and this.named:
        raise click.UsageError(f"two configs are given: `{config}` and `{this.named}`")
    return replace(this, named=config or this.named)
