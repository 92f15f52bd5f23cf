"""Where a call may work: its directory and its paths are in the roots, with all links followed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dynamic_mcp.upstream.cli.argv import BadArguments


def choose_directory(roots: tuple[str, ...], chosen: object) -> str:
    """Return the real directory that a call has chosen, or the first root. Raises BadArguments. Reads the disk."""
    if chosen is not None and (not isinstance(chosen, str) or "\0" in chosen):
        raise BadArguments("`cwd` must be the path of a directory")
    place = Path(roots[0], chosen or "")
    real = _resolve("cwd", place)
    if not _is_inside(real, roots):
        raise BadArguments(f"`cwd` must be in {_list(roots)}")
    if not real.is_dir():
        raise BadArguments(f"`cwd`: there is no directory `{place}`")
    return str(real)


def check_paths(roots: tuple[str, ...], directory: str, paths: Iterable[tuple[str, str]]) -> None:
    """Check that the paths of arguments, from a directory, are in the roots. Raises BadArguments. Reads the disk."""
    for argument, path in paths:
        if not _is_inside(_resolve(argument, Path(directory, path)), roots):
            raise BadArguments(f"`{argument}` must be in {_list(roots)}")


def check_places(roots: tuple[str, ...], directory: str, places: Iterable[str]) -> None:
    """Check that what a program says it would work with is in the roots. Raises BadArguments. Reads the disk."""
    for place in places:
        if not _is_inside(_resolve("cwd", Path(directory, place)), roots):
            raise BadArguments(f"it would work with `{place}`, which is not in {_list(roots)}")


def _resolve(argument: str, path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        raise BadArguments(f"`{argument}` is not a path") from None


def _is_inside(real: Path, roots: tuple[str, ...]) -> bool:
    return any(real.is_relative_to(os.path.realpath(root)) for root in roots)


def _list(roots: tuple[str, ...]) -> str:
    return " or ".join(f"`{root}`" for root in roots)
