"""How another program is to start this one: by a full path that stays."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.importer.formats.shapes import NAME

# Directories in which runners keep what they may throw away: uvx, `uv run --with`, npx.
_CACHES = frozenset(("archive-v0", "builds-v0", "environments-v2", "_npx"))


def own_program() -> tuple[list[str], str]:
    """Return the command that starts us, and what is to be said of it where it may not stay.

    It is the script that was run, else the one beside this Python, else the one on the `PATH`; one that a cache may
    lose only if there is no other. Every tool gets the full path: its `PATH` may be another than this one.
    """
    found = list(dict.fromkeys(_scripts()))
    lasting = [file for file in found if not is_temporary(file)]
    if lasting:
        return [str(lasting[0])], ""
    if found:
        return [str(found[0])], (
            f"`{found[0]}` is in a cache that may be cleared; install dynamic-mcp for good"
            " (`uv tool install`, `pipx install`), and run this again from there"
        )
    return [sys.executable, "-m", "dynamic_mcp"], ""


def is_temporary(file: Path) -> bool:
    """Tell whether a program is in the cache of a runner, which may be cleared."""
    parts = file.parts
    return not _CACHES.isdisjoint(parts) or ("pipx" in parts and ".cache" in parts)


def _scripts() -> Iterator[Path]:
    called = Path(sys.argv[0]).absolute()
    folders = [called.parent] if called.stem == NAME else []
    for folder in (*folders, Path(sys.executable).parent):
        for file in (folder / NAME, folder / f"{NAME}.exe"):
            if file.is_file():
                yield file
    if there := shutil.which(NAME):
        yield Path(there).absolute()
