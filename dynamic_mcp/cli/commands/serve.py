"""`dynamic-mcp [CONFIG]`, or `serve`: read the config, then serve until the client is gone."""

from __future__ import annotations

import click

from dynamic_mcp.cli.options import config_option


@click.command(short_help="Serve a config to one client over stdin and stdout.")
@click.argument("config", required=False, type=click.Path())
@config_option
@click.option("--log-level", metavar="LEVEL", help="What to log on stderr: debug, info, warning or error.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="The format of the log on stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Short for --log-level error.")
@click.option("-v", "--verbose", is_flag=True, help="Short for --log-level debug.")
def command(
    config: str | None,
    config_file: str | None,
    *,
    log_level: str | None,
    log_format: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Serve the groups of CONFIG to one client over stdin and stdout.

    Default CONFIG: $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json, else the one in your config directory.
    Logs to stderr and to a file, which `dynamic-mcp logs` shows.
    """
    from dynamic_mcp.cli.command_names import COMMANDS
    from dynamic_mcp.cli.startup import serve

    if config and config_file:
        hint = f"; did you mean `dynamic-mcp {config} --config {config_file}`?" if config in COMMANDS else ""
        raise click.UsageError(f"two configs are given: `{config}` and `{config_file}`{hint}")
    level = log_level or ("error" if quiet else "debug" if verbose else None)
    return serve(config or config_file, log_level=level, log_format=log_format)
