"""`dynamic-mcp backup`: copies what the program keeps into one file, while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

passphrase_option = click.option(
    "--passphrase-file",
    metavar="FILE",
    type=click.Path(),
    help="The file with the passphrase, in its first line. Default: $DYNAMIC_MCP_BACKUP_PASSPHRASE, else a question.",
)


@click.command(short_help="Copy what dynamic-mcp keeps into one file, while it runs.")
@click.argument("file", metavar="FILE", type=click.Path())
@passphrase_option
@click.option("--without-secrets", is_flag=True, help="Leave out logins, keys and the like, and do not encrypt it.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@click.option("--dry-run", is_flag=True, help="Say what would be in it, and write nothing.")
@common_options
def command(
    context: Invocation,
    file: str,
    *,
    passphrase_file: str | None,
    without_secrets: bool,
    overwrite: bool,
    dry_run: bool,
) -> int:
    """Copy what dynamic-mcp keeps of you into FILE, or to stdout (`-`), also while it serves.

    That is the state directory: logins to servers, tokens and logins of clients, approved definitions, the audit log,
    what `undo` needs; and what the config keeps elsewhere. Configs and their secrets, caches and the log are not in
    it. FILE is a tar.gz, encrypted in the format of age: `age --decrypt FILE | tar xz` opens it too.
    """
    from dynamic_mcp.features.backup.commands.copying import back_up

    return back_up(
        context,
        file,
        passphrase_file=passphrase_file,
        has_secrets=not without_secrets,
        overwrites=overwrite,
        is_dry=dry_run,
    )
