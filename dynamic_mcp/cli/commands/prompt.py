"""`dynamic-mcp prompt GROUP NAME`: get one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, save_option, timeout_option
from dynamic_mcp.cli.suggestions import complete_group, complete_prompt, complete_prompt_argument

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Get a prompt.")
@click.argument("group", shell_complete=complete_group)
@click.argument("name", shell_complete=complete_prompt)
@click.argument("arguments", nargs=-1, metavar="[key=value …]", shell_complete=complete_prompt_argument)
@timeout_option
@save_option
@asking_options
def command(
    context: Invocation, group: str, name: str, arguments: tuple[str, ...], *, timeout: str | None, save: str | None
) -> int:
    r"""Fill in the prompt NAME of GROUP and print its messages. --json prints the whole result.

    `key=@FILE` takes the value from a file; write a value that begins with `@` as `key=\@value`.
    """
    from dynamic_mcp.cli.prompt_reader import get_prompt

    return get_prompt(context, group, name, arguments, timeout=timeout, save=save)
