"""Names and outcomes of requests, in the words of spans and metrics.

Names come from catalogs only. Metrics have no word that a client can choose freely.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.config.secrets import mask_text, mask_uri, strip_user_info
from dynamic_mcp.features.table import own_tool_names
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe import conventions as names
from dynamic_mcp.observe.conventions import Attributes
from dynamic_mcp.proxy.outcomes import Outcome, known_code
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.tools.meta_tools import GET

# The requests of MCP; others may have any name.
METHODS = frozenset(
    (
        *("initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete"),
        *("tools/list", "tools/call", "prompts/list", "prompts/get"),
        *("resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe", "resources/directory/read", "skills/list", "skills/get"),
        *("tasks/get", "tasks/cancel", "tasks/update", "tasks/result", "tasks/list"),
    )
)
_LONGEST_MESSAGE = 256
_LONGEST_URI = 1000
# Secrets are masked before a text is cut, since half of one is not recognized.
_LONGEST_READ = 8192
_LONGEST_NAME = 128
# The tools of ours that are not about one tool of a server.
_OWN = own_tool_names() | {GET}


def describe_failure(outcome: Outcome) -> Attributes:
    """Return what there is to say of a failure; nothing if there was none."""
    found: Attributes = {}
    if outcome.error_type:
        found[names.ERROR_TYPE] = outcome.error_type
    if outcome.code:
        found[names.STATUS_CODE] = outcome.code
    return found


def shorten_message(outcome: Outcome) -> str:
    """Return the message of a JSON-RPC error without the secrets in it; empty if there was none."""
    return mask_text(strip_user_info(outcome.message[:_LONGEST_READ]))[:_LONGEST_MESSAGE]


def shorten_uri(uri: str) -> str:
    """Return the URI of a resource without the secrets in it; of one that is far too long, only its scheme."""
    if len(uri) > _LONGEST_READ:
        return uri.partition(":")[0][:_LONGEST_NAME] + ":…"
    return mask_uri(uri)[:_LONGEST_URI]


# --- names ---------------------------------------------------------------------------------------------------


def target_of(request: Request, group: GroupView | None, method: str, name: str) -> tuple[str, str]:
    """Return the attribute that names what a request is about, and the name; empty where no catalog has it."""
    match method:
        case "tools/call":
            return names.TOOL, _tool(request, group, name)
        case "prompts/get":
            return names.PROMPT, _in_catalog(group, ListKind.PROMPTS, name)
    return "", ""


def _tool(request: Request, group: GroupView | None, name: str) -> str:
    if group is not None:
        return name if _in_catalog(group, ListKind.TOOLS, group.shown_name(name)) else ""
    asked = wire.text(wire.member(request.params, "name")) or ""
    return asked if asked in _OWN else ""


def _in_catalog(group: GroupView | None, kind: ListKind, name: str) -> str:
    catalog = None if group is None else group.catalog
    return "" if catalog is None else known_name(name, catalog.entries(kind))


def known_name(name: str, names: Container[str]) -> str:
    """Return a name that is known and readable for all clients; empty if it is not."""
    return name if name in names and len(name) <= _LONGEST_NAME and name.isprintable() else ""


def metric_labels(attributes: Attributes, target: str) -> Attributes:
    """Return the attributes that metrics have: `target` names one of them, which is `_other` if it is not there."""
    labels = {name: value for name, value in attributes.items() if name in _IN_METRICS}
    if labels[names.METHOD] not in METHODS:
        labels[names.METHOD] = names.OTHER
    if target:
        labels.setdefault(target, names.OTHER)
    for name in (names.ERROR_TYPE, names.STATUS_CODE):
        if name in labels:
            labels[name] = known_code(str(labels[name]))
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
