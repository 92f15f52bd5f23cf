"""Configures telemetry for an OpenTelemetry collector: `settings.telemetry`, or the variables of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Surroundings
from dynamic_mcp.config.types import Endpoint
from dynamic_mcp.errors import ConfigError

_SIGNALS = ("TRACES", "METRICS")


class Telemetry(Section, frozen=True):
    """What is sent to an OpenTelemetry collector. The variables `OTEL_…` count where a field is left out."""

    endpoint: Annotated[
        Endpoint | None,
        "The base URL of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`. Default: that of"
        " `OTEL_EXPORTER_OTLP_ENDPOINT`.",
    ] = None
    traces: Annotated[bool | None, "Send traces. Default: true."] = None
    metrics: Annotated[bool | None, "Send metrics. Default: true."] = None
    arguments: Annotated[
        bool, "Record the arguments and results of tool calls in spans; they may be private. Default: false."
    ] = False


def resolve(
    section: Telemetry | None, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Telemetry | None, list[str]]:
    """Return the telemetry settings, with warnings; None if nothing is sent, as in every workspace.

    The variables are those of the OpenTelemetry specification, section "Environment variables".
    Raises ConfigError if `file` enables it and a package is missing.
    """
    environment, is_asked_for = surroundings.environment, section is not None
    if surroundings.working_directory is not None:
        return None, []
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None, []
    if section is None and not any(_has_endpoint(each, environment) for each in _SIGNALS):
        return None, []
    if not _has_packages():
        from dynamic_mcp.system.extras import install_hint

        if is_asked_for:
            raise ConfigError(
                str(file), "settings.telemetry", "needs packages that are missing", hint=install_hint("otel")
            )
        return None, [f"`OTEL_EXPORTER_OTLP_ENDPOINT` is set, but packages are missing: {install_hint('otel')}"]
    section = section or Telemetry()
    telemetry = replace(
        section,
        traces=_exports("TRACES", environment, is_asked_for=is_asked_for)
        if section.traces is None
        else section.traces,
        metrics=_exports("METRICS", environment, is_asked_for=is_asked_for)
        if section.metrics is None
        else section.metrics,
    )
    return (telemetry if telemetry.traces or telemetry.metrics else None), []


def _has_endpoint(signal: str, environment: Mapping[str, str]) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environment.get(name, "").strip() for name in names)


def _exports(signal: str, environment: Mapping[str, str], *, is_asked_for: bool) -> bool:
    if environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return False
    return is_asked_for or _has_endpoint(signal, environment)


def _has_packages() -> bool:
    """Return whether the OpenTelemetry SDK and its HTTP exporter are installed, without importing them."""
    try:
        return all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")))
    except ImportError:
        return False
