"""Records what clients ask of servers: one line for each call, read and prompt, whatever comes of it.

A call has an open line before it is sent, and its line once its answer is there, or will not come. The members of an
event that a line has a place for go there, the others into its detail; whatever it says, its line can be read again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import get_args

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.masking import mask_value
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import (
    AccessDenied,
    ApprovalDenied,
    ApprovalNeeded,
    ApprovalPending,
    MissingScope,
    NotRecorded,
    RateLimited,
    RefusedByGuard,
)
from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.arguments import ArgumentRecord, Mode
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.line import VERSION, AuditLine
from dynamic_mcp.features.audit.line import Outcome as Verdict
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.features.audit.subjects import ClientLines, Pattern, UsedThings
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.observer_service import ObserverContext, ObserverService
from dynamic_mcp.proxy.outcomes import Outcome
from dynamic_mcp.proxy.request import ApprovalNote, Event, Observation, Observer, UpstreamRequest
from dynamic_mcp.proxy.targets import EVENTS, Target, find_target, find_trace
from dynamic_mcp.system import paths

_REFUSALS = (AccessDenied, RefusedByGuard, MissingScope, ApprovalDenied, ApprovalNeeded, NotRecorded, RateLimited)
_LONGEST_ID = 200
# Members that are on the line itself, by the names that they have there.
_LINE_MEMBERS = {
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
_APPROVAL_EVENTS = "approval."
_VERDICTS: Mapping[str, Verdict] = {
    **{each: each for each in get_args(Verdict)},
    "allowed": "success",
    "expired": "denied",
    "dropped": "denied",
    "withdrawn": "cancelled",
}
_LONGEST_TEXT = 1000
_LONGEST_DETAIL = 64 << 10


def make_service(context: ObserverContext) -> Auditing:
    """Return the log of a proxy."""
    return Auditing(context.proxy.roles_of)


class Auditing(ObserverService):
    """Writes the log of a proxy, whose `roles_of` returns all roles of a client."""

    def __init__(self, roles_of: Callable[[Authentication], tuple[str, ...]]) -> None:
        self._roles_of = roles_of
        self._trails: dict[Audit, Trail] = {}

    def apply(self, config: Config) -> AuditObserver | None:
        """Write the log as this config says. Requests in flight go on with that of the config before."""
        settings = config.settings_of("audit", Audit)
        if settings is None:
            return None
        trail = self._trail(structs.replace(settings, arguments="keys"))
        return AuditObserver(trail, arguments=settings.arguments, config=str(config.file), roles_of=self._roles_of)

    @property
    def failures(self) -> int:
        """How often something could not be written."""
        return sum(trail.recorder.failures for trail in self._trails.values())

    async def close(self) -> None:
        """Write what is left."""
        for trail in self._trails.values():
            trail.recorder.close()  # here, as all that it records is recorded here
            await asyncio.to_thread(trail.close)
        self._trails.clear()

    def _trail(self, settings: Audit) -> Trail:
        found = self._trails.get(settings)
        if found is None:
            keeping = Keeping(settings.keep_s, settings.seal.key, settings.seal.syslog, settings.seal.command)
            directory = settings.path or paths.state_dir() / "audit"
            found = self._trails[settings] = Trail(directory, keeping, stops_writes=settings.stops_writes)
        return found


class _Ending(Struct, frozen=True):
    """What came of a request."""

    outcome: Verdict
    error: str = ""
    result_bytes: int = 0


class _Use(Struct, frozen=True):
    """A use of a server as far as it is known before it is sent: a line without arguments, and what was given."""

    pattern: Pattern
    line: AuditLine
    given: Raw | None


class AuditObserver(Observer):
    """Writes a line for each use of a server, and for each event. `roles_of` returns all roles of somebody."""

    def __init__(
        self,
        trail: Trail,
        *,
        arguments: Mode = "keys",
        config: str = "",
        roles_of: Callable[[Authentication], tuple[str, ...]] = lambda authentication: authentication.roles,
    ) -> None:
        self._trail = trail
        self._recorder = trail.recorder
        self._arguments = ArgumentRecord(arguments, lambda: trail.digest)
        self._plain = AuditLine(v=VERSION, config=config, pid=os.getpid())
        self._clients = ClientLines(self._plain, roles_of)
        self._used = UsedThings()
        self._open: dict[int, _Use] = {}

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """Write down a call before it is sent. Raises NotRecorded."""
        key = id(seen)
        if seen.request.method in EVENTS and key not in self._open:
            use = self._open[key] = self._begin(seen, message.params)
            what, given = message.label or f"`{message.method}`", self._arguments.describe_briefly(use.given)
            self._recorder.open(use.line, what, is_write=use.line.access != "read", data=_encode_open(use, given))
        return message

    def end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Record what came of a call."""
        if seen.request.method not in EVENTS:
            return
        ms = round((time.perf_counter() - seen.started) * 1000, 3)
        was_open = self._open.pop(id(seen), None)
        ended = _judge(seen.outcome, answer, error)
        if was_open is None:
            self._recorder.record(self._finish(self._begin(seen, seen.params), ended, ms, seen))
        else:
            self._recorder.close_call(partial(self._finish, was_open, ended, ms, seen))

    def _finish(self, use: _Use, ended: _Ending, ms: float, seen: Observation) -> AuditLine:
        """Return the whole line of a use that has ended."""
        line = structs.replace(
            use.line,
            outcome=ended.outcome,
            arguments=self._arguments.describe(use.given),
            error=ended.error,
            result_bytes=ended.result_bytes,
            cached=seen.is_cached,
            ms=ms,
        )
        if seen.denial is None and seen.hidden is None:
            return line
        return structs.replace(line, **_describe_hidden(seen))

    def note(self, event: Event) -> None:
        """Record something else that has happened."""
        line = self._plain if event.client is None else self._clients.find(event.client).line
        self._recorder.record(line_of_event(structs.replace(line, id=self._trail.new_id()), event))

    def _begin(self, seen: Observation, params: Mapping[str, Raw] | None) -> _Use:
        """Return what is known of a request, with the params that are sent."""
        request, group = seen.request, seen.group
        target = find_target(seen)
        pattern = self._find_pattern(seen, target)
        given = target.arguments if group is None else (params or {}).get("arguments")
        meta = wire.member(request.params, "_meta") if params is None else params.get("_meta")
        line = structs.replace(
            pattern.line,
            id=self._trail.new_id(),
            request=_text(request.id),
            trace=seen.trace or find_trace(meta),
        )
        if seen.approval is not None:
            line = structs.replace(line, **self._approval(seen.approval))
        return _Use(pattern, line, given)

    def _find_pattern(self, seen: Observation, target: Target) -> Pattern:
        client, address = self._clients.find(seen.request.client), seen.request.address
        key = (target.event, target.group, target.name, target.shown, seen.decision, seen.rule, address)
        catalog = None if seen.group is None else seen.group.group.known
        found = client.patterns.get(key)
        if found is None or found.catalog is not catalog or seen.group is None:
            used = self._used.find(seen.group, target)
            line = structs.replace(
                client.line,
                event=target.event,
                outcome="unknown",
                address=address,
                group=target.group,
                kind=target.kind,
                name=target.name,
                shown=target.shown,
                access=used.access,
                decision=seen.decision,
                rule=seen.rule,
                upstream=used.upstream,
                upstream_version=used.version,
                definition=used.definition,
            )
            found = Pattern.of(line, catalog)
            if seen.group is not None:  # what is nowhere may have any name
                client.patterns[key] = found
        return found

    def _approval(self, note: ApprovalNote) -> Mapping[str, object]:
        return {
            "approval": note.id,
            "approved_by": note.by or note.channel,
            "wait_ms": round(note.waited_s * 1000, 3),
            "original_arguments": self._arguments.describe(note.original),
            "detail": _encode_detail({"reason": note.reason}) if note.reason else wire.ABSENT,
        }


