"""Lines of the audit log in the forms that other programs read: CSV, OCSF, or unchanged."""

from __future__ import annotations

import csv
import io
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Raw, structs

from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.system.text import defuse_formula, escape

FORMS = ("csv", "ocsf", "jsonl")
COLUMNS = tuple(field.name for field in structs.fields(AuditLine))

_encode = msgspec.json.Encoder().encode
_CATEGORY, _CLASS = 6, 6003
_VERSION = "1.6.0"
_PRODUCT = "dynamic-mcp"
# Attributes with a number and a caption.
_READ, _OTHER = 2, 99
_STATUS = {"success": (1, "Success"), "failure": (2, "Failure"), "denied": (2, "Failure"), "unknown": (0, "Unknown")}
_SEVERITY = {"failure": (2, "Low"), "denied": (3, "Medium"), "unknown": (2, "Low")}
_ACTION = {"allow": (1, "Allowed"), "deny": (2, "Denied")}
_ALLOWED, _BLOCKED, _APPROVED = (1, "Allowed"), (2, "Blocked"), (8, "Approved")
# Members that have a place in an event; the others are in `unmapped`.
_MAPPED = (
    {"id", "n", "at", "event", "outcome", "error", "ms", "result_bytes", "trace", "pid", "request", "session"}
    | {"issuer", "subject", "roles", "client", "address"}
    | {"group", "name", "decision", "rule", "upstream_version"}
)


def export(lines: Iterable[StoredLine], form: str, *, version: str) -> Iterator[str]:
    """Yield one line of text for each line of the log, in one of the `FORMS`; CSV has a line of titles before.

    `version` is that of this program. Damaged lines are left out, except from `jsonl`, which has each line unchanged.
    """
    if form == "csv":
        yield format_row(COLUMNS)
    for stored in lines:
        if form == "jsonl":
            yield stored.data.decode(errors="backslashreplace")
        elif stored.line is not None:
            yield format_row(_cells(stored.line)) if form == "csv" else _format_ocsf(stored.line, version)


