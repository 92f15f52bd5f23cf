"""`dynamic-mcp completions SHELL`: what a shell needs to complete commands, groups and tools."""

from __future__ import annotations

import click


@click.command(short_help="Print the completions for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completions for a SHELL, to be read at its start.

    \b
    bash: eval "$(dynamic-mcp completions bash)"        in ~/.bashrc
    zsh:  eval "$(dynamic-mcp completions zsh)"         in ~/.zshrc, after compinit
    fish: dynamic-mcp completions fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from dynamic_mcp.cli.commands import commands

    made = get_completion_class(shell)
    assert made is not None, "click knows these three"
    complete = made(commands, {}, "dynamic-mcp", "_DYNAMIC_MCP_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