def _encode_open(use: _Use, arguments: Raw) -> bytes:
    """Return the JSON of an open line, whose members need no order."""
    line = use.line
    try:
        request = wire.encode(line.request)
    except UnicodeEncodeError:
        return chain.encode(structs.replace(line, arguments=arguments))
    if line.approval:
        return chain.encode(structs.replace(line, arguments=arguments))
    own = b'%b,"id":"%b","trace":"%b","request":%b' % (
        use.pattern.head,
        line.id.encode(),
        line.trace.encode(),
        request,
    )
    if not len(arguments):
        return own + b"}"
    return b'%b,"arguments":%b}' % (own, bytes(arguments).replace(b"\n", b" "))


def _describe_hidden(seen: Observation) -> Mapping[str, object]:
    """Return what the client was not told: how much a search has left out, or that there is what it asked for."""
    if seen.denial is None:
        return {"detail": Raw(wire.encode(seen.hidden))}
    denied = {"outcome": "denied", "error": AccessDenied.__name__, "decision": "deny", "rule": seen.denial.rule}
    return {**denied, "group": seen.denial.group}


def _judge(outcome: Outcome, answer: Frame | None, error: BaseException | None) -> _Ending:
    """Say what came of a request."""
    size = 0 if answer is None else len(answer.error) or len(answer.result)
    if not outcome.error_type:
        return _Ending("success", "", size)
    if isinstance(error, asyncio.CancelledError):
        return _Ending("cancelled")
    if isinstance(error, ApprovalPending):
        return _Ending("pending", outcome.error_type)
    return _Ending("denied" if isinstance(error, _REFUSALS) else "failure", outcome.error_type, size)


def _text(id: Raw) -> str:
    """Return the id of a request, a text without its quotation marks."""
    text = bytes(id)[:_LONGEST_ID].decode(errors="replace")
    return (wire.text(id) or text)[:_LONGEST_ID] if text.startswith('"') else text


def line_of_event(line: AuditLine, event: Event) -> AuditLine:
    """Return a line of whoever has caused an event, or of nobody, as the line of that event."""
    members = dict(event.members)
    placed: dict[str, object] = {}
    if event.name.startswith(_APPROVAL_EVENTS):
        members["approval"] = members.pop("id", "")
        placed["wait_ms"] = round(_number(members.pop("waited_s", 0.0)) * 1000, 3)
        placed["outcome"] = "pending" if event.name == "approval.requested" else "success"
    said = members.pop("outcome", None)
    if said is not None:
        placed["outcome"] = _VERDICTS.get(str(said), "unknown")
        if said != placed["outcome"]:
            members["verdict"] = said
    for name, place in _LINE_MEMBERS.items():
        if name in members:
            placed[place] = str(members.pop(name))[:_LONGEST_TEXT]
    if members:
        placed["detail"] = _encode_detail(members)
    return structs.replace(line, event=event.name, **placed)


def _encode_detail(members: Mapping[str, object]) -> Raw:
    """Return the detail of a line: without secrets, and of a bounded length."""
    data = msgspec.json.encode(mask_value(msgspec.json.decode(msgspec.json.encode(members))))
    return Raw(data if len(data) <= _LONGEST_DETAIL else msgspec.json.encode({"cut": len(data)}))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
