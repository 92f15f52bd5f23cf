"""`dynamic-mcp script`: runs and checks scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, save_option
from dynamic_mcp.cli.suggestions import completion_items, read_config

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.cli.invocation import Invocation


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dynamic_mcp.features.scripts.commands.stored_folder import list_names

    config = read_config(ctx)
    return completion_items(((name, "") for name in (list_names(config) if config else ())), incomplete)


_arguments = click.argument("arguments", nargs=-1, metavar="[JSON | key=value … | -]")


@click.group(short_help="Run and check scripts.", subcommand_metavar="COMMAND")
def command() -> None:
    """Run and check scripts that call many tools in one turn."""


@command.command("run", short_help="Run a stored script.")
@click.argument("name", shell_complete=_complete_name)
@_arguments
@save_option
@asking_options
def run(context: Invocation, name: str, arguments: tuple[str, ...], *, save: str | None) -> int:
    """Run the stored script NAME, and print its result.

    Its arguments are written as those of `call`: a JSON object, `-` for one on stdin, or key=value pairs.
    """
    from dynamic_mcp.features.scripts.commands import running

    return running.run_stored(context, name, arguments, save)


@command.command("try", short_help="Run a file as a model would, and show its calls.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@_arguments
@save_option
@asking_options
def try_file(context: Invocation, file: str, arguments: tuple[str, ...], *, save: str | None) -> int:
    """Run the script in FILE as a model would, and print its result; its calls are shown on stderr.

    It needs no front matter; where it has some, arguments are typed by the schema there.
    """
    from dynamic_mcp.features.scripts.commands import running

    return running.try_file(context, file, arguments, save)


@command.command("check", short_help="Check the stored scripts.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_name)
@asking_options
def check(context: Invocation, names: tuple[str, ...]) -> int:
    """Check all stored scripts, or those named: their front matter, their syntax, and the tools that they call.

    It asks the servers of these tools for their schemas; nothing is called. It exits with 1 if a script is wrong.
    """
    from dynamic_mcp.features.scripts.commands import checking

    return checking.check(context, names)
