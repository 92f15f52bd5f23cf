"""`dynamic-mcp [CONFIG]`, or `serve`: serve the config over stdio until the client disconnects, or over HTTP."""

from __future__ import annotations

import click

from dynamic_mcp.cli.options import config_option, log_options, profile_option
from dynamic_mcp.cli.suggestions import complete_group

_ONLY = "Serve one group alone, as if there were no proxy."


@click.command(short_help="Serve a config over stdin and stdout, or over HTTP.")
@click.argument("config", required=False, type=click.Path())
@config_option
@click.option(
    "--http",
    is_flag=False,
    flag_value="",
    metavar="[HOST:]PORT",
    help="Serve over HTTP instead of stdin and stdout, at this address, or unix:/PATH."
    " Default: as configured, else 127.0.0.1:8808.",
)
@click.option("--tls-cert", metavar="FILE", type=click.Path(), help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", type=click.Path(), help="The key of the certificate (PEM).")
@click.option("--root-path", metavar="PATH", help="The path that a reverse proxy removes from requests.")
@click.option("--allowed-host", multiple=True, metavar="HOST", help="A further name of this server; can be repeated.")
@click.option(
    "--allowed-origin",
    multiple=True,
    metavar="ORIGIN",
    help="The origin of web pages that may call this server, such as https://app.example.com; can be repeated.",
)
@click.option("--insecure", is_flag=True, help="Let everybody who can reach the address use the servers.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Serve HTTP by this many processes on one port; each server over stdio runs in one of them.",
)
@click.option("--only", metavar="GROUP", shell_complete=complete_group, help=_ONLY)
@profile_option
@log_options
def command(
    config: str | None,
    config_file: str | None,
    *,
    http: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    root_path: str | None,
    allowed_host: tuple[str, ...],
    allowed_origin: tuple[str, ...],
    insecure: bool,
    workers: int | None,
    only: str | None,
    profile: str | None,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve the groups of CONFIG to one client over stdin and stdout, or with --http to many clients by URL.

    Default CONFIG: $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json, else the one in your config directory.
    With --only, the client sees that group's own tools, prompts and instructions under their own names.
    With --profile, clients see the servers and tools of that profile, unless those over HTTP choose another.
    Logs to stderr and to a file, which `dynamic-mcp logs` shows.

    \b
    dynamic-mcp serve dynamic-mcp.json --http
    dynamic-mcp serve --http 9000 --allowed-host mcp.example.com
    """
    from dynamic_mcp.cli.command_names import is_command
    from dynamic_mcp.cli.http_options import HttpWords, parse_http_options
    from dynamic_mcp.cli.startup import serve, serve_http

    if config and config_file:
        hint = f"; did you mean `dynamic-mcp {config} --config {config_file}`?" if is_command(config) else ""
        raise click.UsageError(f"two configs are given: `{config}` and `{config_file}`{hint}")
    words = HttpWords(
        address=http,
        tls_cert=tls_cert,
        tls_key=tls_key,
        root_path=root_path,
        allowed_hosts=allowed_host,
        allowed_origins=allowed_origin,
        insecure=insecure,
        profile=profile,
    )
    overrides = parse_http_options(words)
    if overrides is not None:
        if only:
            raise click.UsageError(
                f"`--only` is for stdin and stdout; over HTTP the path `/mcp/{only}` is that group"
            )
        return serve_http(
            config or config_file, overrides, workers=workers, log_level=log_level, log_format=log_format
        )
    if workers is not None:
        raise click.UsageError("`--workers` is about HTTP, which is not served; add `--http`")
    return serve(config or config_file, only=only, profile=profile, log_level=log_level, log_format=log_format)
