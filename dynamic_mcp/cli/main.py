"""The commands, and the one place where an error becomes words on stderr and an exit code."""

from __future__ import annotations

import sys

import click

from dynamic_mcp import __version__
from dynamic_mcp.errors import DynamicMcpError


class _ServeByDefault(click.Group):
    """A group of commands whose first argument may also be the config to serve."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {name for param in self.get_params(ctx) for name in param.opts}
        if not args or (args[0] not in self.commands and args[0] not in options):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ServeByDefault,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[CONFIG] | COMMAND …",
    epilog="Exit codes: 0 done, 2 the config or the command line is wrong, 5 a server could not be used.",
)
@click.version_option(__version__, "-V", "--version", prog_name="dynamic-mcp", message="%(prog)s %(version)s")
def commands() -> None:
    """One MCP server in front of many: a model sees two small tools and finds the rest on demand.

    With a CONFIG, or without any argument, it serves: put `dynamic-mcp /path/dynamic-mcp.json` into your
    AI tool's MCP settings.
    """


@commands.command()
@click.argument("config", required=False)
def serve(config: str | None) -> None:
    """Serve the groups of CONFIG to one client over stdin and stdout.

    Without CONFIG: $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json, else the one in your config directory.
    """
    from dynamic_mcp.cli.serve import run

    run(config)


@commands.command()
@click.argument("config", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on a terminal too.")
def stats(config: str | None, *, as_json: bool) -> None:
    """Show what the tools of CONFIG cost a model's context, listed directly and through this program.

    Servers whose tools are not known yet are started. Tokens are counted by `tiktoken` where that is installed,
    else estimated.
    """
    from dynamic_mcp.cli.stats import run

    sys.exit(run(config, as_json=as_json))


def main() -> None:
    """Run the command line."""
    try:
        commands(prog_name="dynamic-mcp")
    except DynamicMcpError as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(exc.exit_code)
