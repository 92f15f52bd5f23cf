"""What the audit log says of events: members that a line has a place for go there, the others into its detail.

Whatever an event says, its line can be read again: it has an outcome that lines have, and a bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec
from msgspec import Raw, structs

from dynamic_mcp.config.masking import mask_value
from dynamic_mcp.features.audit.line import AuditLine, Outcome
from dynamic_mcp.proxy.request import Event

# Members that are on the line itself, by the names that they have there.
_PLACES = {
    "address": "address",
    "issuer": "issuer",
    "subject": "subject",
    "provider": "auth",
    "group": "group",
    "kind": "kind",
    "name": "name",
    "decision": "decision",
    "rule": "rule",
    "approval": "approval",
    "by": "approved_by",
    "error": "error",
}
_APPROVAL = "approval."
_OUTCOMES: Mapping[str, Outcome] = {
    **{each: each for each in get_args(Outcome)},
    "allowed": "success",
    "expired": "denied",
    "dropped": "denied",
    "withdrawn": "cancelled",
}
_LONGEST_TEXT = 1000
_LONGEST_DETAIL = 64 << 10


def line_of_event(line: AuditLine, event: Event) -> AuditLine:
    """Return a line of whoever has caused an event, or of nobody, as the line of that event."""
    members = dict(event.members)
    placed: dict[str, object] = {}
    if event.name.startswith(_APPROVAL):
        members["approval"] = members.pop("id", "")
        placed["wait_ms"] = round(_number(members.pop("waited_s", 0.0)) * 1000, 3)
        placed["outcome"] = "pending" if event.name == "approval.requested" else "success"
    said = members.pop("outcome", None)
    if said is not None:
        placed["outcome"] = _OUTCOMES.get(str(said), "unknown")
        if said != placed["outcome"]:
            members["verdict"] = said
    for name, place in _PLACES.items():
        if name in members:
            placed[place] = str(members.pop(name))[:_LONGEST_TEXT]
    if members:
        placed["detail"] = describe(members)
    return structs.replace(line, event=event.name, **placed)


def describe(members: Mapping[str, object]) -> Raw:
    """Return the detail of a line: without secrets, and of a bounded length."""
    data = msgspec.json.encode(mask_value(msgspec.json.decode(msgspec.json.encode(members))))
    return Raw(data if len(data) <= _LONGEST_DETAIL else msgspec.json.encode({"cut": len(data)}))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
