"""Checks single values of `settings.access`; each function returns the value or raises `FlawError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamic_mcp.config.values import NAME_LENGTH, FlawError, printable
from dynamic_mcp.mcp.selection import BadPath, is_definite

_MAX_GLOB = 1000


def check_profile_name(name: str) -> str:
    """Check that a profile's name can be part of a path: `/mcp/profile/<name>`."""
    is_readable = name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
    if not is_readable or "/" in name or name in (".", ".."):
        raise FlawError(
            f"the name of a profile must be 1 to {NAME_LENGTH} printable characters, without `/`, and not `.` or `..`"
        )
    return name


def check_globs(globs: Sequence[str]) -> Sequence[str]:
    """Check names that may have `*` and `?` in them."""
    for glob in globs:
        if not glob or len(glob) > _MAX_GLOB or "\0" in glob:
            raise FlawError("must not be empty, and at most 1000 characters", hint="write a name or a glob: `read_*`")
    return globs


def check_values(values: Sequence[object]) -> Sequence[object]:
    """Check single values of JSON."""
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        raise FlawError("must be a list of texts, numbers, true, false or null")
    return values


def check_path(path: str) -> str:
    """Check a JSONPath that leads to an argument."""
    if not path.startswith("$"):
        raise FlawError(f"`{printable(path)}` is not a JSONPath", hint=f"write `$.{printable(path)}`")
    try:
        is_definite(path)
    except BadPath as exc:
        raise FlawError(f"`{printable(path)}` is not a JSONPath that can be used: {exc}") from exc
    return path


def check_paths(conditions: Mapping[str, object]) -> Mapping[str, object]:
    """Check the JSONPaths that lead to arguments."""
    for path in conditions:
        check_path(path)
    return conditions


def check_pattern(pattern: str) -> str:
    """Check a regular expression of RE2, which matches in linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
        raise FlawError(
            f"is not a regular expression of RE2: {reason}", hint="RE2 has no backreferences and no look-around"
        ) from exc
    return pattern


def check_scope(scope: str) -> str:
    """Check one OAuth scope (RFC 6749, section 3.3)."""
    if not scope or not all("!" <= character <= "~" and character not in '"\\' for character in scope):
        raise FlawError("must be one OAuth scope", hint="without spaces and quotation marks")
    return scope
