"""`dynamic-mcp token`: make, list and revoke the tokens that HTTP clients authenticate with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Make, list and revoke tokens of HTTP clients.", subcommand_metavar="COMMAND")
def command() -> None:
    """Make, list and revoke the tokens that clients of `serve --http` authenticate with.

    They are accepted where `settings.http.auth` has `{"kind": "bearer"}`. Only their hashes are kept. `undo` does not
    bring back a token.
    """


@command.command("create")
@click.option("--as", "subject", metavar="NAME", required=True, help="Who will have it: a person or a program.")
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="A role of `settings.access`; may be repeated.")
@click.option(
    "--expires",
    metavar="TIME",
    default="90d",
    help="When it expires, e.g. `30d` or `12h` from now, or `never`. Default: 90d.",
)
@common_options
def create(context: Invocation, *, subject: str, roles: tuple[str, ...], expires: str) -> None:
    """Make a token and print it, once. Messages go to stderr, so `TOKEN=$(dynamic-mcp token create …)` works."""
    from dynamic_mcp.cli.tokens import create_token

    create_token(context, subject, roles, expires)


@command.command("list", short_help="Show the tokens of a config, and who has them.")
@common_options
def list_(context: Invocation) -> None:
    """Show the tokens of a config: their ids, who has them, their roles, and when they expire."""
    from dynamic_mcp.cli.tokens import list_tokens

    list_tokens(context)


@command.command("revoke")
@click.argument("id")
@common_options
def revoke(context: Invocation, *, id: str) -> None:
    """Revoke the token with this ID, as `token list` shows it. It is refused at once."""
    from dynamic_mcp.cli.tokens import revoke_token

    revoke_token(context, id)
