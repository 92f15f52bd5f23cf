"""Records what clients ask of servers: one line for each call, read and prompt, whatever its result is.

A call has an open line before it is sent, and its final line once its answer is there, or will not come. Members of
an event that a line has too go there, the others into its `detail`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client, ClientInfo
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
from dynamic_mcp.features.audit.arguments import ArgumentMode, ArgumentRecord
from dynamic_mcp.features.audit.chain import VERSION, AuditLine, LineOutcome
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.proxy.observer_service import ObserverContext, ObserverService
from dynamic_mcp.proxy.outcomes import Outcome
from dynamic_mcp.proxy.request import ApprovalNote, Event, Observation, Observer, UpstreamRequest
from dynamic_mcp.proxy.targets import EVENTS, Target, find_target, find_trace
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system import paths
from dynamic_mcp.system.bounded import BoundedDict

_REFUSALS = (AccessDenied, RefusedByGuard, MissingScope, ApprovalDenied, ApprovalNeeded, NotRecorded, RateLimited)
_LONGEST_ID = 200
_LONGEST_NAME = 200
_MAX_TOOLS = 10_000
_MAX_SHARED = 200
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
_OUTCOMES: Mapping[str, LineOutcome] = {
    **{each: each for each in get_args(LineOutcome)},
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
        """Write the log as this config says. Requests in flight stay with their config's log."""
        settings = config.settings_of("audit", Audit)
        if settings is None:
            return None
        trail = self._trail(structs.replace(settings, arguments="keys"))
        return AuditObserver(trail, arguments=settings.arguments, config=str(config.file), roles_of=self._roles_of)

    @property
    def failures(self) -> int:
        """The number of failed writes."""
        return sum(trail.recorder.failures for trail in self._trails.values())

    async def close(self) -> None:
        """Write what is left, and close the logs."""
        for trail in self._trails.values():
            trail.recorder.close()  # here, as all that it records is recorded here
            await asyncio.to_thread(trail.close)
        self._trails.clear()

    def _trail(self, settings: Audit) -> Trail:
        if settings not in self._trails:
            keeping = Keeping(settings.keep_s, settings.seal_key)
            directory = settings.path or paths.state_dir() / "audit"
            self._trails[settings] = Trail(directory, keeping, stops_writes=settings.stops_writes)
        return self._trails[settings]


class _Ending(Struct, frozen=True, gc=False):
    """The result of a request."""

    outcome: LineOutcome
    error: str = ""
    result_bytes: int = 0


class _Use(Struct, frozen=True, gc=False):
    """A use of a server before its result is known: the shared line, its other members, and its arguments."""

    shared: SharedLine
    own: Mapping[str, Any]
    arguments: Raw | None


