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
    epilog="Exit codes: 0 done, 2 the config or the command line is wrong, 4 a login is needed, 5 a server failed.",
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


@commands.group(short_help="Log in to remote servers.")
def auth() -> None:
    """Be logged in to the remote servers of a config. NAME is a group; without it, all groups are meant."""


_config_option = click.option("-c", "--config", metavar="FILE", help="The config; else it is found as for `serve`.")


@auth.command("login")
@click.argument("name", required=False)
@_config_option
@click.option("--no-browser", is_flag=True, help="Print the link only.")
@click.option("--token", "ask_token", is_flag=True, help="Give a token that you have made, on stdin.")
def auth_login(name: str | None, config: str | None, no_browser: bool, ask_token: bool) -> None:  # noqa: FBT001
    """Log in to a group in a browser, here or on another machine."""
    from dynamic_mcp.cli.auth import login

    login(name, config, open_browser=not no_browser, ask_token=ask_token)


@auth.command("logout")
@click.argument("name", required=False)
@_config_option
def auth_logout(name: str | None, config: str | None) -> None:
    """Revoke and forget the tokens of a group."""
    from dynamic_mcp.cli.auth import logout

    logout(name, config)


@auth.command("status")
@click.argument("name", required=False)
@_config_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def auth_status(name: str | None, config: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show which groups are logged in; exit code 4 when a login is needed."""
    from dynamic_mcp.cli.auth import status

    sys.exit(status(name, config, as_json=as_json))


def main() -> None:
    """Run the command line."""
    try:
        commands(prog_name="dynamic-mcp")
    except DynamicMcpError as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(exc.exit_code)
