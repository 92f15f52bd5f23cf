"""Resolves `settings.audit`, `settings.telemetry` and `settings.metrics`: fills in defaults and variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.config import form, observe_form, values
from dynamic_mcp.config.addresses import TcpAddress, UnixAddress, parse_address
from dynamic_mcp.config.observe import KEEP_S, Audit, Metrics, Telemetry
from dynamic_mcp.config.upstream import Substitution, Surroundings, resolve_path
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.observe import otel_extra

DEFAULT_METRICS_PORT = 9464
_SIGNALS = ("TRACES", "METRICS")


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


def resolve_telemetry(
    settings: form.Settings, file: Path, surroundings: Surroundings
) -> tuple[Telemetry | None, list[str]]:
    """Return what is sent to a collector, with warnings about it; None if nothing is, as in every workspace.

    The variables are those of the OpenTelemetry specification, section "Environment variables".
    Raises ConfigError if `file` asks for it, and a package is missing.
    """
    environment = surroundings.environment
    if surroundings.working_directory is not None:
        return None, []
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or settings.telemetry is False:
        return None, []
    if settings.telemetry is None and not any(_has_endpoint(each, environment) for each in _SIGNALS):
        return None, []
    is_asked_for = settings.telemetry is not None
    if not otel_extra.is_installed():
        from dynamic_mcp.system.extras import install_hint

        if is_asked_for:
            raise ConfigError(
                str(file), "settings.telemetry", "needs packages that are missing", hint=install_hint("otel")
            )
        return None, [f"`OTEL_EXPORTER_OTLP_ENDPOINT` is set, but packages are missing: {install_hint('otel')}"]
    own = settings.telemetry if isinstance(settings.telemetry, observe_form.Telemetry) else observe_form.Telemetry()
    telemetry = Telemetry(
        endpoint=own.endpoint,
        traces=_exports("TRACES", environment, is_asked_for=is_asked_for) if own.traces is None else own.traces,
        metrics=_exports("METRICS", environment, is_asked_for=is_asked_for) if own.metrics is None else own.metrics,
        arguments=bool(own.arguments),
    )
    return (telemetry if telemetry.traces or telemetry.metrics else None), []


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


def _has_endpoint(signal: str, environment: Mapping[str, str]) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environment.get(name, "").strip() for name in names)


def _exports(signal: str, environment: Mapping[str, str], *, is_asked_for: bool) -> bool:
    if environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return False
    return is_asked_for or _has_endpoint(signal, environment)
