"""Resolves `settings.audit`, `settings.telemetry` and `settings.metrics`: fills in defaults and variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.config import form, observe_form, values
from dynamic_mcp.config.addresses import TcpAddress, UnixAddress, parse_address
from dynamic_mcp.config.observe import KEEP_S, Audit, Metrics, Telemetry
from dynamic_mcp.config.upstream import Substitution, Surroundings, resolve_path

DEFAULT_METRICS_PORT = 9464


def resolve_audit(
    settings: form.Settings, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Audit | None, list[str]]:
    """Return the settings of the audit log, with warnings about them; None if there is none."""
    if not settings.audit:
        return None, []
    own = settings.audit if isinstance(settings.audit, observe_form.Audit) else observe_form.Audit()
    seal, texts = own.seal or observe_form.Seal(), Substitution(surroundings.all_variables())
    keep_s = values.parse_duration(own.keep)

    def path(key: str, text: str | None) -> Path | None:
        return None if text is None else resolve_path(texts.fill(("settings", "audit", key), text), surroundings)

    audit = Audit(
        path=path("path", own.path),
        arguments=own.arguments or "keys",
        keep_s=KEEP_S if keep_s is None else keep_s,
        stops_writes=authenticates if own.on_failure is None else own.on_failure == "stop-writes",
        seal_key=path("seal.key", seal.key),
        seal_syslog=bool(seal.syslog),
        seal_command=tuple(seal.command or ()),
    )
    return audit, [*texts.warnings, *texts.failures]


def resolve_telemetry(settings: form.Settings, environment: Mapping[str, str]) -> Telemetry | None:
    """Return what is sent to a collector; None if nothing is.

    The variables are those of the OpenTelemetry specification, section "Environment variables".
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or settings.telemetry is False:
        return None
    if settings.telemetry is None and not _has_endpoint(environment):
        return None
    own = settings.telemetry if isinstance(settings.telemetry, observe_form.Telemetry) else observe_form.Telemetry()
    return Telemetry(
        endpoint=own.endpoint,
        traces=_exports("OTEL_TRACES_EXPORTER", environment) if own.traces is None else own.traces,
        metrics=_exports("OTEL_METRICS_EXPORTER", environment) if own.metrics is None else own.metrics,
        arguments=bool(own.arguments),
    )


def resolve_metrics(settings: form.Settings, surroundings: Surroundings) -> tuple[Metrics | None, list[str]]:
    """Return where metrics are read, with warnings about it; None if nowhere, as in every workspace."""
    if not settings.metrics or surroundings.working_directory is not None:
        return None, []
    own = settings.metrics if isinstance(settings.metrics, observe_form.Metrics) else observe_form.Metrics()
    address = parse_address(own.listen) or TcpAddress(port=DEFAULT_METRICS_PORT)
    texts = Substitution(surroundings.all_variables())
    token = "" if own.token is None else texts.fill(("settings", "metrics", "token"), own.token, is_required=True)
    complaints = [*texts.warnings, *texts.failures]
    if own.token is not None and (texts.failures or not token.strip()):
        complaints.append("settings.metrics: not served, because its `token` is empty")
    elif isinstance(address, UnixAddress):
        complaints.append("settings.metrics: not served: `listen` must be a host and a port")
    elif not token and not _is_loopback(address.host):
        complaints.append("settings.metrics: not served, because other machines can reach it without a `token`")
    else:
        return Metrics(address, token or None), complaints
    return None, complaints


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _has_endpoint(environment: Mapping[str, str]) -> bool:
    suffixes = ("", "_TRACES", "_METRICS")
    names = [f"OTEL_EXPORTER_OTLP{suffix}_ENDPOINT" for suffix in suffixes]
    return any(environment.get(name, "").strip() for name in names)


def _exports(variable: str, environment: Mapping[str, str]) -> bool:
    return environment.get(variable, "").strip().lower() != "none"
