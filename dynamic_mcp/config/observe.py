"""What is recorded and measured, as the program uses it: `settings.audit`, `telemetry` and `metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.private import Private

KEEP_S = 180 * 24 * 3600.0


class Audit(Struct, frozen=True):
    """The audit log. `path` None is the directory for all configs of the user; `seal_key` is a PEM file."""

    path: Path | None = None
    arguments: Literal["keys", "redacted", "full", "off"] = "keys"
    keep_s: float = KEEP_S
    stops_writes: bool = False
    seal_key: Path | None = None
    seal_syslog: bool = False
    seal_command: tuple[str, ...] = ()


class Telemetry(Struct, frozen=True):
    """What is sent to a collector; `endpoint` None is that of the environment."""

    endpoint: str | None = None
    traces: bool = True
    metrics: bool = True
    arguments: bool = False


class Metrics(Private, frozen=True):
    """Where Prometheus reads metrics, and with which token; None is without."""

    shown: ClassVar = ("listen",)
    listen: TcpAddress
    token: str | None = None
