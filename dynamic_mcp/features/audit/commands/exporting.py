"""`dynamic-mcp audit export`: writes lines in the form of another program."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dynamic_mcp import __version__
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.audit.commands.options import LineOptions, find_directory, open_index
from dynamic_mcp.features.audit.commands.view import describe_count
from dynamic_mcp.features.audit.export import export
from dynamic_mcp.features.audit.index import AuditIndex

_HEADER_LINES = {"csv": 1}


def export_lines(
    this: Invocation,
    options: LineOptions,
    *,
    directory: str | None,
    form: str,
    output: str | None,
    must_replace: bool = False,
) -> int:
    """Write the lines that are wanted to a file that only its owner can read, or to stdout; return the exit code.

    A file that exists stays, unless it `must_replace` it.
    """
    if output is not None and not must_replace and Path(output).is_file():
        raise DynamicMcpError(f"`{output}` exists and was not changed", hint="--force replaces it")
    with open_index(this, find_directory(this, directory)) as index:
        texts = _export(this, options, index, form)
        if output is None:
            for text in texts:
                this.out.print_text(text)
            return 0
        count = _write(Path(output).resolve(), texts) - _HEADER_LINES.get(form, 0)
    this.out.say(f"{describe_count(count)} written to `{output}`")
    return 0


def _export(this: Invocation, options: LineOptions, index: AuditIndex, form: str) -> Iterator[str]:
    lines = index.find(options.parse(this), options.parse_count())
    return export(lines, form, version=__version__, host=platform.node() or "localhost")


def _write(path: Path, texts: Iterator[str]) -> int:
    """Write lines to a file, which is replaced when all is written; return how many there were. Raises OSError."""
    if path.exists() and not path.is_file():  # a pipe or a device, which stays what it is
        with path.open("w", encoding="utf-8", newline="\n") as file:
            return _write_lines(file, texts)
    written = path.with_name(f".new-{os.urandom(8).hex()}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            count = _write_lines(file, texts)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    return count


def _write_lines(file: TextIO, texts: Iterator[str]) -> int:
    count = 0
    for text in texts:
        file.write(text + "\n")
        count += 1
    return count
