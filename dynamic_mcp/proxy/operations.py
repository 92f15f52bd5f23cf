"""What requests are called and how they end, in the words of spans and metrics.

Names come from catalogs only. Metrics have no word that a client can choose freely.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from msgspec import Raw, Struct

from dynamic_mcp import errors
from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    DynamicMcpError,
    MissingScope,
    TimedOut,
)
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.telemetry import conventions as names
from dynamic_mcp.observe.telemetry.records import Attributes
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.tools.meta_tools import GET

# The requests of MCP; others may have any name.
METHODS = frozenset(
    (
        *("initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete"),
        *("tools/list", "tools/call", "prompts/list", "prompts/get"),
        *("resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe"),
        *("tasks/get", "tasks/cancel", "tasks/update", "tasks/result", "tasks/list"),
    )
)
# What a server is not to blame for: the span of such a request is no failure.
_BY_CALLER = frozenset(map(str, (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND)))
_IS_ERROR = b'"isError"'
_LONGEST_MESSAGE = 256
_LONGEST_NAME = 128
_CODES = frozenset(("", *(str(code) for code in vars(errors).values() if isinstance(code, int))))


class Outcome(Struct, frozen=True):
    """How a request has ended: empty if well. `code` is that of a JSON-RPC error."""

    error_type: str = ""
    code: str = ""
    message: str = ""

    @property
    def is_fault_of_server(self) -> bool:
        """Whether the request is a failure of who was to answer it."""
        return bool(self.error_type) and self.error_type not in _BY_CALLER and self.error_type != names.CANCELLED

    def attributes(self) -> Attributes:
        """Return what there is to say of a failure."""
        found: Attributes = {}
        if self.error_type:
            found[names.ERROR_TYPE] = self.error_type
        if self.code:
            found[names.STATUS_CODE] = self.code
        return found


_WELL = Outcome()


def outcome_of(method: str, answer: Frame | None, error: BaseException | None) -> Outcome:
    """Return how a client's request has ended: as its client is told."""
    if error is None:
        return _WELL if answer is None else _read(method, answer)
    match error:
        case asyncio.CancelledError():
            return Outcome(names.CANCELLED)
        case DynamicMcpError() if method == "tools/call" and not isinstance(error, MissingScope):
            return Outcome(names.TOOL_ERROR)
        case DynamicMcpError():
            return _json_rpc_error(str(error.rpc_code), error.message)
        case wire.Malformed():
            return _json_rpc_error(str(INVALID_PARAMS), str(error))
    return _json_rpc_error(str(INTERNAL_ERROR), "internal error of dynamic-mcp")


def upstream_outcome_of(method: str, answer: Frame | None, error: BaseException | None) -> Outcome:
    """Return how a request to an upstream has ended."""
    if error is None:
        return _WELL if answer is None else _read(method, answer)
    match error:
        case asyncio.CancelledError():
            return Outcome(names.CANCELLED)
        case TimedOut():
            return Outcome(names.TIMEOUT)
    return Outcome(type(error).__name__)


def _read(method: str, answer: Frame) -> Outcome:
    if len(answer.error):
        code = bytes(wire.member(answer.error, "code")).decode("utf-8", "replace")[:20]
        return _json_rpc_error(code or str(INTERNAL_ERROR), wire.text(wire.member(answer.error, "message")) or "")
    has_failed = method == "tools/call" and _IS_ERROR in bytes(answer.result) and _is_error(answer.result)
    return Outcome(names.TOOL_ERROR) if has_failed else _WELL


def _is_error(result: Raw) -> bool:
    return bytes(wire.member(result, "isError")) == b"true"


def _json_rpc_error(code: str, message: str) -> Outcome:
    return Outcome(code, code, message[:_LONGEST_MESSAGE])


# --- names ---------------------------------------------------------------------------------------------------


def target_of(request: Request, group: GroupView | None, method: str, name: str) -> tuple[str, str]:
    """Return the attribute that names what a request is about, and the name; empty where no catalog has it."""
    match method:
        case "tools/call":
            return names.TOOL, _tool(request, group, name)
        case "prompts/get":
            return names.PROMPT, _known(group, ListKind.PROMPTS, name)
    return "", ""


def _tool(request: Request, group: GroupView | None, name: str) -> str:
    if group is not None:
        return _known(group, ListKind.TOOLS, name)
    return GET if wire.text(wire.member(request.params, "name")) == GET else ""


def _known(group: GroupView | None, kind: ListKind, name: str) -> str:
    catalog = None if group is None else group.known
    is_known = catalog is not None and name in catalog.entries(kind)
    return name if is_known and len(name) <= _LONGEST_NAME and name.isprintable() else ""


def metric_labels(attributes: Attributes, target: str) -> Attributes:
    """Return the attributes that metrics have: `target` names one of them, which is `_other` if it is not there."""
    labels = {name: value for name, value in attributes.items() if name in _IN_METRICS}
    if labels[names.METHOD] not in METHODS:
        labels[names.METHOD] = names.OTHER
    if target:
        labels.setdefault(target, names.OTHER)
    if labels.get(names.STATUS_CODE, "") not in _CODES:  # a server may make up any number of them
        labels[names.STATUS_CODE] = labels[names.ERROR_TYPE] = names.OTHER_ERROR
    return labels


_IN_METRICS = frozenset(name for name, (_, is_in_metrics, _) in names.ATTRIBUTES.items() if is_in_metrics)


def id_of(id: Raw) -> str:
    """Return the id of a request as a text."""
    return (wire.text(id) or bytes(id).decode("utf-8", "replace"))[:200]


# --- transports ----------------------------------------------------------------------------------------------


def of_client(client: Client) -> Attributes:
    """Return what a client's transport and revision are."""
    over: Attributes = _HTTP if client.transport in ("http", "sse") else _PIPE
    return {**over, names.PROTOCOL_VERSION: client.hello.revision.name}


def of_upstream(config: GroupConfig) -> Attributes:
    """Return how the upstream of a group is reached."""
    upstream = config.upstream
    return _of_url(upstream.url) if isinstance(upstream, Remote) else _PIPE


_PIPE: Attributes = {names.TRANSPORT: "pipe"}
_HTTP: Attributes = {names.TRANSPORT: "tcp", names.PROTOCOL: "http"}


@lru_cache(maxsize=1024)
def _of_url(url: str) -> Attributes:
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        path = unquote(parts.netloc)
        return {names.TRANSPORT: "unix", names.PROTOCOL: "http", names.SERVER_ADDRESS: path}
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return {**_HTTP, names.SERVER_ADDRESS: parts.hostname or "", names.SERVER_PORT: port}
