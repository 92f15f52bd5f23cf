"""`dynamic-mcp auth`: log in to remote servers, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import client_id_option, client_secret_option, common_options, scope_option

if TYPE_CHECKING:
    from dynamic_mcp.cli.direct_server import DirectServer
    from dynamic_mcp.cli.invocation import Invocation

_name = click.argument("name", required=False)


@click.group(
    short_help="Log in to remote servers, log out, show who is logged in.", subcommand_metavar="COMMAND [NAME]"
)
def command() -> None:
    """Log in to the remote servers of a config. NAME is a group, or the URL of a server. Default: all groups."""


@command.command("login")
@_name
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--token", "ask_token", is_flag=True, help="Log in with a token of yours, read from stdin.")
@client_id_option
@client_secret_option
@scope_option
@common_options
def login(
    context: Invocation,
    *,
    name: str | None,
    no_browser: bool,
    ask_token: bool,
    client_id: str | None,
    client_secret_env: str | None,
    scopes: tuple[str, ...],
) -> None:
    """Log in to a group in a browser, here or on another machine.

    --client-id, --client-secret-env and --scope go with the URL of a server, which `dynamic-mcp connect` serves.
    """
    from dynamic_mcp.cli.login import log_in

    server = _server(name, client_id, client_secret_env, scopes)
    log_in(context, server, open_browser=not no_browser, ask_token=ask_token)


@command.command("logout")
@_name
@click.option("--as", "subject", metavar="SUBJECT", help="Those of this person, who comes over HTTP.")
@click.option("--issuer", help="Who names the person, where several do so.")
@client_id_option
@common_options
def logout(
    context: Invocation, *, name: str | None, subject: str | None, issuer: str | None, client_id: str | None
) -> None:
    """Revoke and delete the tokens of a group."""
    from dynamic_mcp.cli.login import log_out, log_person_out

    if subject is not None:
        log_person_out(context, _server(name, client_id), subject, issuer)
    elif issuer is not None:
        raise click.UsageError("--issuer goes with --as")
    else:
        log_out(context, _server(name, client_id))


@command.command("status")
@_name
@client_id_option
@common_options
def status(context: Invocation, *, name: str | None, client_id: str | None) -> int:
    """Show which groups are logged in.

    The exit code is 4 if a login has expired, if a header uses a variable that is not set, or if NAME is not
    logged in.
    """
    from dynamic_mcp.cli.login import show_status

    return show_status(context, _server(name, client_id))


def _server(
    name: str | None, client_id: str | None, secret: str | None = None, scopes: tuple[str, ...] = ()
) -> DirectServer | str | None:
    """Return the server for a URL; the name of a group stays unchanged."""
    from dynamic_mcp.cli.direct_server import DirectServer, looks_like_a_url

    if name is not None and looks_like_a_url(name):
        return DirectServer(name, client_id=client_id, client_secret_variable=secret, scopes=scopes)
    if client_id or secret or scopes:
        raise click.UsageError("--client-id, --client-secret-env and --scope go with a URL: groups have a config")
    return name
