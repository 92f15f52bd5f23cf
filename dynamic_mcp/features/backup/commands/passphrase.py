"""Where the passphrase of a backup comes from: a file, the environment, or a question. Never the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason

VARIABLE = "DYNAMIC_MCP_BACKUP_PASSPHRASE"
_MOST_BYTES = 64 * 1024


def find_passphrase(context: Invocation, file: str | None, *, is_new: bool) -> str:
    """Return the passphrase; one that `is_new` is asked for twice. Raises InvalidArguments."""
    if file is not None:
        return _read(file)
    if VARIABLE in os.environ:
        return _require(os.environ[VARIABLE], f"${VARIABLE}")
    if not context.out.may_ask:
        hint = f"give it by --passphrase-file or ${VARIABLE}"
        raise InvalidArguments(
            "the backup has secrets and needs a passphrase, and nobody can be asked for it here",
            hint=f"{hint}, or leave the secrets out: --without-secrets" if is_new else hint,
        )
    return _ask(is_new=is_new)


def _read(file: str) -> str:
    try:
        data = read_bytes(Path(file), may_be_piped=True, most=_MOST_BYTES)
    except OSError as exc:
        raise InvalidArguments(f"the passphrase in `{file}` cannot be read: {os_reason(exc)}") from exc
    first = data.splitlines()[0] if data else b""
    return _require(first.decode("utf-8", "surrogateescape"), f"`{file}`")


def _ask(*, is_new: bool) -> str:
    from getpass import getpass

    passphrase = _require(getpass("passphrase of the backup: ", stream=sys.stderr), "the answer")
    if is_new and getpass("the same again: ", stream=sys.stderr) != passphrase:
        raise InvalidArguments("the passphrases are not the same", hint="nothing was written; try again")
    return passphrase


def _require(passphrase: str, source: str) -> str:
    if not passphrase:
        raise InvalidArguments(f"the passphrase is empty: {source}")
    return passphrase
