"""The form of `settings.audit`, `settings.telemetry` and `settings.metrics`, as `form` has it for the rest."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config import observe_values
from dynamic_mcp.config.addresses import parse_address
from dynamic_mcp.config.section import Duration, Section

Path = Annotated[str, Meta(min_length=1)]
Command = Annotated[list[str], observe_values.check_command]
Endpoint = Annotated[str, observe_values.check_endpoint]
Address = Annotated[str | int | None, parse_address]


class Seal(Section, frozen=True):
    """What is done with the seal of each day: the hash that all its lines lead to."""

    key: Annotated[
        Path | None,
        "The path of a PEM file with an Ed25519 private key that signs the seals, relative to this file."
        " Default: seals are not signed.",
    ] = None
    syslog: Annotated[bool | None, "Send each seal to the system log. Default: false."] = None
    command: Annotated[
        Command | None, "A program that is started for each seal and reads it as JSON on stdin. Default: none."
    ] = None


class Audit(Section, frozen=True):
    """The audit log: who called what, with which result."""

    path: Annotated[
        Path | None, "The directory of the log, relative to this file. Default: one for all configs of the user."
    ] = None
    arguments: Annotated[
        Literal["keys", "redacted", "full", "off"] | None,
        "What to record of arguments: their names and a keyed digest (`keys`), all of them with secrets masked"
        " (`redacted`), all of them (`full`), or nothing. Default: keys.",
    ] = None
    keep: Annotated[Duration, "How long to keep a day's file. Default: 180d."] = None
    on_failure: Annotated[
        Literal["continue", "stop-writes"] | None,
        "What to do while nothing can be recorded: `continue`, or refuse all calls that may change something"
        " (`stop-writes`). Default: `stop-writes` if clients authenticate, else `continue`.",
    ] = None
    seal: Annotated[Seal | None, "What is done with the seal of each day. Default: it is kept beside the log."] = None


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
        bool | None, "Record the arguments and results of tool calls in spans; they may be private. Default: false."
    ] = None


class Metrics(Section, frozen=True):
    """Metrics for Prometheus, at `/metrics` on an address of their own."""

    listen: Annotated[
        Address,
        "The address: `9464`, `127.0.0.1:9464` or `[::1]:9464`. One that other machines can reach needs a `token`."
        " Default: 127.0.0.1:9464.",
    ] = None
    token: Annotated[
        str | None, "The bearer token that readers must show. Write `${VARIABLE}`, not the token itself."
    ] = None
