"""Checks whether the telemetry collector answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.secrets import strip_user_info
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.features.telemetry.config import Telemetry
from dynamic_mcp.system.text import os_reason

_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT" for each in ("", "TRACES_", "METRICS_"))
# OpenTelemetry specification, OTLP exporter, OTLP/HTTP.
_DEFAULT_ENDPOINT = "http://localhost:4318"
_WITHIN_S = 5.0


async def probe(config: Config) -> list[Finding]:
    """Return the findings about the connection to the collector."""
    return await check_endpoint(config.settings_of("telemetry", Telemetry), os.environ)


async def check_endpoint(telemetry: Telemetry | None, environment: Mapping[str, str]) -> list[Finding]:
    """Connect to the collector, and return why that fails."""
    if telemetry is None:
        return []
    endpoints = (telemetry.endpoint, *(environment.get(name) for name in _ENDPOINTS))
    url = next((each for each in endpoints if each), _DEFAULT_ENDPOINT)
    where = "settings.telemetry.endpoint"
    shown = strip_user_info(url)
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(_WITHIN_S):
            _, writer = await asyncio.open_connection(parts.hostname or "", port)
    except TimeoutError:
        return [warning(where, f"`{shown}` does not answer within {_WITHIN_S:g} s", "does the collector run?")]
    except socket.gaierror:
        return [warning(where, f"`{shown}` cannot be reached: its name cannot be resolved", "check the address")]
    except (OSError, ValueError) as exc:
        return [warning(where, f"`{shown}` cannot be reached: {os_reason(exc)}", "does the collector run?")]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return [Finding(Level.OK, where, f"`{shown}` can be reached")]