class AuditObserver(Observer):
    """Writes a line for each use of a server, and for each event. `roles_of` returns all roles of a client."""

    def __init__(
        self,
        trail: Trail,
        *,
        arguments: ArgumentMode = "keys",
        config: str = "",
        roles_of: Callable[[Authentication], tuple[str, ...]] = lambda authentication: authentication.roles,
    ) -> None:
        self._trail = trail
        self._recorder = trail.recorder
        self._arguments = ArgumentRecord(arguments, lambda: trail.key)
        self._plain = AuditLine(v=VERSION, config=config, pid=os.getpid())
        self._clients = ClientLines(self._plain, roles_of)
        self._things = UsedThings()
        self._open: dict[int, _Use] = {}
        self._parents: dict[int, str] = {}

    def send(self, observation: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """Write down a call before it is sent. Raises NotRecorded."""
        key = id(observation)
        if observation.request.method in EVENTS and key not in self._open:
            use = self._open[key] = self._begin(observation, message.params)
            line = AuditLine(v=VERSION, arguments=self._arguments.describe_briefly(use.arguments), **use.own)
            what, is_write = message.label or f"`{message.method}`", use.shared.line.access != "read"
            self._recorder.open(line, what, is_write=is_write, shared=use.shared.json)
        return message

    def end(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Record the result of a request."""
        if observation.request.method not in EVENTS:
            return
        took_s = time.perf_counter() - observation.started
        open_use = self._open.pop(id(observation), None)
        line_id = self._parents.pop(id(observation), "") if self._parents else ""
        ending = _judge(observation.outcome, answer, error)
        if open_use is None:
            self._recorder.record(
                self._finish(self._begin(observation, observation.params, line_id), ending, took_s, observation)
            )
        else:
            self._recorder.close_call(partial(self._finish, open_use, ending, took_s, observation))

    def note(self, event: Event) -> None:
        """Record another event."""
        line = self._plain if event.client is None else self._clients.find(event.client).line
        self._recorder.record(line_of_event(structs.replace(line, id=self._trail.new_id()), event))

    def _begin(self, observation: Observation, params: Mapping[str, Raw] | None, line_id: str = "") -> _Use:
        """Return what is known of a request, with the params that are sent. `line_id` is known if it is a parent."""
        request = observation.request
        target = find_target(observation)
        meta = wire.member(request.params, "_meta") if params is None else params.get("_meta")
        own = {
            "id": line_id or self._trail.new_id(),
            "request": _id_text(request.id),
            "trace": observation.trace or find_trace(meta),
        }
        if request.parent is not None and request.parent.observation is not None:
            own["parent"] = self._find_parent(request.parent.observation)
        if observation.approval is not None:
            own |= self._describe_approval(observation.approval)
        arguments = target.arguments if observation.group is None else (params or {}).get("arguments")
        return _Use(self._find_shared(observation, target), own, arguments)

    def _find_parent(self, observation: Observation) -> str:
        """Return the id that the line of a request in progress is going to have."""
        return self._parents.setdefault(id(observation), self._trail.new_id())

    def _find_shared(self, observation: Observation, target: Target) -> SharedLine:
        """Return the line that a use shares with others of the same thing by the same client."""
        address = observation.request.address
        client = self._clients.find(observation.request.client)
        thing = self._things.find(observation.group, target)
        key = (target.event, target.group, target.name, target.shown, observation.decision, observation.rule, address)
        known = client.shared.get(key)
        if known is not None and known.thing is thing:
            return known
        line = structs.replace(
            client.line,
            event=target.event,
            outcome="unknown",
            address=address,
            group=target.group,
            kind=target.kind,
            name=target.name,
            shown=target.shown,
            access=thing.access,
            decision=observation.decision,
            rule=observation.rule,
            upstream=thing.upstream,
            upstream_version=thing.version,
            definition=thing.definition,
        )
        shared = SharedLine(line, chain.encode(line), thing)
        if observation.group is not None:  # any other name may be made up
            client.shared[key] = shared
        return shared

    def _finish(self, use: _Use, ending: _Ending, took_s: float, observation: Observation) -> AuditLine:
        """Return the whole line of a use that has ended."""
        line = structs.replace(
            use.shared.line,
            outcome=ending.outcome,
            arguments=self._arguments.describe(use.arguments),
            error=ending.error,
            result_bytes=ending.result_bytes,
            cached=observation.is_cached,
            ms=round(took_s * 1000, 3),
            **use.own,
        )
        if observation.denial is None and observation.hidden is None:
            return line
        return structs.replace(line, **_describe_hidden(observation))

    def _describe_approval(self, note: ApprovalNote) -> dict[str, Any]:
        return {
            "approval": note.id,
            "approved_by": note.by or note.channel,
            "wait_ms": round(note.waited_s * 1000, 3),
            "original_arguments": self._arguments.describe(note.original),
            "detail": _encode_detail({"reason": note.reason}) if note.reason else wire.ABSENT,
        }


class SharedLine(Struct, frozen=True, gc=False):
    """The members that the lines of a client's uses of one thing share, and their JSON."""

    line: AuditLine
    json: bytes
    thing: UsedThing


class ClientLine(Struct, frozen=True):
    """The line that says only who a client is, and those of what it has used."""

    authentication: Authentication
    hello: ClientInfo
    line: AuditLine
    shared: BoundedDict[tuple[str, ...], SharedLine]


class ClientLines:
    """Lines that say who a client is, built once for each client."""

    def __init__(self, plain: AuditLine, roles_of: Callable[[Authentication], tuple[str, ...]]) -> None:
        self._plain = plain
        self._roles_of = roles_of
        self._lines: WeakKeyDictionary[Client, ClientLine] = WeakKeyDictionary()

    def find(self, client: Client) -> ClientLine:
        """Return the line of a client, with the address that it came from first."""
        known = self._lines.get(client)
        if known is None or known.authentication is not client.authentication or known.hello is not client.hello:
            line = self._describe(client)
            known = ClientLine(client.authentication, client.hello, line, BoundedDict(_MAX_SHARED))
            self._lines[client] = known
        return known

    def _describe(self, client: Client) -> AuditLine:
        authentication, hello = client.authentication, client.hello
        return structs.replace(
            self._plain,
            issuer=authentication.principal.issuer,
            subject=authentication.principal.subject,
            roles=self._roles_of(authentication),
            auth=authentication.provider,
            client=hello.name[:_LONGEST_NAME],
            client_version=hello.version[:_LONGEST_NAME],
            address=client.address,
            session=client.id,
        )


class UsedThing(Struct, frozen=True, gc=False):
    """A tool, prompt or resource in the log: `read` or `write`, the hash of its definition, and its server."""

    access: str = ""
    definition: str = ""
    upstream: str = ""
    version: str = ""


_UNKNOWN = UsedThing()


class UsedThings:
    """The descriptions of the things that clients use, computed once for each definition."""

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[GroupView, BoundedDict[str | None, tuple[Raw | None, object, UsedThing]]] = (
            WeakKeyDictionary()
        )

    def find(self, group: GroupView | None, target: Target) -> UsedThing:
        """Return what is known of a thing."""
        if group is None:
            return _UNKNOWN
        things = self._lines.get(group)
        if things is None:
            things = self._lines[group] = BoundedDict(_MAX_TOOLS)
        catalog = group.group.catalog
        hello = None if catalog is None else catalog.hello
        name = target.name if target.kind == "tool" else None
        entry = None if catalog is None or name is None else catalog.tools.get(name)
        known = things.get(name)
        if known is None or known[0] is not entry or known[1] is not hello:
            known = things[name] = (entry, hello, _describe_thing(group, target, entry, hello))
        return known[2]


def _describe_thing(
    group: GroupView, target: Target, entry: Raw | None, hello: Mapping[str, Raw] | None
) -> UsedThing:
    server = wire.ABSENT if hello is None else hello.get("serverInfo", wire.ABSENT)
    name, version = ((wire.text(wire.member(server, each)) or "")[:_LONGEST_NAME] for each in ("name", "version"))
    if target.kind != "tool":
        return UsedThing("read", "", name, version)
    if entry is None:  # an unknown tool may do anything
        return UsedThing("write", "", name, version)
    access = access_of(target.name, entry, group.presentation.effects).access
    return UsedThing(access, hash_definition(entry), name, version)


def hash_definition(entry: Raw) -> str:
    """Return the SHA-256 of a tool's definition in hex, the same however its JSON is written."""
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(entry), order="sorted")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        canonical = bytes(entry)
    return hashlib.sha256(canonical).hexdigest()


def _describe_hidden(observation: Observation) -> Mapping[str, object]:
    """Return what the client was not told: the number of hidden results, or which rule hides what it asked for."""
    if observation.denial is None:
        return {"detail": Raw(wire.encode(observation.hidden))}
    denied = {
        "outcome": "denied",
        "error": AccessDenied.__name__,
        "decision": "deny",
        "rule": observation.denial.rule,
    }
    return {**denied, "group": observation.denial.group}


def _judge(outcome: Outcome, answer: Frame | None, error: BaseException | None) -> _Ending:
    size = 0 if answer is None else len(answer.error) or len(answer.result)
    if not outcome.error_type:
        return _Ending("success", "", size)
    if isinstance(error, asyncio.CancelledError):
        return _Ending("cancelled")
    if isinstance(error, ApprovalPending):
        return _Ending("pending", outcome.error_type)
    return _Ending("denied" if isinstance(error, _REFUSALS) else "failure", outcome.error_type, size)


def _id_text(id: Raw) -> str:
    """Return the id of a request; a string without its quotation marks."""
    text = bytes(id)[:_LONGEST_ID].decode(errors="replace")
    return (wire.text(id) or text)[:_LONGEST_ID] if text.startswith('"') else text


def line_of_event(line: AuditLine, event: Event) -> AuditLine:
    """Return the line of an event; `line` says who caused it."""
    members = dict(event.members)
    placed: dict[str, object] = {}
    if event.name.startswith(_APPROVAL_EVENTS):
        members["approval"] = members.pop("id", "")
        placed["wait_ms"] = round(_number(members.pop("waited_s", 0.0)) * 1000, 3)
        placed["outcome"] = "pending" if event.name == "approval.requested" else "success"
    outcome = members.pop("outcome", None)
    if outcome is not None:
        placed["outcome"] = _OUTCOMES.get(str(outcome), "unknown")
        if outcome != placed["outcome"]:
            members["verdict"] = outcome
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