def format_row(cells: Iterable[str]) -> str:
    """Return one row of CSV without its end. A cell has no line breaks and is no formula for a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(defuse_formula(escape(cell)) for cell in cells)
    return text.getvalue()


def _cells(line: AuditLine) -> Iterator[str]:
    for column in COLUMNS:
        value = getattr(line, column)
        if isinstance(value, Raw):
            yield bytes(value).decode(errors="backslashreplace")
        else:
            yield " ".join(value) if isinstance(value, tuple) else str(value)


def _format_ocsf(line: AuditLine, version: str) -> str:
    """Return a line as an event of the Open Cybersecurity Schema Framework 1.6.0: API Activity, with the decision.

    The attributes, and the numbers of their values, are those of https://schema.ocsf.io/1.6.0/classes/api_activity.
    """
    activity, activity_name = (_READ, "Read") if line.access == "read" else (_OTHER, line.access or line.event)
    status, status_name = _STATUS.get(line.outcome, (_OTHER, line.outcome.capitalize()))
    severity, severity_name = _SEVERITY.get(line.outcome, (1, "Informational"))
    event = _without_empty(
        {
            "category_uid": _CATEGORY,
            "category_name": "Application Activity",
            "class_uid": _CLASS,
            "class_name": "API Activity",
            "activity_id": activity,
            "activity_name": activity_name.capitalize(),
            "type_uid": _CLASS * 100 + activity,
            "type_name": f"API Activity: {'Read' if activity == _READ else 'Other'}",
            "time": _milliseconds(line.at),
            "duration": round(line.ms),
            "severity_id": severity,
            "severity": severity_name,
            "status_id": status,
            "status": status_name,
            "status_code": line.error,
            "status_detail": "denied by the rules" if line.outcome == "denied" and line.decision == "deny" else "",
            "metadata": _metadata(line, version),
            "actor": _actor(line),
            "src_endpoint": _source(line),
            "api": _api(line),
            "resources": _resources(line),
            **_decision(line),
            "unmapped": _unmapped(line),
        }
    )
    return _encode(event).decode()


def _metadata(line: AuditLine, version: str) -> dict[str, object]:
    profiles = ["security_control"] if line.decision else []
    return _without_empty(
        {
            "version": _VERSION,
            "product": {"name": _PRODUCT, "vendor_name": _PRODUCT, "version": version},
            "profiles": profiles,
            "uid": line.id,
            "event_code": line.event,
            "original_time": line.at,
            "sequence": line.n,
            "log_name": "audit",
            "log_provider": _PRODUCT,
            "log_version": str(line.v),
            "correlation_uid": line.trace,
        }
    )


def _actor(line: AuditLine) -> dict[str, object]:
    user = _without_empty(
        {"name": line.subject, "uid": line.subject, "groups": [{"name": role} for role in line.roles]}
    )
    return _without_empty(
        {
            "user": user if line.subject else {},
            "session": _without_empty({"uid": line.session, "issuer": line.issuer}),
            "app_name": line.client or _PRODUCT,
            "process": {"pid": line.pid} if line.pid else {},
        }
    )


def _source(line: AuditLine) -> dict[str, object]:
    """Return where the request came from; a client without an address is on this machine."""
    host, _, port = line.address.rpartition(":")
    if not host or not port.isdecimal():
        host, port = line.address, ""
    try:
        ip = str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        try:
            ip, port = str(ipaddress.ip_address(line.address)), ""  # without a port, as `::1`
        except ValueError:
            return _without_empty({"name": line.address or "localhost", "svc_name": line.client})
    return _without_empty({"ip": ip, "port": int(port) if port else 0, "svc_name": line.client})


def _api(line: AuditLine) -> dict[str, object]:
    is_code = line.error.lstrip("-").isdecimal()
    return _without_empty(
        {
            "operation": line.name or line.event or "unknown",
            "service": _without_empty({"name": line.group, "version": line.upstream_version}) if line.group else {},
            "request": {"uid": line.request} if line.request else {},
            "response": _without_empty(
                {"code": int(line.error) if is_code else 0, "error": line.error, "message": line.outcome}
            ),
        }
    )


def _resources(line: AuditLine) -> list[dict[str, object]]:
    if not line.name or line.event not in ("call", "read", "prompt"):
        return []
    return [_without_empty({"name": line.name, "type": line.kind, "namespace": line.group})]


def _decision(line: AuditLine) -> Mapping[str, object]:
    """Return the decision of the rules, and perhaps of a user."""
    if not line.decision:
        return {}
    action, action_name = _ACTION.get(line.decision, (_OTHER, line.decision.capitalize()))
    if line.decision == "ask" and line.approval and line.outcome in ("success", "failure", "unknown"):
        action, action_name = _ACTION["allow"]
    elif line.outcome == "denied":
        action, action_name = _ACTION["deny"]
    disposition = {1: _APPROVED if line.approval else _ALLOWED, 2: _BLOCKED}.get(action, (_OTHER, action_name))
    policy = {"name": line.rule} if line.rule else {}
    return {
        "action_id": action,
        "action": action_name,
        "disposition_id": disposition[0],
        "disposition": disposition[1],
        "policy": policy,
        "authorizations": [_without_empty({"decision": line.decision, "policy": policy})],
    }


def _unmapped(line: AuditLine) -> dict[str, object]:
    rest = {name: value for name, value in structs.asdict(line).items() if name not in _MAPPED}
    return _without_empty({**rest, "result_bytes": line.result_bytes})


def _milliseconds(at: str) -> int:
    """Return a time in milliseconds since 1970; 0 if it is not one."""
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1000 + 0.5)
    except ValueError:
        return 0


_KEPT_ZEROS = frozenset(("time", "activity_id", "status_id", "severity_id", "duration"))


def _without_empty(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if name in _KEPT_ZEROS or not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return not bytes(value) if isinstance(value, Raw) else not value
