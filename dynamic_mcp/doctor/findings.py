"""The findings of a check, and the report on one server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec

from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.errors import ConfigError, closest
from dynamic_mcp.groups.catalog import Catalog

# Returns the stored catalogs by group.
KnownCatalogs = Callable[[], Mapping[str, Catalog]]


class Level(StrEnum):
    """The severity of a finding: `note` is good to know, `warning` may hurt later, `error` breaks something now."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem or fact with its place and a hint; `exit_code` is that of a command with this error."""

    level: Level
    where: str
    what: str
    hint: str = ""
    exit_code: int = 0


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of connecting to one server. Times are in seconds, None if that step was not reached.

    For a server of the daemon, the handshake and stderr are unknown.
    """

    group: str
    is_up: bool
    runs_in_daemon: bool = False
    connect_s: float | None = None
    ping_s: float | None = None
    protocol: str | None = None
    server: str | None = None
    capabilities: list[str] = []
    tools: int | None = None
    resources: int | None = None
    prompts: int | None = None
    stderr: list[str] = []
    findings: list[Finding] = []


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code of the first error; 0 if there is none."""
    return next((finding.exit_code for finding in findings if finding.level is Level.ERROR), 0)


def config_error(where: str, what: str, hint: str = "") -> Finding:
    """Return an error in the config."""
    return Finding(Level.ERROR, where, what, hint, ConfigError.exit_code)


def warning(where: str | Keys, what: str, hint: str = "") -> Finding:
    """Return a warning about a place, or about these keys of the config."""
    return Finding(Level.WARNING, where if isinstance(where, str) else format_path(where), what, hint)


def guess(name: str, names: Iterable[str]) -> str:
    """Return a hint with similar names; none for a glob."""
    near = closest(name, names) if not {"*", "?"} & set(name) else []
    return f"did you mean `{near[0]}`?" if near else ""
