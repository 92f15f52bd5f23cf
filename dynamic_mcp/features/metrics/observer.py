"""Counts requests and their durations for `/metrics`. Labels have names from catalogs and the config only.

They never have a subject, a session, a URI or an argument: `_other` stands for names that no catalog has.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar

from msgspec import Raw, Struct

from dynamic_mcp.errors import LoginNeeded, UpstreamError
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.families import OTHER, Family, Histogram, Values
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe import conventions
from dynamic_mcp.proxy import operations
from dynamic_mcp.proxy.request import Event, Observation, Observer, UpstreamRequest
from dynamic_mcp.proxy.session_durations import OpenLinks, session_seconds
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.tools.meta_tools import CALLS, GET

_OWN_TOOLS = frozenset((GET, *CALLS))


class _Sent(Struct, gc=False):
    """A request to an upstream: the client request that it belongs to, and its start time.

    `labels` are those of an operation, without the last.
    """

    observation: Observation
    group: GroupView
    labels: tuple[str, str, str, str]
    at: float


# The request that this task sends; a client's request may go to several groups at once, each in its own task.
_sent: ContextVar[_Sent | None] = ContextVar("_sent", default=None)


class MetricsObserver(Observer):
    """Counts requests, from the start of the process or from when metrics were switched on."""

    def __init__(self) -> None:
        self._server = Histogram(definitions.SERVER_OPERATIONS)
        self._client = Histogram(definitions.CLIENT_OPERATIONS)
        self._server_sessions = Histogram(definitions.SERVER_SESSIONS)
        self._client_sessions = Histogram(definitions.CLIENT_SESSIONS)
        self._links: OpenLinks[tuple[str]] = OpenLinks()
        self._searches = Histogram(definitions.SEARCHES)
        self._request_bytes = Values(definitions.REQUEST_BYTES)
        self._result_bytes = Values(definitions.RESULT_BYTES)
        self._decisions = Values(definitions.DECISIONS)
        self._cache_hits = Values(definitions.CACHE_HITS)

    @property
    def families(self) -> Iterator[Family]:
        yield self._server
        yield self._client
        yield self._server_sessions
        yield self._client_sessions
        yield self._searches
        yield self._request_bytes
        yield self._result_bytes
        yield self._cache_hits
        yield self._decisions

    def send(self, observation: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """Record a request to an upstream and its start time."""
        labels = _labels(message.group, message.method, message.params)
        _sent.set(_Sent(observation, message.group, labels, time.perf_counter()))
        return message

    def receive(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        sent = _sent.get()
        assert sent is not None
        self._client.observe(time.perf_counter() - sent.at, (*sent.labels, observation.sent_outcome.label))

    def end(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        took_s = time.perf_counter() - observation.started
        if observation.approval is not None:
            took_s -= observation.approval.waited_s  # the time that a user took does not belong to the tool
        request, group, sent = observation.request, observation.group, _sent.get()
        if sent is not None and (sent.observation is not observation or sent.group is not group):
            sent = None
        kind = observation.outcome.label
        if group is None:
            labels = (_known_method(request.method), _own_tool(observation), "", _group_of(error))
            if labels[1] == GET:
                self._searches.observe(took_s, (kind,))
        else:
            labels = _labels(group, request.method, observation.params) if sent is None else sent.labels
        self._server.observe(took_s, (*labels, kind))
        self._request_bytes.add((labels[3],), len(request.params))
        if answer is not None:
            self._result_bytes.add((labels[3],), len(answer.result) or len(answer.error))
        if observation.is_cached:
            self._cache_hits.add((labels[3],))
        if observation.decision:
            self._decisions.add((observation.decision,))

    def note(self, event: Event) -> None:
        seconds = session_seconds(event)
        if seconds is not None and event.client is not None:
            transport = str(operations.of_client(event.client)[conventions.TRANSPORT])
            self._server_sessions.observe(seconds, (transport,))

    def link_opened(self, group: Group, instance: Instance) -> None:
        self._links.add(instance, (group.name,))

    def group_changed(self, group: Group) -> None:
        """Count closed connections to servers."""
        for seconds, labels in self._links.pop_ended():
            self._client_sessions.observe(seconds, labels)


def _group_of(error: BaseException | None) -> str:
    """Return the group that a request failed for before it was sent; empty if unknown."""
    return error.group if isinstance(error, UpstreamError | LoginNeeded) else ""


def _known_method(method: str) -> str:
    return method if method in operations.METHODS else OTHER


def _own_tool(observation: Observation) -> str:
    """Return the name of our own tool that is called, for a request without an upstream."""
    request = observation.request
    if request.method != "tools/call":
        return ""
    name = wire.text(wire.member(request.params, "name"))
    return name if name in _OWN_TOOLS and request.client.only is None else OTHER


def _labels(group: GroupView, method: str, params: Mapping[str, Raw] | None) -> tuple[str, str, str, str]:
    """Return the method, tool, prompt and group of a request, limited to names in the server's catalog."""
    catalog = group.group.catalog
    match method:
        case "tools/call":
            return method, _known_name(catalog.tools if catalog else (), params), "", group.name
        case "prompts/get":
            prompts = catalog.entries(ListKind.PROMPTS) if catalog else ()
            return method, "", _known_name(prompts, params), group.name
        case _:
            return _known_method(method), "", "", group.name


def _known_name(names: Collection[str], params: Mapping[str, Raw] | None) -> str:
    return operations.known_name(wire.text((params or {}).get("name")) or "", names) or OTHER
