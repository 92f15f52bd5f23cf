"""`dynamic-mcp schema`: the JSON Schema of the config file."""

from __future__ import annotations

import click


@click.command(short_help="Print the JSON Schema of the config.")
def command() -> None:
    """Print the JSON Schema of the config file, for editors."""
    from dynamic_mcp.config.schema import schema_text

    click.echo(schema_text(), nl=False)
