"""Traces and metrics of what goes through: a server span for each request of a client, a client span for each request
to an upstream, which carries its context, and the durations of both.

Their names follow OpenTelemetry's semantic conventions for MCP.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial

from msgspec import Raw, structs

from dynamic_mcp.features.telemetry.recorder import Recorder
from dynamic_mcp.features.telemetry.records import Span, SpanEvent, Trace
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import EMPTY_OBJECT, Frame
from dynamic_mcp.observe import conventions as names
from dynamic_mcp.observe.conventions import Attributes
from dynamic_mcp.observe.current_request import OutgoingMark, current_request, mark_outgoing
from dynamic_mcp.observe.trace_context import TraceContext, begin_span, begin_trace, parse_context
from dynamic_mcp.proxy import operations
from dynamic_mcp.proxy.outcomes import Outcome
from dynamic_mcp.proxy.payloads import masked_payload
from dynamic_mcp.proxy.request import Event, Observation, Observer, Request, UpstreamRequest
from dynamic_mcp.proxy.session_durations import OpenLinks, session_seconds

_PARENT, _STATE = "traceparent", "tracestate"
_PARENT_KEY = b'"traceparent"'
_LONGEST_NAME = 100


class _ServerSpan:
    """The span of a client's request in progress."""

    __slots__ = ("events", "id", "link", "trace")

    def __init__(self, trace: Trace, link: TraceContext | None) -> None:
        self.trace = trace
        self.link = link
        self.id = begin_span()
        self.events: tuple[SpanEvent, ...] = ()


class _ClientSpan:
    """The span of a request to an upstream; `parent` None means that traces are off."""

    __slots__ = ("began", "id", "mark", "message", "parent")

    def __init__(self, message: UpstreamRequest, parent: _ServerSpan | None) -> None:
        self.message = message
        self.parent = parent
        self.id = begin_span()
        self.began = time.perf_counter()
        self.mark: OutgoingMark | None = None


# A request to an upstream is sent and received in one task, while others of the same client's request may be in
# flight in other tasks.
_sent: ContextVar[_ClientSpan | None] = ContextVar("request to an upstream", default=None)


