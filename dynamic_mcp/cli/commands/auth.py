"""`dynamic-mcp auth`: log in to remote servers, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

_name = click.argument("name", required=False)


@click.group(
    short_help="Log in to remote servers, log out, show who is logged in.", subcommand_metavar="COMMAND [NAME]"
)
def command() -> None:
    """Log in to the remote servers of a config. NAME is a group. Default: all groups."""


@command.command("login")
@_name
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--token", "ask_token", is_flag=True, help="Log in with a token of yours, read from stdin.")
@common_options
def login(this: Invocation, *, name: str | None, no_browser: bool, ask_token: bool) -> None:
    """Log in to a group in a browser, here or on another machine."""
    from dynamic_mcp.cli.login import log_in

    log_in(this, name, open_browser=not no_browser, ask_token=ask_token)


@command.command("logout")
@_name
@common_options
def logout(this: Invocation, *, name: str | None) -> None:
    """Revoke and delete the tokens of a group."""
    from dynamic_mcp.cli.login import log_out

    log_out(this, name)


@command.command("status")
@_name
@common_options
def status(this: Invocation, *, name: str | None) -> int:
    """Show which groups are logged in.

    The exit code is 4 if a login has expired, if a header uses a variable that is not set, or if NAME is not
    logged in.
    """
    from dynamic_mcp.cli.login import show_status

    return show_status(this, name)
