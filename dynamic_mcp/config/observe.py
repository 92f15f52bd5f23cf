"""What is recorded and measured: `settings.audit`, `telemetry` and `metrics`, with the variables in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.config.section import Private, Section
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.config.types import Address, Command, Duration, Endpoint, File
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.observe import otel_extra

KEEP_S = 180 * 24 * 3600.0
DEFAULT_METRICS_PORT = 9464
_SIGNALS = ("TRACES", "METRICS")


class Seal(Section, frozen=True):
    """What is done with the seal of each day: the hash that all its lines lead to."""

    key: Annotated[
        File | None,
        "The path of a PEM file with an Ed25519 private key that signs the seals, relative to this file."
        " Default: seals are not signed.",
    ] = None
    syslog: Annotated[bool, "Send each seal to the system log. Default: false."] = False
    command: Annotated[
        Command, "A program that is started for each seal and reads it as JSON on stdin. Default: none."
    ] = ()


class Audit(Section, frozen=True):
    """The audit log: who called what, with which result."""

    path: Annotated[
        File | None, "The directory of the log, relative to this file. Default: one for all configs of the user."
    ] = None
    arguments: Annotated[
        Literal["keys", "redacted", "full", "off"],
        "What to record of arguments: their names and a keyed digest (`keys`), all of them with secrets masked"
        " (`redacted`), all of them (`full`), or nothing. Default: keys.",
    ] = "keys"
    keep_s: Annotated[Duration, "How long to keep a day's file. Default: 180d."] = field(default=KEEP_S, name="keep")
    on_failure: Annotated[
        Literal["continue", "stop-writes"] | None,
        "What to do while nothing can be recorded: `continue`, or refuse all calls that may change something"
        " (`stop-writes`). Default: `stop-writes` if clients authenticate, else `continue`.",
    ] = None
    seal: Annotated[Seal, "What is done with the seal of each day. Default: it is kept beside the log."] = Seal()

    @property
    def stops_writes(self) -> bool:
        """Whether calls that may change something are refused while nothing can be recorded."""
        return self.on_failure == "stop-writes"


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


class Metrics(Section, Private, frozen=True):
    """Metrics for Prometheus, at `/metrics` on an address of their own."""

    shown: ClassVar = ("listen",)
    listen: Annotated[
        Address,
        "The address: `9464`, `127.0.0.1:9464` or `[::1]:9464`. One that other machines can reach needs a `token`."
        " Default: 127.0.0.1:9464.",
    ] = TcpAddress(port=DEFAULT_METRICS_PORT)
    token: Annotated[
        str | None, "The bearer token that readers must show. Write `${VARIABLE}`, not the token itself."
    ] = None

    @property
    def address(self) -> TcpAddress:
        """Where they are read; a Unix socket is refused when the config is resolved."""
        assert isinstance(self.listen, TcpAddress)
        return self.listen


def resolve_audit(own: Audit, surroundings: Surroundings, *, authenticates: bool) -> tuple[Audit, list[str]]:
    """Return the settings of the audit log with their variables, and warnings about them."""
    texts = Substitution(surroundings.all_variables())

    def path(key: str, file: Path | None) -> Path | None:
        return None if file is None else resolve_path(texts.fill(("settings", "audit", key), str(file)), surroundings)

    audit = replace(
        own,
        path=path("path", own.path),
        on_failure=own.on_failure or ("stop-writes" if authenticates else "continue"),
        seal=replace(own.seal, key=path("seal.key", own.seal.key)),
    )
    return audit, [*texts.warnings, *texts.failures]


def resolve_telemetry(
    own: Telemetry | None, file: Path, surroundings: Surroundings
) -> tuple[Telemetry | None, list[str]]:
    """Return what is sent to a collector, with warnings about it; None if nothing is, as in every workspace.

    The variables are those of the OpenTelemetry specification, section "Environment variables".
    Raises ConfigError if `file` asks for it, and a package is missing.
    """
    environment, is_asked_for = surroundings.environment, own is not None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None, []
    if own is None and not any(_has_endpoint(each, environment) for each in _SIGNALS):
        return None, []
    if not otel_extra.is_installed():
        from dynamic_mcp.system.extras import install_hint

        if is_asked_for:
            raise ConfigError(
                str(file), "settings.telemetry", "needs packages that are missing", hint=install_hint("otel")
            )
        return None, [f"`OTEL_EXPORTER_OTLP_ENDPOINT` is set, but packages are missing: {install_hint('otel')}"]
    own = own or Telemetry()
    telemetry = replace(
        own,
        traces=_exports("TRACES", environment, is_asked_for=is_asked_for) if own.traces is None else own.traces,
        metrics=_exports("METRICS", environment, is_asked_for=is_asked_for) if own.metrics is None else own.metrics,
    )
    return (telemetry if telemetry.traces or telemetry.metrics else None), []


def resolve_metrics(own: Metrics, surroundings: Surroundings) -> tuple[Metrics | None, list[str]]:
    """Return where metrics are read, with warnings about it; None if they cannot be served."""
    texts = Substitution(surroundings.all_variables())
    token = "" if own.token is None else texts.fill(("settings", "metrics", "token"), own.token, is_required=True)
    complaints = [*texts.warnings, *texts.failures]
    if own.token is not None and (texts.failures or not token.strip()):
        complaints.append("settings.metrics: not served, because its `token` is empty")
    elif isinstance(own.listen, UnixAddress):
        complaints.append("settings.metrics: not served: `listen` must be a host and a port")
    elif not token and not _is_loopback(own.listen.host):
        complaints.append("settings.metrics: not served, because other machines can reach it without a `token`")
    else:
        return replace(own, token=token or None), complaints
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
