"""Checks of telemetry and metrics: a collector that does not answer, and addresses that cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from dynamic_mcp.config.observe import Metrics, Telemetry
from dynamic_mcp.config.secrets import strip_user_info
from dynamic_mcp.doctor.findings import Finding, Level, warning

_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT" for each in ("", "TRACES_", "METRICS_"))
# OpenTelemetry specification, OTLP exporter, OTLP/HTTP.
_DEFAULT_ENDPOINT = "http://localhost:4318"
_WITHIN_S = 5.0


async def check_endpoint(telemetry: Telemetry | None, environment: Mapping[str, str]) -> list[Finding]:
    """Connect to the collector, and return what is in the way."""
    if telemetry is None:
        return []
    given = (telemetry.endpoint, *(environment.get(name) for name in _ENDPOINTS))
    url = next((each for each in given if each), _DEFAULT_ENDPOINT)
    where = "settings.telemetry.endpoint"
    shown = strip_user_info(url)
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(_WITHIN_S):
            _, writer = await asyncio.open_connection(parts.hostname or "", port)
    except TimeoutError:
        return [warning(where, f"`{shown}` does not answer within {_WITHIN_S:g} s", "does the collector run?")]
    except (OSError, ValueError) as exc:
        why = (getattr(exc, "strerror", None) or str(exc)).lower()
        return [warning(where, f"`{shown}` cannot be reached: {why}", "does the collector run?")]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return [Finding(Level.OK, where, f"`{shown}` can be reached")]


def check_metrics(metrics: Metrics | None, *, is_served: bool) -> Iterator[Finding]:
    """Return the findings about the address of metrics; `is_served` tells that a proxy of this config runs."""
    if metrics is None:
        return
    where = "settings.metrics.listen"
    try:
        _try_to_listen(metrics.listen.host, metrics.listen.port)
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            what = f"`{metrics.listen}` cannot be used: {os.strerror(exc.errno or 0).lower()}"
            yield warning(where, what, "give another address")
        elif is_served:
            yield Finding(Level.OK, where, f"`{metrics.listen}` is in use, by a proxy of this config it seems")
        else:
            yield warning(where, f"`{metrics.listen}` is in use by another program", "give another address")


def _try_to_listen(host: str, port: int) -> None:
    """Listen at an address for a moment. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # what has just been closed is no obstacle for a server either
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
