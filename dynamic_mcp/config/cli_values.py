"""Checks single values of a command line program's entry; each function returns the value or raises `FlawError`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dynamic_mcp.config.access_values import check_globs
from dynamic_mcp.config.values import FlawError, parse_size

FLAG_GLOB = r"^(-[!-,.-<>-~]|--?[A-Za-z0-9*?][A-Za-z0-9*?._-]*)$"


def check_names(names: Sequence[str]) -> Sequence[str]:
    """Check a list of names, or globs, of which there must be one."""
    if not names:
        raise FlawError("must not be empty", hint="write at least one name or glob")
    return check_globs(names)


def parse_output_limit(value: object) -> int | None:
    """Parse a size into bytes; None means that it was left out."""
    return None if value is None else parse_size(value)


def check_effects(effects: Mapping[str, str]) -> Mapping[str, str]:
    """Check the names of commands, which may have `*` and `?` in them."""
    check_globs(list(effects))
    return effects


def check_flags(flags: Sequence[str]) -> Sequence[str]:
    """Check flags as they are written, which may have `*` and `?` in them."""
    for flag in flags:
        if not re.fullmatch(FLAG_GLOB, flag):
            raise FlawError("must be flags with their dashes", hint="write `--force`, `-f` or a glob: `--no-*`")
    return flags
