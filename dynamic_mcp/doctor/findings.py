"""What a check can find."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from dynamic_mcp.errors import ConfigError


class Level(StrEnum):
    """How bad a finding is: `note` is good to know, `warning` may hurt later, `error` is in the way now."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is so, where it is, and what to do about it; `exit_code` is that of the command it spoils."""

    level: Level
    where: str
    what: str
    hint: str = ""
    exit_code: int = 0


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was connected to, or was tried; times are in seconds, and None where it did not come so far."""

    group: str
    is_up: bool
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
    """Return the exit code that the first error asks for; 0 without one."""
    return next((finding.exit_code for finding in findings if finding.level is Level.ERROR), 0)


def of_config(where: str, what: str, hint: str = "") -> Finding:
    """Return an error that is the config's."""
    return Finding(Level.ERROR, where, what, hint, ConfigError.exit_code)
