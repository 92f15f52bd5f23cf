"""Counts requests and how long they take, for `/metrics`. Labels have names from catalogs and the config only.

Never a subject, a session, a URI or an argument: `_other` stands for every name that no catalog has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp import errors
from dynamic_mcp.errors import DynamicMcpError, LoginNeeded, UpstreamError
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.metrics import definitions
from dynamic_mcp.observe.metrics.families import OTHER, Family, Histogram, Values
from dynamic_mcp.proxy.observation import Observation, Observer
from dynamic_mcp.proxy.pipeline import UpstreamRequest
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.tools.meta_tools import CALLS, GET

TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"
BUG = "internal_error"

_METHODS = frozenset(
    (
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/call",
        "tools/list",
    )
)
_CODES = frozenset(code for code in vars(errors).values() if isinstance(code, int))
_OWN_TOOLS = frozenset((GET, *CALLS))
# Longer names are nobody's, and neither are those with characters that cannot be seen.
_LONGEST_NAME = 128


class _Sent(Struct, frozen=True):
    """A request that an upstream is about to get, and when, by `time.perf_counter`."""

    message: UpstreamRequest
    at: float


# The request that this task sends; a client's request may be sent to several groups at once.
_sent: ContextVar[_Sent] = ContextVar("_sent")


class MetricsObserver(Observer):
    """Counts requests, from the start of the process or from when metrics were switched on."""

    def __init__(self) -> None:
        self._server = Histogram(definitions.SERVER_OPERATIONS)
        self._client = Histogram(definitions.CLIENT_OPERATIONS)
        self._searches = Histogram(definitions.SEARCHES)
        self._request_bytes = Values(definitions.REQUEST_BYTES)
        self._result_bytes = Values(definitions.RESULT_BYTES)
        self._decisions = Values(definitions.DECISIONS)

    @property
    def families(self) -> Iterator[Family]:
        """All that is counted here."""
        yield self._server
        yield self._client
        yield self._searches
        yield self._request_bytes
        yield self._result_bytes
        yield self._decisions

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """Note when a request is sent."""
        _sent.set(_Sent(message, time.perf_counter()))
        return message

    def receive(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Count a request to an upstream."""
        sent = _sent.get()
        message, took_s = sent.message, time.perf_counter() - sent.at
        method, group = message.method, message.group
        tool, prompt = _known_names(group, method, message.params)
        kind = error_type(method, answer, error)
        self._client.observe(took_s, (_known_method(method), tool, prompt, group.name, kind))

    def end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """Count a client's request."""
        took_s = time.perf_counter() - seen.started
        request, group = seen.request, seen.group
        method = request.method
        kind = error_type(method, answer, error)
        if group is None:
            group_name, tool, prompt = _group_of(error), _own_tool(seen), ""
            if tool == GET:
                self._searches.observe(took_s, (kind,))
        else:
            group_name = group.name
            tool, prompt = _known_names(group, method, seen.params)
        self._server.observe(took_s, (_known_method(method), tool, prompt, group_name, kind))
        self._request_bytes.add((group_name,), len(request.params))
        if answer is not None:
            self._result_bytes.add((group_name,), len(answer.result) or len(answer.error))
        if seen.decision:
            self._decisions.add((seen.decision,))


class _Outcome(Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


_decode_outcome = msgspec.json.Decoder(_Outcome).decode


def error_type(method: str, answer: Frame | None, error: BaseException | None) -> str:
    """Return what went wrong, in one word of a few; empty if nothing did.

    It is the code of a JSON-RPC error, `tool_error` where a tool says that it failed, and otherwise the name of one
    of our own errors (OpenTelemetry's conventions for MCP, `error.type`).
    """
    if answer is not None:
        if len(answer.error):
            return _code(wire.value(wire.member(answer.error, "code")))
        return TOOL_ERROR if method == "tools/call" and _is_error(answer) else ""
    match error:
        case DynamicMcpError():
            return type(error).__name__
        case wire.Malformed():
            return _code(error.code)
        case asyncio.CancelledError():
            return CANCELLED
        case _:
            return BUG


def _group_of(error: BaseException | None) -> str:
    """Return the group that a request failed for before it was sent; empty if that is not known."""
    return error.group if isinstance(error, UpstreamError | LoginNeeded) else ""


def _is_error(answer: Frame) -> bool:
    try:
        return _decode_outcome(answer.result).is_error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _code(code: object) -> str:
    return str(code) if isinstance(code, int) and code in _CODES else OTHER


def _known_method(method: str) -> str:
    return method if method in _METHODS else OTHER


def _own_tool(seen: Observation) -> str:
    """Return which of our own tools was called, where no server was."""
    request = seen.request
    if request.method != "tools/call":
        return ""
    name = wire.text(wire.member(request.params, "name"))
    return name if name in _OWN_TOOLS and request.client.only is None else OTHER


def _known_names(group: GroupView, method: str, params: Mapping[str, Raw] | None) -> tuple[str, str]:
    """Return the tool and the prompt that a request is about, by names that the server's catalog has."""
    match method:
        case "tools/call":
            return _known_name(group, ListKind.TOOLS, params or {}), ""
        case "prompts/get":
            return "", _known_name(group, ListKind.PROMPTS, params or {})
        case _:
            return "", ""


def _known_name(group: GroupView, kind: ListKind, params: Mapping[str, Raw]) -> str:
    known, name = group.group.known, wire.text(params.get("name")) or ""
    is_known = known is not None and name in known.entries(kind)
    return name if is_known and len(name) <= _LONGEST_NAME and name.isprintable() else OTHER
