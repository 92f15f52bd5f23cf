"""`dynamic-mcp connect URL`: a stdio server in front of one remote server, without any config."""

from __future__ import annotations

import click

from dynamic_mcp.cli.options import client_id_option, client_secret_option, header_option, log_options, scope_option


@click.command(short_help="Serve one remote server to one client over stdin and stdout, without a config.")
@click.argument("url")
@click.argument("unquoted", nargs=-1, metavar="")
@header_option
@click.option("--type", "kind", type=click.Choice(["http", "sse"]), help="The URL's transport. Default: detected.")
@client_id_option
@client_secret_option
@scope_option
@click.option("--timeout", metavar="TIME", help="How long to wait for an answer, e.g. `2m`. Default: 60s for a tool.")
@log_options
def command(
    url: str,
    unquoted: tuple[str, ...],
    *,
    headers: tuple[str, ...],
    kind: str | None,
    client_id: str | None,
    client_secret_env: str | None,
    scopes: tuple[str, ...],
    timeout: str | None,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve the remote server at URL to one client over stdin and stdout, for clients that speak only stdio.

    The client sees the server's own tools, prompts and instructions. If the server needs a login, a browser opens;
    `dynamic-mcp auth login URL` logs in beforehand. Write secrets as '${VARIABLE}', in single quotes: the variable is
    filled in here, and the list of processes does not show it.

    \b
    dynamic-mcp connect https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
    """
    from dynamic_mcp.cli.direct_server import DirectServer, parse_headers
    from dynamic_mcp.cli.startup import connect

    if unquoted:  # click would show the value, such as the second half of a header
        raise click.UsageError("more than one URL is given; put each header in single quotes")
    server = DirectServer(
        url,
        headers=parse_headers(headers),
        kind=kind,
        client_id=client_id,
        client_secret_variable=client_secret_env,
        scopes=scopes,
        timeout=timeout,
    )
    return connect(server, log_level=log_level, log_format=log_format)
