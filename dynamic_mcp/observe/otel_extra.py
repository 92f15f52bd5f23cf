"""The packages that telemetry needs, which are an extra."""

from __future__ import annotations

from importlib.util import find_spec


def is_installed() -> bool:
    """Tell whether the SDK of OpenTelemetry and its exporter over HTTP are there, without loading them."""
    try:
        return all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")))
    except ImportError:
        return False