class Tracing(Observer):
    """Records spans and durations; `with_payloads` also the arguments and results of tools."""

    def __init__(self, recorder: Recorder, *, with_payloads: bool = False) -> None:
        self._recorder = recorder
        self._has_traces, self._has_metrics = recorder.settings.traces, recorder.settings.metrics
        self._with_payloads = with_payloads
        self._open: dict[int, _ServerSpan] = {}
        self._links: OpenLinks[Attributes] = OpenLinks()

    # --- requests of clients ---------------------------------------------------------------------------

    def begin(self, observation: Observation) -> None:
        """Begin a server span, in the trace that the client names or in a new one."""
        if not self._has_traces:
            return
        parent, link = self._find_contexts(observation.request)
        trace = Trace(begin_trace() if parent is None else parent.trace_id, parent, None)
        self._recorder.decide(trace, observation.request.method)
        span = self._open[id(observation)] = _ServerSpan(trace, link)
        observation.trace = trace.id
        if (mark := current_request()) is not None:
            mark.trace_id, mark.span_id = trace.id, span.id

    def _find_contexts(self, request: Request) -> tuple[TraceContext | None, TraceContext | None]:
        """Return the context of a request's parent span, and one that it is linked to."""
        if request.parent is not None and (span := self._open.get(id(request.parent.observation))) is not None:
            return span.trace.context(span.id), None
        return _find_contexts(request)

    def end(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Record the server span, and the duration of the request."""
        seconds = time.perf_counter() - observation.started
        span, request = self._open.pop(id(observation), None), observation.request
        outcome = observation.outcome
        kind, target = operations.target_of(request, observation.group, request.method, observation.name)
        attributes = _describe(request.method, kind, target, outcome)
        attributes |= operations.of_client(request.client)
        if observation.group is not None:
            attributes[names.GROUP] = observation.group.name
        if (unsent := _sent.get()) is not None and unsent.mark is not None:  # another observer refused it
            unsent.mark.is_over = True
        if self._has_metrics:
            labels = operations.metric_labels(attributes, kind)
            self._recorder.put_duration(names.SERVER_DURATION, seconds, labels)
        if span is None or span.trace.is_sampled is False:
            return
        started = int(observation.at * 1e9)
        ended = started + int(seconds * 1e9)
        self._recorder.put_span(
            Span(
                span.trace,
                span.id,
                "server",
                _span_name(request.method, target),
                started,
                ended,
                attributes | _describe_request(observation),
                events=span.events or _events(observation, ended),
                link=span.link,
                error=_description(outcome, is_failure=not outcome.blames_caller),
                payloads=self._payloads(observation, answer),
            )
        )

    def _payloads(self, observation: Observation, answer: Frame | None) -> partial[Mapping[str, str]] | None:
        if not self._with_payloads or observation.request.method != "tools/call":
            return None
        arguments = (observation.params or {}).get("arguments", EMPTY_OBJECT)
        return partial(_mask_payloads, arguments, wire.ABSENT if answer is None else answer.result)

    # --- requests to upstreams -------------------------------------------------------------------------

    def send(self, observation: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """Begin a client span, and add its context to the request."""
        parent = self._open.get(id(observation))
        span = _ClientSpan(message, parent)
        _sent.set(span)
        if parent is None:
            return message
        if not parent.events:
            parent.events = _events(observation, _now(observation))
        context = parent.trace.context(span.id)
        span.mark = mark_outgoing(_headers(context))
        params = _with_context(message.params, context)
        return message if params is None else structs.replace(message, params=params)

    def receive(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Record the client span, and the duration at the upstream."""
        span = _sent.get()
        if span is None:
            return
        _sent.set(None)
        if span.mark is not None:
            span.mark.is_over = True
        message, seconds = span.message, time.perf_counter() - span.began
        name = wire.text((message.params or {}).get("name")) or ""
        outcome = observation.sent_outcome
        kind, target = operations.target_of(observation.request, message.group, message.method, name)
        attributes = _describe(message.method, kind, target, outcome)
        attributes |= operations.of_upstream(message.group.config)
        attributes[names.GROUP] = message.group.name
        if self._has_metrics:
            labels = operations.metric_labels(attributes, kind)
            self._recorder.put_duration(names.CLIENT_DURATION, seconds, labels)
        if span.parent is None or span.parent.trace.is_sampled is False:
            return
        attributes |= _describe_resource(message.method, message.params)
        if era := _era(message):
            attributes[names.ERA] = era
        ended = _now(observation)
        self._recorder.put_span(
            Span(
                span.parent.trace,
                span.id,
                "client",
                _span_name(message.method, target),
                ended - int(seconds * 1e9),
                ended,
                attributes,
                parent_id=span.parent.id,
                error=_description(outcome, is_failure=True),
            )
        )

    # --- sessions --------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Record the duration of a client's session; stateless revisions have none."""
        seconds = session_seconds(event) if self._has_metrics else None
        if seconds is not None and event.client is not None:
            self._recorder.put_duration(names.SERVER_SESSION, seconds, operations.of_client(event.client))

    def link_opened(self, group: Group, instance: Instance) -> None:
        if self._has_metrics:
            labels = {**operations.of_upstream(group.config), names.GROUP: group.name}
            self._links.add(instance, labels)

    def group_changed(self, group: Group) -> None:
        """Record the durations of closed upstream connections."""
        for seconds, labels in self._links.pop_ended():
            self._recorder.put_duration(names.CLIENT_SESSION, seconds, labels)


# --- contexts --------------------------------------------------------------------------------------------------


def _find_contexts(request: Request) -> tuple[TraceContext | None, TraceContext | None]:
    """Return the context of a request's parent span, and one that it is linked to.

    `_meta` comes first (SEP-414). HTTP headers describe a POST, which may have carried several messages.
    """
    meta = ambient = None
    if _PARENT_KEY in bytes(request.params):
        found = wire.member(request.params, "_meta")
        meta = _parse(wire.text(wire.member(found, _PARENT)), wire.text(wire.member(found, _STATE)))
    headers: Mapping[bytes, bytes] = getattr(request.channel, "headers", {})
    if b"traceparent" in headers:
        state = headers.get(b"tracestate", b"").decode("latin-1")
        ambient = _parse(headers[b"traceparent"].decode("latin-1"), state)
    if meta is None:
        return ambient, None
    is_other = ambient is not None and (ambient.trace_id, ambient.span_id) != (meta.trace_id, meta.span_id)
    return meta, ambient if is_other else None


def _parse(parent: str | None, state: str | None) -> TraceContext | None:
    return None if parent is None else parse_context(parent, state or "")


def _with_context(params: Mapping[str, Raw] | None, context: TraceContext) -> Mapping[str, Raw] | None:
    """Return params whose `_meta` names a span; None if there is no room for it. `baggage` stays unchanged."""
    own_meta = (params or {}).get("_meta", EMPTY_OBJECT)
    try:
        meta = wire.members(own_meta)
    except wire.Malformed:
        return None
    meta[_PARENT] = Raw(wire.encode(context.parent))
    meta.pop(_STATE, None)
    if context.state:
        meta[_STATE] = Raw(wire.encode(context.state))
    return {**(params or {}), "_meta": Raw(wire.encode(meta))}


def _headers(context: TraceContext) -> tuple[tuple[bytes, bytes], ...]:
    state = ((b"tracestate", context.state.encode()),) if context.state else ()
    return ((b"traceparent", context.parent.encode()), *state)


# --- descriptions ----------------------------------------------------------------------------------------------


def _span_name(method: str, target: str) -> str:
    name = method if method in operations.METHODS else names.OTHER
    return f"{name} {target}" if target else name


def _describe(method: str, kind: str, target: str, outcome: Outcome) -> Attributes:
    attributes: Attributes = {names.METHOD: method[:_LONGEST_NAME]}
    if method == "tools/call":
        attributes[names.OPERATION] = names.EXECUTE_TOOL
    if target:
        attributes[kind] = target
    return attributes | operations.describe_failure(outcome)


def _description(outcome: Outcome, *, is_failure: bool) -> str | None:
    """Return the description of a span's failure: the message of a JSON-RPC error; None without a failure."""
    return operations.shorten_message(outcome) if outcome.error_type and is_failure else None


def _describe_request(observation: Observation) -> Attributes:
    """Return the attributes that only the span of a client's request has."""
    attributes: Attributes = {names.REQUEST_ID: operations.id_of(observation.request.id)}
    if observation.decision:
        attributes |= {names.DECISION: observation.decision, names.RULE: observation.rule}
    if observation.is_cached:
        attributes[names.CACHE_HIT] = True
    if observation.approval is not None:
        attributes |= _describe_approval(observation)
    if address := observation.request.address:
        attributes[names.CLIENT_ADDRESS] = address
        if port := observation.request.port:
            attributes[names.CLIENT_PORT] = port
    if not observation.request.revision.is_stateless:
        attributes[names.SESSION_ID] = observation.request.client.id
    return attributes | _describe_resource(observation.request.method, observation.params)


def _describe_approval(observation: Observation) -> Attributes:
    assert observation.approval is not None
    return {
        names.APPROVAL: observation.approval.outcome,
        names.APPROVAL_CHANNEL: observation.approval.channel,
        names.APPROVAL_WAIT: observation.approval.waited_s,
    }


def _describe_resource(method: str, params: Mapping[str, Raw] | None) -> Attributes:
    if not method.startswith("resources/") or params is None or (uri := wire.text(params.get("uri"))) is None:
        return {}
    return {names.RESOURCE_URI: operations.shorten_uri(uri)}


def _events(observation: Observation, at: int) -> tuple[SpanEvent, ...]:
    """Return the chain's events of a request before this time."""
    events: tuple[SpanEvent, ...] = ()
    if observation.decision:
        events = (
            SpanEvent(names.DECISION, at, {names.DECISION: observation.decision, names.RULE: observation.rule}),
        )
    if observation.approval is not None:
        events += (SpanEvent("dynamic_mcp.approval", at, _describe_approval(observation)),)
    return events


def _era(message: UpstreamRequest) -> str:
    instance = message.instance or message.group.group.instance_for(message.request.client)
    return instance.era


def _mask_payloads(arguments: Raw, result: Raw) -> Mapping[str, str]:
    found = {names.ARGUMENTS: masked_payload(arguments)}
    return {**found, names.RESULT: masked_payload(result)} if len(result) else found


def _now(observation: Observation) -> int:
    """Return the time in nanoseconds since 1970, by the clock that measures durations."""
    return int((observation.at + time.perf_counter() - observation.started) * 1e9)
